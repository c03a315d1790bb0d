"""Raft stories as text: commands, each followed by everything it made the cores do.

The format is etcd-io/raft's: a file is a list of steps; a step is command lines, ``----``, and the
trace they produce, up to a blank line. Lines that begin with ``#`` are the story and are kept.

    nodes 3 [key=value …]      real cores, all of them voters with empty logs (see ``_config``)
    disk N terms=1,1,2 [term= vote= commit=]   what node N finds when it starts (before use)
    blank N                    node N starts with an empty disk (before use, or after ``crash N``)
    join N                     a further node with an empty disk, which waits to be taken in
    campaign N                 N's election time-out has passed
    elect N M …                N becomes leader by the votes of M …, who have lost their leader;
                               only votes are exchanged, and only the result is shown
    lead N                     the same with everybody, until all have stored the leader's no-op
    tick N [count]             time passes
    lost N leader              N learns that the leader's process is gone
    propose N word …           one command per word
    read N word …              linearizable reads; a follower asks the leader
    clock MS                   what every node's clock shows from now on; none before the first
    lease N on|off             the leader N proposes the setting
    learner N M                leader N is asked to take node M in
    promote N M, remove N M    leader N is asked to let learner M vote, to take M out
    transfer N [M]             leader N is asked to hand over, to M or to whom it likes
    priority N P               N's election priority (before use)
    ready N                    one pass: messages go out, a batch goes to the disk
    persist N                  the oldest batch of N is durable: what waited for it goes out
    deliver N [from=M] [count=1] [last]   hand messages on their way to N over; all by default
    copy N [from=M]            a second copy of the first such message is on its way
    drop N [from=M]            messages on their way to N are lost
    stabilize [N …]            pass, persist and deliver among these nodes until nothing happens
    compact N [margin]         N takes a snapshot of what it has applied; entries kept: margin
    ship M N                   M offers its snapshot to N on a new connection; chunks are messages
    crash N                    N loses what is not durable and starts again
    status                     one line per node

``GANTRY_REWRITE=1`` makes the test write the traces it got; they are then reviewed as a diff.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

import msgspec
from gantry_controller.raft import election
from gantry_controller.raft.after_persist import AfterPersist
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.core import RaftCore, Ready
from gantry_controller.raft.errors import ChangeRefused, NotLeader, Overloaded
from gantry_controller.raft.members import decode_members
from gantry_controller.raft.messages import (
    LEASE_ON,
    Append,
    AppendReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Message,
    PristineQuery,
    PristineReply,
    ReadIndexReply,
    ReadIndexRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
    make_entry,
)
from gantry_controller.raft.reads import ReadMode
from gantry_controller.raft.shipment import InstallSnapshot, InstallSnapshotReply
from gantry_controller.raft.snapshot import Base, SnapshotMeta
from gantry_controller.raft.state import Role
from gantry_protocol.types import Index, NodeId, Term
from support.raft_shipping import Shipping, show_part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

ROUNDS_MAX = 200

Sent = Message | InstallSnapshot | InstallSnapshotReply


class Node:
    """A core, its disk, and what waits for the disk."""

    def __init__(self, config: RaftConfig, scenario: Scenario) -> None:
        self.config = config
        self.scenario = scenario
        self.hard: HardState | None = HardState(voting=True)
        self.entries: list[Entry] = []
        self.base = Base()
        self.snapshot: SnapshotMeta | None = None
        self.under_way: deque[Ready] = deque()
        self.after_persist = AfterPersist()
        self.applied = 0
        self.lives = 0
        self._core: RaftCore | None = None

    @property
    def core(self) -> RaftCore:
        """The running core; started when first looked at."""
        if self._core is None:
            self.lives += 1
            self._core = RaftCore(
                self.config,
                Random(f"{self.config.node_id}/{self.lives}"),
                hard_state=self.hard,
                entries=list(self.entries),
                snapshot=self.snapshot,
                base=self.base,
                tracer=self.scenario.tracer(self.config.node_id),
            )
        return self._core

    def crash(self) -> None:
        self._core = None
        self.under_way.clear()
        self.after_persist = AfterPersist()
        self.applied = self.snapshot.index if self.snapshot else 0
        self.scenario.shipping.forget(self.config.node_id)

    def store(self, ready: Ready) -> None:
        """The disk has written a batch."""
        for marker in ready.markers:
            gone = len(self.entries) if marker.restart else marker.base.index - self.base.index
            del self.entries[:gone]
            self.base = marker.base
            self.snapshot = self.scenario.shipping.metas[marker.index]
        if ready.entries:
            del self.entries[ready.entries[0].index - 1 - self.base.index :]
            self.entries.extend(ready.entries)
        self.hard = ready.hard_state


class Scenario:
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.network: list[Sent] = []
        self.shipping = Shipping(lambda node: self.nodes[node].core, self.say)
        self.output: list[str] = []
        self.now_ns: int | None = None
        self.commands: dict[str, Callable[..., None]] = {
            name.removeprefix("do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("do_")
        }

    def run(self, line: str) -> None:
        """One command line."""
        word, *arguments = line.split()
        options = dict(part.split("=", 1) for part in arguments if "=" in part)
        plain = [part for part in arguments if "=" not in part]
        self.commands[word](*plain, **options)

    def say(self, text: str) -> None:
        self.output.append(text)

    def tracer(self, node: int) -> Callable[[str, dict[str, object]], None]:
        def trace(event: str, facts: dict[str, object]) -> None:
            self.say(f"{node}: {event}" + "".join(f" {k}={v}" for k, v in facts.items()))

        return trace

    # ---- set-up ----------------------------------------------------------------------------------

    def do_nodes(self, count: str, **options: str) -> None:
        for number in range(1, int(count) + 1):
            voters = tuple(NodeId(n) for n in range(1, int(count) + 1))
            limits = {key.replace("-", "_"): int(value) for key, value in options.items()}
            config = RaftConfig(node_id=NodeId(number), voters=voters, **limits)
            self.nodes[number] = Node(config, self)

    def do_disk(self, number: str, terms: str = "", **hard: str) -> None:
        node = self.nodes[int(number)]
        node.entries = [
            make_entry(EntryKind.COMMAND, Term(int(term)), Index(index), b"x%d" % index)
            for index, term in enumerate(filter(None, terms.split(",")), start=1)
        ]
        newest = node.entries[-1].term if node.entries else 0
        node.hard = HardState(
            term=Term(int(hard.get("term", newest))),
            vote=NodeId(int(hard["vote"])) if "vote" in hard else None,
            commit=Index(int(hard.get("commit", 0))),
            voting=True,
        )

    def do_blank(self, number: str) -> None:
        self.nodes[int(number)].hard = None
        self.nodes[int(number)].entries = []

    def do_join(self, number: str) -> None:
        config = RaftConfig(node_id=NodeId(int(number)), voters=())
        self.nodes[int(number)] = Node(config, self)
        self.do_blank(number)

    def do_priority(self, number: str, priority: str) -> None:
        node = self.nodes[int(number)]
        node.config = msgspec.structs.replace(node.config, priority=int(priority))

    # ---- inputs ----------------------------------------------------------------------------------

    def do_campaign(self, number: str) -> None:
        state = self._core(number)._state
        if state.blank:
            self.say(f"{number}: is blank and does not campaign")
            return
        election.campaign(state)

    def do_elect(self, number: str, *voters: str) -> None:
        before = list(self.output)
        chosen = [int(number), *map(int, voters)]
        for voter in voters:
            state = self._core(voter)._state
            if state.leader is not None:
                self._core(voter).leader_lost(state.leader)
        for _ in range(ROUNDS_MAX):
            if self._core(number).role is Role.LEADER:
                break
            if self._core(number).role is Role.FOLLOWER:
                self.do_campaign(number)  # again, if it has only now learned of a higher term
            for one in chosen:
                self._pass_silently(one)
            votes = [m for m in self.network if isinstance(m, VoteRequest | VoteReply)]
            self.network = [m for m in self.network if m not in votes]
            for message in votes:
                if {message.source, message.target} <= set(chosen):
                    self._core(str(message.target)).step(message)
        assert self._core(number).role is Role.LEADER, self.output[len(before) :]
        self.output[:] = before
        self.say(f"{number}: leader term={self._core(number).term}")

    def do_lead(self, number: str) -> None:
        before = list(self.output)
        self.do_elect(number, *(str(other) for other in self.nodes if str(other) != number))
        self.do_stabilize()
        self.output[:] = before
        self.say(f"{number}: leader term={self._core(number).term}")

    def do_tick(self, number: str, count: str = "1") -> None:
        for _ in range(int(count)):
            self._core(number).tick()

    def do_lost(self, number: str, leader: str) -> None:
        self._core(number).leader_lost(NodeId(int(leader)))

    def do_propose(self, number: str, *words: str) -> None:
        try:
            self._core(number).propose([word.encode() for word in words])
        except (NotLeader, Overloaded) as error:
            self.say(f"{number}: {type(error).__name__}: {error}")

    def do_read(self, number: str, *words: str) -> None:
        try:
            self._core(number).read_anywhere(list(words))
        except NotLeader as error:
            self.say(f"{number}: {type(error).__name__}: {error}")

    def do_learner(self, number: str, node: str) -> None:
        self._change(number, self._core(number).add_learner, NodeId(int(node)), f"host-{node}:9879")

    def do_promote(self, number: str, node: str) -> None:
        self._change(number, self._core(number).promote, NodeId(int(node)))

    def do_remove(self, number: str, node: str) -> None:
        self._change(number, self._core(number).remove, NodeId(int(node)))

    def do_clock(self, milliseconds: str) -> None:
        self.now_ns = int(milliseconds) * 1_000_000

    def do_lease(self, number: str, word: str) -> None:
        self._core(number).set_lease(on={"on": True, "off": False}[word])

    def do_compact(self, number: str, margin: str = "0") -> None:
        self.shipping.compact(int(number), int(margin))

    def do_ship(self, source: str, target: str) -> None:
        self._send([self.shipping.offer(int(source), int(target))])

    def do_crash(self, number: str) -> None:
        self.nodes[int(number)].crash()

    # ---- the driver's part -----------------------------------------------------------------------

    def do_ready(self, number: str) -> None:
        node = self.nodes[int(number)]
        ready = node.core.ready(self.now_ns)
        self._send(node.after_persist.hand_out(ready))
        if ready.must_persist:
            node.under_way.append(ready)
            self.say(f"{number}: writes batch {ready.batch}{_stored(ready)}")
        if ready.committed:
            node.applied = ready.committed[-1].index
            self.say(f"{number}: applies {_entries(ready.committed)}")
            node.core.applied(Index(node.applied))
        for read in ready.reads:
            by = "" if read.mode is ReadMode.LEADER else f" by {read.mode.value}"
            self.say(f"{number}: reads {read.contexts} at {read.index}{by}")
        if ready.reads_dropped:
            self.say(f"{number}: drops reads {ready.reads_dropped}")
        if ready.reads_redirected:
            self.say(f"{number}: redirects reads {ready.reads_redirected}")

    def do_persist(self, number: str) -> None:
        node = self.nodes[int(number)]
        ready = node.under_way.popleft()
        node.store(ready)
        self.say(f"{number}: batch {ready.batch} is durable")
        node.after_persist.confirmed(ready.batch)
        node.after_persist.report(node.core.persisted)
        self._send(node.after_persist.release())

    def do_deliver(self, number: str, *flags: str, count: str = "1000", **where: str) -> None:
        chosen = self._on_the_way(int(number), where)
        chosen = chosen[-1:] if "last" in flags else chosen[: int(count)]
        for message in chosen:
            self.network.remove(message)
            self.say(f"{number} gets {show(message)}")
            self._step(number, message)

    def do_copy(self, number: str, **where: str) -> None:
        message = self._on_the_way(int(number), where)[0]
        self.network.append(msgspec.structs.replace(message))

    def do_drop(self, number: str, **where: str) -> None:
        for message in self._on_the_way(int(number), where):
            self.network.remove(message)
            self.say(f"lost: {show(message)}")

    def do_stabilize(self, *numbers: str) -> None:
        chosen = [int(number) for number in numbers] or list(self.nodes)
        for _ in range(ROUNDS_MAX):
            before = len(self.output)
            for number in chosen:
                self.do_ready(str(number))
                while self.nodes[number].under_way:
                    self.do_persist(str(number))
                    self.do_ready(str(number))
            for number in chosen:
                for source in chosen:
                    self.do_deliver(str(number), **{"from": str(source)})
            if len(self.output) == before:
                return
        raise AssertionError("the nodes never come to rest")

    def do_status(self) -> None:
        for number, node in self.nodes.items():
            state = node.core._state
            log = state.log
            first = log.base.index + 1
            terms = ",".join(str(log.term_at(Index(i))) for i in range(first, log.last_index + 1))
            if log.base.index:
                terms = f"..{log.base.index}/t{log.base.term}|{terms}"
            self.say(
                f"{number}: {state.role.value} term={state.term} vote={state.vote} "
                f"leader={state.leader} log=[{terms}] durable={log.persisted_index} "
                f"commit={log.commit_index} applied={log.applied_index}"
                + (" blank" if state.blank else "")
            )

    # ---- details ---------------------------------------------------------------------------------

    def _step(self, number: str, message: Sent) -> None:
        if isinstance(message, InstallSnapshot):
            reply = self.shipping.receive(message)
            self._send([] if reply is None else [reply])
        elif isinstance(message, InstallSnapshotReply):
            self._send(self.shipping.reply(message))
        else:
            self._core(number).step(message)

    def _change(self, number: str, method: Callable[..., object], *arguments: object) -> None:
        try:
            method(*arguments)
        except (NotLeader, ChangeRefused) as error:
            self.say(f"{number}: {type(error).__name__}: {error}")

    def do_transfer(self, number: str, node: str | None = None) -> None:
        target = None if node is None else NodeId(int(node))
        self._change(number, self._core(number).transfer, target)

    def _pass_silently(self, number: int) -> None:
        self.do_ready(str(number))
        while self.nodes[number].under_way:
            self.do_persist(str(number))

    def _core(self, number: str) -> RaftCore:
        return self.nodes[int(number)].core

    def _on_the_way(self, target: int, where: dict[str, str]) -> list[Sent]:
        source = where.get("from")
        return [
            message
            for message in self.network
            if message.target == target and source in (None, str(message.source))
        ]

    def _send(self, messages: Sequence[Sent]) -> None:
        for message in messages:
            self.say(f"{show(message)}")
        self.network.extend(messages)


def _entries(entries: list[Entry] | tuple[Entry, ...]) -> str:
    return " ".join(f"{entry.index}/t{entry.term}:{_content(entry)}" for entry in entries)


def _content(entry: Entry) -> str:
    match entry.kind:
        case EntryKind.COMMAND:
            return entry.command.decode()
        case EntryKind.NOOP:
            return "-"
        case EntryKind.LEASE:
            return "lease-on" if entry.command == LEASE_ON else "lease-off"
        case EntryKind.MEMBERS:
            members = decode_members(entry.command)
            learners = "".join(f"+{node}" for node in members.learners)
            return "{" + ",".join(map(str, members.voters)) + learners + "}"


def _stored(ready: Ready) -> str:
    hard = ready.hard_state
    assert hard is not None
    parts = f" term={hard.term} vote={hard.vote} commit={hard.commit}"
    parts += "" if hard.voting else " not-voting"
    for marker in ready.markers:
        kind = "restart" if marker.restart else "snapshot"
        parts += f" {kind}={marker.index}/t{marker.term} base={marker.base.index}"
    return parts + (f" [{_entries(ready.entries)}]" if ready.entries else "")


def show(message: Sent) -> str:
    """A message in one line, in the words of the paper."""
    if isinstance(message, InstallSnapshot | InstallSnapshotReply):
        return show_part(message)
    return _show(message)


def _show(message: Message) -> str:
    head = f"{message.source}→{message.target}"
    match message:
        case Append():
            covers = f" [{_entries(message.entries)}]" if message.entries else " []"
            text = f"Append t{message.term} prev={message.prev_index}/t{message.prev_term}{covers}"
            text += f" commit={message.commit}" + _nonzero("round", message.round)
            return f"{head} {text}" + (" admit" if message.admit else "")
        case AppendReply(rejected=True):
            hint = f"hint={message.hint_index}/t{message.hint_term}"
            text = f"AppendReply t{message.term} rejects {message.index} {hint}"
            return f"{head} {text}{_blank(message)}"
        case AppendReply():
            text = f"AppendReply t{message.term} holds {message.index}"
            return f"{head} {text}{_nonzero('round', message.round)}{_blank(message)}"
        case Heartbeat():
            text = f"Heartbeat t{message.term} commit={message.commit}"
            return f"{head} {text}{_nonzero('round', message.round)}"
        case HeartbeatReply():
            text = f"HeartbeatReply t{message.term}{_nonzero('round', message.round)}"
            text += _nonzero("priority", message.priority)
            return f"{head} {text}{_blank(message)}"
        case VoteRequest():
            kind = "PreVote" if message.pre else "Vote"
            text = f"{kind} t{message.term} last={message.last_index}/t{message.last_term}"
            return f"{head} {text}" + (" transfer" if message.transfer else "")
        case VoteReply():
            kind = "PreVoteReply" if message.pre else "VoteReply"
            return f"{head} {kind} t{message.term} {'granted' if message.granted else 'refused'}"
        case TimeoutNow() | ReadIndexRequest():
            return f"{head} {type(message).__name__} t{message.term}"
        case PristineQuery():
            return f"{head} PristineQuery"
        case ReadIndexReply():
            return f"{head} ReadIndexReply t{message.term} index={message.index}"
        case PristineReply():
            return f"{head} PristineReply {'pristine' if message.pristine else 'not new'}"


def _nonzero(name: str, value: int) -> str:
    return f" {name}={value}" if value else ""


def _blank(message: AppendReply | HeartbeatReply) -> str:
    return " blank" if message.blank else ""


def replay(text: str) -> str:
    """The file ``text`` with the traces that its commands produce now."""
    scenario = Scenario()
    blocks: list[str] = []
    for block in text.strip().split("\n\n"):
        story = [line for line in block.splitlines() if line.startswith("#")]
        rest = [line for line in block.splitlines() if not line.startswith("#")]
        commands = rest[: rest.index("----")] if "----" in rest else rest
        if not commands:
            blocks.append("\n".join(story))
            continue
        scenario.output.clear()
        for command in commands:
            scenario.run(command)
        blocks.append("\n".join([*story, *commands, "----", *(scenario.output or ["ok"])]))
    return "\n\n".join(blocks) + "\n"


def check(path: Path, *, rewrite: bool) -> None:
    """Compare a file with its replay, or write it anew."""
    before = path.read_text("utf-8")
    after = replay(before)
    if rewrite:
        path.write_text(after, "utf-8")
    else:
        assert before == after, f"{path.name}: the trace differs (GANTRY_REWRITE=1 writes it anew)"
