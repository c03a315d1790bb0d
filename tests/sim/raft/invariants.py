"""What must hold after every event, whatever the network, the disks and the clocks do.

    election safety        at most one leader per term                       (thesis §3.4)
    one change             memberships that follow each other differ by one voter       (§4.1)
    one vote               a voter names one candidate per term, restarts included
    log matching           (index, term) determines an entry and the one before it (§3.5)
    leader completeness    a new leader holds every committed entry          (§3.6.3)
    state machine safety   every node applies the same entry at an index, and has the same state
                           after it, however it came by it                   (§3.6.3, §5)
    equal snapshots        equal states have equal files, whoever takes them (``shipments``)
    durable before ack     a committed entry is on a quorum's *disks*, by the disks' own content
    read freshness         a read sees everything acknowledged before it began (§6.4)
    lease safety           while a lease is valid, nobody was elected since      (``leases``)
    refinement             every step is one of the specification's         (``refinement``)
    monotony               term and commit never fall, within one life of a process

The observer is told what nodes do and believes nothing else: what is durable it reads, through the
recovery code, from the bytes the simulated disk would give back after a power cut.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_controller.raft.members import Membership, decode_members
from gantry_controller.raft.messages import EntryKind, VoteReply
from gantry_controller.wal.format import HEADER_SIZE, Head, parse_header
from gantry_controller.wal.recovery import read_batches
from gantry_controller.wal.replay import Replay, SegmentUse
from gantry_protocol.types import Index, NodeId, Term
from sim.kernel.world import Violation
from sim.raft.process import chain, machine_name
from sim.raft.refinement import Refinement
from sim.raft.snapshots import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_controller.raft.messages import Entry, HardState, Message
    from sim.kernel.machine import Machine
    from sim.kernel.world import World
    from sim.raft.process import RaftProcess
    from sim.raft.snapshots import Stored


def majority(members: int) -> int:
    """The observer's own count: the code under test may have it wrong."""
    return members // 2 + 1


def open_memberships(changes: Sequence[tuple[int, Membership]], commit: int) -> list[Membership]:
    """The newest that is committed for sure, and those behind it: each may come to be in effect."""
    settled = max(place for place, (index, _) in enumerate(changes) if index <= commit)
    return [members for _, members in changes[settled:]]


class DurableLog:
    """The log that a machine's medium holds, read on as it grows; earlier volumes are kept."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._wipes = 0
        self._unread = b""
        self._found = fresh_replay()
        self._head: Head | None = None
        self._lost: list[Replay] = []

    def holds(self, index: int, term: int) -> bool:
        """Whether (index, term) is durable here, or was on a volume that was lost since."""
        self.refresh()
        return any(_holds(log, index, term) for log in (self._found, *self._lost))

    @property
    def is_voter(self) -> bool:
        """Whether the medium says that this node may vote."""
        self.refresh()
        return self._found.hard_state is not None and self._found.hard_state.voting

    @property
    def hard_state(self) -> HardState | None:
        """What the medium holds beside the log."""
        self.refresh()
        return self._found.hard_state

    def memberships(self, founding: Membership) -> list[Membership]:
        """What a process that starts from this medium may act by: see ``open_memberships``."""
        self.refresh()
        if self._found.hard_state is None:
            return []
        stored = load(self.machine.disk, self._found.marker, durable=True)
        first = (0, founding) if stored is None else (stored.meta.index, stored.meta.members)
        changes = [first] + [
            (entry.index, decode_members(entry.command))
            for entry in self._found.entries
            if entry.kind is EntryKind.MEMBERS and entry.index > first[0]
        ]
        return open_memberships(changes, max(first[0], self._found.hard_state.commit))

    def refresh(self) -> None:
        """Read what has become durable since the last look."""
        if self.machine.wipes != self._wipes:
            self._wipes = self.machine.wipes
            self._lost.append(self._found)
            self._found, self._head, self._unread = fresh_replay(), None, b""
        file = self.machine.disk.files.get("wal")
        if file is None or file.durable[self._offset :] == self._unread:
            return
        data = bytes(file.durable)
        if self._head is None:
            header = parse_header(data)
            assert header is not None
            assert not isinstance(header, int)
            self._head = Head(1, header.size, HEADER_SIZE, header.seed, header.batch, 0)
        read_batches(Path("wal"), data, self._head, self._found)
        self._unread = data[self._head.offset :]  # torn by a power cut, until it is written anew

    @property
    def _offset(self) -> int:
        return 0 if self._head is None else self._head.offset


def _holds(log: Replay, index: int, term: int) -> bool:
    """What stands before the base is in the snapshot that the log's marker names."""
    assert log.base is not None
    place = index - log.base.index - 1
    return place < 0 or (place < len(log.entries) and log.entries[place].term == term)


def fresh_replay() -> Replay:
    """Nothing read yet, of a log in one segment."""
    replay = Replay(whole=True)
    replay.segments.append(SegmentUse(Path("wal"), 0))
    return replay


class Invariants:
    """The observer of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.durable: dict[str, DurableLog] = {}
        self.canon: list[tuple[int, bytes]] = []  # committed entries: (term, encoded)
        self.acked_index = 0
        self.reads_checked = 0
        self._member_changes: list[tuple[int, Membership]] = []  # committed: (index, members)
        self._commit_terms: list[int] = []  # per committed entry: in whose term, at the latest
        self._reached: dict[tuple[str, int], tuple[int, int]] = {}  # per life: term, commit
        self._states = [b""]  # the state after each committed entry
        self._refinement = Refinement(self)
        self._snapshots: dict[tuple[int, bool], bytes] = {}  # the file of each that was taken
        self._leaders: dict[int, str] = {}
        self._newest_term_led = 0
        self._votes: dict[tuple[str, int, int], int] = {}
        self._entries: dict[tuple[int, int], tuple[bytes, int | None]] = {}

    def watch(self, machine: Machine) -> None:
        """Read this machine's disk from now on."""
        self.durable[machine.name] = DurableLog(machine)

    # ---- what nodes do ---------------------------------------------------------------------------

    def traced(self, node: RaftProcess, event: str, facts: dict[str, object]) -> None:
        self.world.count(f"raft.{event}")
        if event != "rejected":  # too many on an unkind network to leave room for the rest
            node.host.note(event, *(f"{key}={value}" for key, value in facts.items()))
        if event == "leader":
            self._elected(node)

    def sent(self, node: RaftProcess, message: Message) -> None:
        self._refinement.sent(node, message)
        if isinstance(message, VoteReply) and message.granted and not message.pre:
            key = (node.host.name, self.durable[node.host.name].machine.wipes, message.term)
            given = self._votes.setdefault(key, message.target)
            if given != message.target:
                raise Violation(
                    f"one vote: {node.host.name} votes for {given} and for {message.target} in "
                    f"term {message.term}"
                )

    def shipped(self, target: NodeId, index: Index, term: Term) -> None:
        self._refinement.shipped(target, index, term)

    def stored(self, node: RaftProcess, entries: list[Entry]) -> None:
        for entry in entries:
            before = self._term_before(node, entry)
            known = self._entries.setdefault((entry.index, entry.term), (entry.encoded, before))
            if known != (entry.encoded, before):
                raise Violation(
                    f"log matching: {node.host.name} stores another entry {entry.index} of term "
                    f"{entry.term} than before"
                )

    def committed(self, node: RaftProcess) -> None:
        log = node.core._state.log
        for index in range(len(self.canon) + 1, log.commit_index + 1):
            entry = log._entries[index - 1 - log.base.index]
            self.canon.append((entry.term, entry.encoded))
            if entry.kind is EntryKind.MEMBERS:
                self._members_changed(index, decode_members(entry.command))
            self._commit_terms.append(max([node.core.term, *self._commit_terms[-1:]]))
            self._check_durable(node, index, entry.term)
        term, _ = self.canon[log.commit_index - 1]
        if log.term_at(log.commit_index) != term:
            raise Violation(f"{node.host.name} commits another entry {log.commit_index}")

    def looked(self, node: RaftProcess) -> None:
        now = (node.core.term, node.core.commit_index)
        life = (node.host.name, node.host.life)
        term, commit = self._reached.get(life, (0, 0))
        if now[0] < term or now[1] < commit:
            raise Violation(
                f"monotony: {node.host.name} goes back from term {term}, commit {commit} to "
                f"term {now[0]}, commit {now[1]}"
            )
        self._reached[life] = now
        if node.core.lease_is_valid(node.clock_ns):
            self.world.count("lease.valid")
            if self._newest_term_led > node.core.term:
                raise Violation(
                    f"lease safety: {node.host.name} may read by lease in term {node.core.term}, "
                    f"but term {self._newest_term_led} has a leader"
                )

    def stepped(self, node: RaftProcess) -> None:
        self._refinement.stepped(node)

    def applied(self, node: RaftProcess, entry: Entry) -> None:
        if self.canon[entry.index - 1] != (entry.term, entry.encoded):
            raise Violation(
                f"state machine safety: {node.host.name} applies another entry {entry.index}"
            )
        if node.applied_index != entry.index - 1:
            raise Violation(f"{node.host.name} applies entry {entry.index} out of order")

    def state_changed(self, node: RaftProcess) -> None:
        while len(self._states) <= node.applied_index:
            _, encoded = self.canon[len(self._states) - 1]
            self._states.append(chain(self._states[-1], encoded))
        if node.digest != self._states[node.applied_index]:
            raise Violation(
                f"state machine safety: {node.host.name} has another state after entry "
                f"{node.applied_index}"
            )
        self._check_members(node)

    def snapshot_taken(self, node: RaftProcess, stored: Stored) -> None:
        # A node that joins knows who took part from its own admission on only.
        what = stored.meta.index, bool(stored.meta.members.voters)
        if self._snapshots.setdefault(what, stored.data) != stored.data:
            raise Violation(
                f"equal snapshots: {node.host.name} has another file of the state after entry "
                f"{stored.meta.index}"
            )

    def _check_members(self, node: RaftProcess) -> None:
        """Once members have changed, all nodes that applied the same know the same ones."""
        index = Index(node.applied_index)
        changed = [members for at, members in self._member_changes if at <= index]
        if changed and node.core._state.history.at(index) != changed[-1]:
            raise Violation(
                f"members: {node.host.name} takes {node.core._state.history.at(index)} for the "
                f"members as of entry {index}, but they are {changed[-1]}"
            )

    # ---- what clients see ------------------------------------------------------------------------

    def acknowledged(self, index: int) -> None:
        """A client was told that its command at ``index`` took effect."""
        self.acked_index = max(self.acked_index, index)

    def read_answered(self, node: RaftProcess, acked_before: int) -> None:
        """A read that began when ``acked_before`` was acknowledged is served by ``node``."""
        self.reads_checked += 1
        if node.applied_index < acked_before:
            raise Violation(
                f"stale read: {node.host.name} serves entry {node.applied_index}, but "
                f"{acked_before} was acknowledged before the read began"
            )

    # ---- details ---------------------------------------------------------------------------------

    def _elected(self, node: RaftProcess) -> None:
        term, name = node.core.term, node.host.name
        self._newest_term_led = max(self._newest_term_led, term)
        if self._leaders.setdefault(term, name) != name:
            raise Violation(f"election safety: {name} and {self._leaders[term]} lead term {term}")
        state = node.core._state
        # The newest membership, or the committed one if a removal is not known to be committed.
        settled, *_ = may_be = open_memberships(state.history._changes, state.log.commit_index)
        if node.core.node_id not in (*settled.voters, *may_be[-1].voters):
            raise Violation(f"only voters lead: {name} leads term {term} and is none")
        index = bisect_left(self._commit_terms, term)  # a late leader of an old term owes less
        if index:
            committed_term, _ = self.canon[index - 1]
            log = node.core._state.log
            if index > log.base.index and log.term_at(Index(index)) != committed_term:
                raise Violation(
                    f"leader completeness: {name} leads term {term} without entry {index} of term "
                    f"{committed_term}"
                )

    def _check_durable(self, node: RaftProcess, index: int, term: int) -> None:
        voters = node.core._state.members.voters
        names = [machine_name(voter) for voter in voters]
        holders = [name for name in names if self.durable[name].holds(index, term)]
        if len(holders) < majority(len(voters)):
            raise Violation(
                f"durable before ack: {node.host.name} commits entry {index} of term {term}, which "
                f"is on the disks of {holders} only; the voters are {names}"
            )

    def _members_changed(self, index: int, members: Membership) -> None:
        if self._member_changes:
            before = self._member_changes[-1][1]
            changed = set(before.voters) ^ set(members.voters)
            if len(changed) > 1:
                raise Violation(
                    f"one change at a time: {before.voters} becomes {members.voters} at entry "
                    f"{index}"
                )
        self._member_changes.append((index, members))

    def _term_before(self, node: RaftProcess, entry: Entry) -> int | None:
        log = node.core._state.log
        return log.term_at(entry.index - 1)  # type: ignore[arg-type]  # int arithmetic
