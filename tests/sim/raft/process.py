"""One Raft node as a simulated process: the real core, the real log format, a simulated disk.

It drives what ``gantry_controller.node`` drives (one pass per wake-up, one batch on the disk at a
time) without asyncio, sockets and threads. Which message leaves when is the product's decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gantry_controller.raft.after_persist import AfterPersist
from gantry_controller.raft.codec import decode, encode
from gantry_controller.raft.core import RaftCore, Ready
from gantry_controller.wal.format import HEADER_SIZE, Head, Header, Write, encode_batch
from gantry_controller.wal.recovery import Recovered, recover
from gantry_protocol.types import Index, NodeId, Term
from sim.raft.shipments import Part, SimReceiver, SimSender
from sim.raft.snapshots import SimSnapshots, Stored, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_controller.raft.config import RaftConfig
    from gantry_controller.raft.messages import Entry, Message
    from sim.kernel.disk import Disk
    from sim.kernel.machine import Host

PADDING = bytes(1 << 20)  # a segment is zero-filled; the simulated file is only as long as used


@dataclass(frozen=True)
class ProcessKnobs:
    """How the driver around the core behaves; drawn per seed.

    Attributes:
        tick_us: length of a tick by the process's own clock.
        tick_jitter_us: each tick comes up to this late.
        turn_delay_us: greatest time between an input and the pass that handles it.
        use_codec: send bytes instead of values.
        hints: look whether the leader's process is gone when its connection closes.
        snapshot_entries: take a snapshot at, or soon behind, each multiple of this; 0: never.
        snapshot_margin: entries that a snapshot covers and the log keeps.
        chunk_bytes: greatest part of a snapshot that is sent at once.
    """

    tick_us: int = 20_000
    tick_jitter_us: int = 0
    turn_delay_us: int = 100
    use_codec: bool = False
    hints: bool = True
    snapshot_entries: int = 0
    snapshot_margin: int = 0
    chunk_bytes: int = 64


def chain(digest: bytes, encoded: bytes) -> bytes:
    """The state after an entry: a digest over all entries so far."""
    return blake2b(digest + encoded, digest_size=16).digest()


class Observer(Protocol):
    """Sees everything that may break a promise."""

    def traced(self, node: RaftProcess, event: str, facts: dict[str, object]) -> None:
        """The core reported an event."""

    def sent(self, node: RaftProcess, message: Message) -> None:
        """A message leaves."""

    def shipped(self, target: NodeId, index: Index, term: Term) -> None:
        """A part of a snapshot that ends there leaves for ``target``; its offer is one, too."""

    def stored(self, node: RaftProcess, entries: list[Entry]) -> None:
        """Entries are being written."""

    def committed(self, node: RaftProcess) -> None:
        """The node's commit index rose."""

    def looked(self, node: RaftProcess) -> None:
        """The node has handled something."""

    def stepped(self, node: RaftProcess) -> None:
        """The node has handled one input, all of it, and nothing else."""

    def applied(self, node: RaftProcess, entry: Entry) -> None:
        """The node applies an entry."""

    def state_changed(self, node: RaftProcess) -> None:
        """The node's state machine holds another state now."""

    def snapshot_taken(self, node: RaftProcess, stored: Stored) -> None:
        """The node has made a snapshot of its state."""


class SimWal:
    """The log on the simulated disk: one batch under way, what waits becomes the next."""

    def __init__(self, disk: Disk, durable: Callable[[int], None]) -> None:
        self._file = disk.file("wal")
        self._durable = durable
        self._waiting: list[tuple[int, Write]] = []
        self._busy = False
        self.found, self._head = self._recover()

    def _recover(self) -> tuple[Recovered, Head]:
        if not self._file.data:
            header = Header(sequence=1, size=HEADER_SIZE, chain=0, batch=1)
            self._file.append(header.encode())
            self._file.truncate(HEADER_SIZE)  # durable at once, as a rename makes a segment
        found = recover([(Path("wal-0000000001"), bytes(self._file.data) + PADDING)])
        assert found.head is not None
        if found.torn_bytes:
            self._file.truncate(found.head.offset)
        self.sync_recovered()
        return found, found.head

    def sync_recovered(self) -> None:
        """What was read may be in the page cache only: make it durable before it counts."""
        self._file.truncate(len(self._file.data))

    def submit(self, ticket: int, write: Write) -> None:
        """Queue a write."""
        self._waiting.append((ticket, write))
        self._begin()

    def _begin(self) -> None:
        if self._busy or not self._waiting:
            return
        self._busy = True
        work, self._waiting = self._waiting, []
        offset = self._head.offset
        self._file.write(offset, encode_batch(self._head, [write for _, write in work]))
        self._file.sync(lambda: self._done(work[-1][0]))

    def _done(self, ticket: int) -> None:
        self._busy = False
        self._durable(ticket)
        self._begin()


class RaftProcess:
    """The actor."""

    def __init__(
        self, host: Host, config: RaftConfig, knobs: ProcessKnobs, observer: Observer
    ) -> None:
        self.host = host
        self.knobs = knobs
        self.observer = observer
        self.wal = SimWal(host.disk, self.on_durable)
        stored = load(host.disk, self.wal.found.marker)
        self.snapshots = SimSnapshots(self, stored)
        self.sender = SimSender(self)
        self.receiver = SimReceiver(self)
        self.core = RaftCore(
            config,
            host.rng,
            hard_state=self.wal.found.hard_state,
            entries=self.wal.found.entries,
            snapshot=None if stored is None else stored.meta,
            base=self.wal.found.base,
            tracer=lambda event, facts: observer.traced(self, event, facts),
        )
        self.applied_index = 0 if stored is None else stored.meta.index
        self.digest = b"" if stored is None else stored.digest
        self.commit_seen = 0
        self.after_persist = AfterPersist()
        self.proposals: dict[int, tuple[Term, Callable[[], None]]] = {}
        self.reads: list[tuple[Index, list[object]]] = []
        self.armed = False

    # ---- actor -----------------------------------------------------------------------------------

    def start(self) -> None:
        self._schedule_tick()
        self.arm()

    def receive(self, source: str, message: object) -> None:
        if isinstance(message, Part):
            end = self.receiver if message.forth else self.sender
            end.receive(message)
            self.note_commit()
            self.arm()
            return
        decoded = decode(message) if isinstance(message, bytes) else message
        self.core.step(decoded)  # type: ignore[arg-type]  # only messages are sent
        self.note_commit()
        self.arm()

    def peer_closed(self, name: str) -> None:
        if self.knobs.hints:
            self.host.probe(name, lambda word: self._on_probe(name, word))

    # ---- client side -----------------------------------------------------------------------------

    def propose(self, commands: list[bytes], done: Callable[[Index], None]) -> None:
        """Raises NotLeader or Overloaded; ``done(index)`` when the last one is applied here."""
        first = self.core.propose(commands)
        last = Index(first + len(commands) - 1)
        self.proposals[last] = (self.core.term, lambda: done(last))
        self.arm()

    def read(self, done: Callable[[], None]) -> None:
        """Raises NotLeader; ``done()`` when the state machine may be read."""
        self.core.read_anywhere([done])
        self.arm()

    @property
    def clock_ns(self) -> int:
        """The clock of leases: it goes on while the process is stopped."""
        return self.host.clock_us * 1000

    # ---- driver ----------------------------------------------------------------------------------

    def _schedule_tick(self) -> None:
        late_us = self.host.rng.randint(0, self.knobs.tick_jitter_us)
        self.host.after(self.knobs.tick_us + late_us, self._tick)

    def _tick(self) -> None:
        self._schedule_tick()
        self.core.tick()
        self.arm()

    def _on_probe(self, name: str, word: str) -> None:
        if word == "refused":
            self.core.leader_lost(node_id(name))
            self.arm()

    def arm(self) -> None:
        """An input was handled: run a pass soon; what arrives before it is in the same."""
        self.observer.stepped(self)
        if not self.armed:
            self.armed = True
            self.host.after(self.host.rng.randint(0, self.knobs.turn_delay_us), self.turn)

    def turn(self) -> None:
        """One pass."""
        self.armed = False
        marked = self.after_persist.report(self.core.persisted)
        if marked is not None:
            self.snapshots.durable(marked)
        ready = self.core.ready(self.clock_ns)
        self.send(self.after_persist.hand_out(ready))
        if ready.must_persist:
            self.write(ready)
        self.note_commit()
        self.apply(ready.committed)
        for read in ready.reads:
            self.host.world.count(f"read.{read.mode.value}")
            self.reads.append((read.index, read.contexts))
        if ready.reads_redirected:
            self.host.world.count("read.redirected")
        self.answer_reads()
        self.snapshots.take_when_due()
        self.sender.serve(self.core.awaiting_snapshot)

    def write(self, ready: Ready) -> None:
        """Give a batch to the disk."""
        assert ready.hard_state is not None
        self.observer.stored(self, ready.entries)
        self.wal.submit(ready.batch, Write(ready.entries, ready.hard_state, ready.markers))

    def on_durable(self, batch: int) -> None:
        """The disk has everything up to ``batch``."""
        self.after_persist.confirmed(batch)
        self.arm()

    def send(self, messages: list[Message]) -> None:
        """Hand messages to the network."""
        for message in messages:
            self.observer.sent(self, message)
            packed = encode(message) if self.knobs.use_codec else message
            self.host.send(machine_name(message.target), packed)

    def note_commit(self) -> None:
        """Report a commit index that rose."""
        self.observer.looked(self)
        if self.core.commit_index > self.commit_seen:
            self.commit_seen = self.core.commit_index
            self.observer.committed(self)

    def apply(self, entries: list[Entry]) -> None:
        """Apply to the state machine, which is the digest of all entries."""
        for entry in entries:
            self.observer.applied(self, entry)
            self.applied_index = entry.index
            self.digest = chain(self.digest, entry.encoded)
            self.observer.state_changed(self)
            proposal = self.proposals.pop(entry.index, None)
            if proposal is not None and proposal[0] == entry.term:
                proposal[1]()
        if entries:
            self.core.applied(entries[-1].index)
            self.arm()

    def restored(self, stored: Stored) -> None:
        """A snapshot has replaced the state machine's state."""
        self.applied_index = stored.meta.index
        self.digest = stored.digest
        for index in [index for index in self.proposals if index <= stored.meta.index]:
            del self.proposals[index]  # whether it was this proposal that took effect is unknown
        self.observer.state_changed(self)
        self.note_commit()
        self.arm()

    def answer_reads(self) -> None:
        """Answer the reads whose index is applied."""
        while self.reads and self.reads[0][0] <= self.applied_index:
            for done in self.reads.pop(0)[1]:
                done()  # type: ignore[operator]  # contexts are callbacks here


def machine_name(node: NodeId) -> str:
    """The machine that runs ``node``."""
    return f"n{node}"


def node_id(name: str) -> NodeId:
    """The node that the machine ``name`` runs."""
    return NodeId(int(name[1:]))
