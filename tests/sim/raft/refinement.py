"""Every step of every core is one that Raft's specification allows.

The other invariants look at what a quorum ends up with. This one looks at each step by itself, so
it finds a wrong step even where nothing came of it: after each input a node's variables may differ
from those before only as an action of Ongaro's specification says (thesis, appendix B). The
specification is written down here a second time, without any of the code under test: variables per
node, and the set of all messages ever sent, from which an action takes its right.

    Timeout            the next term is entered only as its candidate, with a vote for oneself
    UpdateTerm         any other term is entered only because a message told of it
    RequestVote        a vote is given once per term, to who asked for it, for no shorter a log
    BecomeLeader       ... with the votes of a majority, the own one durable
    ClientRequest      a leader only appends, entries of its own term
    AppendEntries      what else enters a log was sent by the leader of the term; what leaves it
                       contradicts that, and was not committed
    AdvanceCommitIndex a leader: an entry of its term that a majority has confirmed in this term;
                       all others: what a message of this term vouched for
    Restart            keeps the votes that were told
    InstallSnapshot    (not in the specification) begins the log behind a committed entry; at an
                       entry that the log holds, it vouches for it, and changes nothing else

Beyond the specification, whose steps are durable at once: a vote, a candidacy and a confirmation
leave a node only when its disk holds them; what is confirmed, the leader of the term holds; and a
heartbeat tells no more than its target has confirmed.

What this is worth: an old term committed by counting (Figure 8) did harm in one run of 1,500; as a
wrong step it shows in 25 of the first 40 seeds.

Left to ``invariants``: who the members are, and everything that spans nodes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NoReturn

import msgspec
from gantry_controller.raft.messages import (
    Append,
    AppendReply,
    Entry,
    Heartbeat,
    VoteReply,
    VoteRequest,
)
from gantry_controller.raft.state import Role
from sim.kernel.world import Violation

if TYPE_CHECKING:
    from gantry_controller.raft.messages import Message
    from sim.raft.invariants import DurableLog, Invariants
    from sim.raft.process import RaftProcess


class View(msgspec.Struct, frozen=True):
    """One node's variables, as the specification has them; the log begins behind ``base``."""

    term: int
    vote: int | None
    role: Role
    commit: int
    base: int
    base_term: int
    entries: list[Entry]

    @property
    def end(self) -> tuple[int, int]:
        """By which two logs are compared: last term, last index."""
        term = self.entries[-1].term if self.entries else self.base_term
        return (term, self.base + len(self.entries))

    def term_at(self, index: int) -> int | None:
        """Term of the entry behind ``base``; None beyond the last."""
        place = index - self.base - 1
        return self.entries[place].term if place < len(self.entries) else None


def view_of(node: RaftProcess, before: View | None) -> View:
    """The variables now; a log that is as it was is not copied."""
    state = node.core._state
    entries, base = state.log._entries, state.log.base
    if before is not None and before.base == base.index and _same(before.entries, entries):
        entries = before.entries
    else:
        entries = list(entries)
    return View(
        state.term, state.vote, state.role, state.log.commit_index, base.index, base.term, entries
    )


def _same(before: list[Entry], now: list[Entry]) -> bool:
    return len(before) == len(now) and (not now or before[-1] is now[-1])


class Refinement:
    """The specification's variables of one world, and the messages sent in it."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._views: dict[tuple[str, int], View] = {}  # per life
        self._told_terms: dict[int, set[int]] = defaultdict(set)  # per target
        self._asked: dict[tuple[int, int], tuple[int, int]] = {}  # (term, candidate): its log's end
        self._votes: dict[tuple[int, int], set[int]] = defaultdict(set)  # (term, candidate): from
        self._votes_told: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)  # per volume
        self._led: dict[int, View] = {}  # per term: its leader, as it last was
        self._offered: dict[int, dict[int, bytes]] = defaultdict(dict)  # per leader's term: entries
        self._vouched: dict[tuple[int, int], int] = defaultdict(int)  # (term, target): commit
        self._shipped: dict[int, set[tuple[int, int]]] = defaultdict(set)  # per target: offered
        self._confirmed: dict[tuple[int, int], int] = defaultdict(int)  # (term, source): index
        self._counted: dict[tuple[int, int], int] = defaultdict(int)  # the same, said by voters

    # ---- messages --------------------------------------------------------------------------------

    def sent(self, node: RaftProcess, message: Message) -> None:
        """A message leaves ``node``."""
        match message:
            case VoteRequest(pre=False):
                self._check_told(node, message.term, message.source)
                self._asked[message.term, message.source] = (message.last_term, message.last_index)
            case VoteReply(pre=False, granted=True):
                self._vote_told(node, message)
            case Append():
                self._append_sent(message)
            case AppendReply(rejected=False):
                self._confirmation_sent(node, message)
            case Heartbeat():
                if message.commit > self._confirmed[message.term, message.target]:
                    self._fail(node, f"tells node {message.target} of commit {message.commit}")
                key = (message.term, message.target)
                self._vouched[key] = max(self._vouched[key], message.commit)
            case _:
                pass
        match message:
            case VoteRequest(pre=True) | VoteReply(pre=True, granted=True):
                pass  # about a term that nobody has entered
            case _:
                self._told_terms[message.target].add(getattr(message, "term", 0))

    def shipped(self, target: int, index: int, term: int) -> None:
        """A snapshot that ends at (``index``, ``term``) is offered to ``target``, or sent."""
        self._shipped[target].add((index, term))

    def _vote_told(self, node: RaftProcess, reply: VoteReply) -> None:
        self._check_told(node, reply.term, reply.target)
        self._votes[reply.term, reply.target].add(reply.source)
        self._votes_told[self._volume(node)][reply.term] = reply.target

    def _check_told(self, node: RaftProcess, term: int, candidate: int) -> None:
        hard = self._disk(node).hard_state
        if hard is None or (hard.term <= term and (hard.term, hard.vote) != (term, candidate)):
            self._fail(node, f"tells of a vote in term {term} that is not on its disk")

    def _append_sent(self, append: Append) -> None:
        offered = self._offered[append.term]
        for entry in append.entries:
            if offered.setdefault(entry.index, entry.encoded) != entry.encoded:
                raise Violation(
                    f"refinement: the leader of term {append.term} sends two entries {entry.index}"
                )
        covered = min(append.commit, append.prev_index + len(append.entries))
        key = (append.term, append.target)
        self._vouched[key] = max(self._vouched[key], covered)

    def _confirmation_sent(self, node: RaftProcess, reply: AppendReply) -> None:
        key = (reply.term, reply.source)
        held = node.core._state.log.term_at(reply.index)
        if reply.term == node.core.term and held is not None:  # else nobody listens to it
            if not self._disk(node).holds(reply.index, held):
                self._fail(node, f"confirms entry {reply.index}, which is not on its disk")
            leader = self._led.get(reply.term)
            if leader is None:
                self._fail(node, f"confirms entry {reply.index}, which no leader of its term sent")
            if reply.index > leader.base and leader.term_at(reply.index) != held:
                self._fail(node, f"confirms entry {reply.index}, which its leader does not hold")
        self._confirmed[key] = max(self._confirmed[key], reply.index)
        if reply.blank == 0:
            self._counted[key] = max(self._counted[key], reply.index)

    # ---- steps -----------------------------------------------------------------------------------

    def stepped(self, node: RaftProcess) -> None:
        """``node`` has handled one input."""
        life = (node.host.name, node.host.life)
        before = self._views.get(life)
        now = self._views[life] = view_of(node, before)
        if now.role is Role.LEADER:
            self._led[now.term] = now
        if before is None:
            self._check_restart(node, now)
            return
        installed = now.base > before.commit
        if installed:
            self._check_installed(node, now)
        else:
            self._check_log(node, before, now)
        self._check_term(node, before, now, installed=installed)
        self._check_vote(node, before, now)
        if now.role is Role.LEADER and before.role is not Role.LEADER:
            self._check_leader(node, before, now)
        if now.commit > before.commit and not installed:
            self._check_commit(node, now)

    def _check_restart(self, node: RaftProcess, now: View) -> None:
        for term, candidate in self._votes_told[self._volume(node)].items():
            if (now.term, now.vote) != (term, candidate) and now.term <= term:
                self._fail(node, f"has forgotten its vote for node {candidate} in term {term}")

    def _check_installed(self, node: RaftProcess, now: View) -> None:
        canon = self._invariants.canon
        if now.entries or now.base > len(canon) or canon[now.base - 1][0] != now.base_term:
            self._fail(node, f"begins its log behind entry {now.base} of term {now.base_term}")

    def _check_term(self, node: RaftProcess, before: View, now: View, *, installed: bool) -> None:
        if now.term == before.term:
            return
        own = node.core.node_id
        campaigns = now.role is Role.CANDIDATE and (now.term, now.vote) == (before.term + 1, own)
        told = now.term in self._told_terms[own] or (installed and now.term == now.base_term)
        if now.term < before.term or not (campaigns or told):
            self._fail(node, f"goes from term {before.term} to term {now.term}")

    def _check_vote(self, node: RaftProcess, before: View, now: View) -> None:
        given = before.vote if now.term == before.term else None
        if now.vote == given:
            return
        if given is not None or now.vote is None:
            self._fail(node, f"changes its vote in term {now.term} from {given} to {now.vote}")
        own = node.core.node_id
        if now.vote != own and self._asked.get((now.term, now.vote), (-1, -1)) < before.end:
            self._fail(node, f"votes for node {now.vote}, whose log is behind its own {before.end}")

    def _check_leader(self, node: RaftProcess, before: View, now: View) -> None:
        own = node.core.node_id
        if (before.role, before.term, before.vote) != (Role.CANDIDATE, now.term, own):
            self._fail(node, f"leads term {now.term} and was no candidate in it")
        hard = self._disk(node).hard_state
        if hard is None or (hard.term, hard.vote) != (now.term, own):
            self._fail(node, f"leads term {now.term} with a vote that is not on its own disk")
        self._check_majority(node, {own, *self._votes[now.term, own]}, f"leads term {now.term}")

    def _check_log(self, node: RaftProcess, before: View, now: View) -> None:
        if now.entries is before.entries:
            return
        first = max(before.base, now.base) + 1
        old, new = before.entries[first - 1 - before.base :], now.entries[first - 1 - now.base :]
        common = len(old) if new[: len(old)] == old else _common(old, new)
        cut = old[common:]
        leads = now.role is Role.LEADER and before.role is Role.LEADER
        if cut and (leads or len(new) == common or cut[0].index <= before.commit):
            self._fail(node, f"drops entry {cut[0].index}, which nothing contradicts")
        for entry in new[common:]:
            own = now.role is Role.LEADER and entry.term == now.term
            if not own and self._offered[now.term].get(entry.index) != entry.encoded:
                self._fail(node, f"stores entry {entry.index}, which no leader of its term sent")

    def _check_commit(self, node: RaftProcess, now: View) -> None:
        own = node.core.node_id
        what = f"commits entry {now.commit} in term {now.term}"
        if now.role is not Role.LEADER:
            shipped = (now.commit, now.term_at(now.commit)) in self._shipped[own]
            if now.commit > self._vouched[now.term, own] and not shipped:
                self._fail(node, f"{what}, for which no message vouched")
            return
        if node.core._state.log.term_at(now.commit) != now.term:  # type: ignore[arg-type]  # an int
            self._fail(node, f"{what}, which is of an older term")
        members = node.core._state.members.voters
        holders = {peer for peer in members if self._counted[now.term, peer] >= now.commit}
        if node.core._state.log.persisted_index >= now.commit:
            holders.add(own)
        self._check_majority(node, holders, what)

    # ---- details ---------------------------------------------------------------------------------

    def _check_majority(self, node: RaftProcess, nodes: set[int], what: str) -> None:
        voters = set(node.core._state.members.voters)
        if 2 * len(voters & nodes) <= len(voters):
            self._fail(node, f"{what} by the word of {sorted(nodes)} of {sorted(voters)}")

    def _disk(self, node: RaftProcess) -> DurableLog:
        return self._invariants.durable[node.host.name]

    def _volume(self, node: RaftProcess) -> tuple[str, int]:
        return (node.host.name, self._disk(node).machine.wipes)

    def _fail(self, node: RaftProcess, what: str) -> NoReturn:
        raise Violation(f"refinement: {node.host.name} {what}")


def _common(old: list[Entry], new: list[Entry]) -> int:
    """How many entries two logs begin with alike."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))
