"""``RaftNode``: drives the core with time, sockets and a disk.

One pass per wake-up of the event loop: whatever arrived (proposals, reads, peers' messages, durable
batches, ticks) is handled together, so that one batch goes to the disk and one write to each
socket however many requests there are (etcd batches the same way; thesis §10.2.1).

Nothing here decides anything: decisions are the core's. What must hold here is the order

    messages_now → disk → persisted → messages_after_persist → apply → answers

and that a disk that fails ends the process.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec
from gantry_protocol.errors import GantryError
from gantry_protocol.process import log
from gantry_protocol.types import Index, NodeId, Term

from gantry_controller.node.links import PeerLinks
from gantry_controller.node.options import TICK_MS, NodeOptions
from gantry_controller.node.waiting import (
    PROPOSALS_MAX,
    Done,
    Proposals,
    ReadDone,
    Reads,
    finish,
)
from gantry_controller.raft.codec import decode, encode
from gantry_controller.raft.core import RaftCore, Ready
from gantry_controller.raft.errors import NotLeader, Overloaded
from gantry_controller.raft.messages import Entry, EntryKind, Message
from gantry_controller.raft.state import Role
from gantry_controller.wal.format import Write
from gantry_controller.wal.wal import Wal
from gantry_controller.wal.writer import WalWriter

RoleListener = Callable[[], None]

_log = log.get("raft")


class StateMachine(Protocol):
    """What the log drives; must give the same results on every node."""

    def apply(self, index: Index, term: Term, command: bytes) -> object:
        """Apply one command and return what its proposer is answered."""


class NodeStats(msgspec.Struct):
    """Counters, read by metrics."""

    proposals: int = 0
    proposals_refused: int = 0
    reads: int = 0
    passes: int = 0


class PeerStatus(msgspec.Struct, frozen=True):
    """What is known of a peer; ``match_index`` on the leader only."""

    node_id: NodeId
    match_index: Index | None
    last_contact_ms: int | None


class DiskError(GantryError):
    """The log could not be written; the process must end, since what is durable is unknown."""


class RaftNode:
    """One node of the quorum.

    Args:
        options: who it is.
        machine: what committed commands are applied to.
    """

    def __init__(self, options: NodeOptions, machine: StateMachine) -> None:
        self.stats = NodeStats()
        self._options = options
        self._machine = machine
        self._links = PeerLinks(options, received=self._on_messages, lost=self._on_peer_lost)
        self._proposed: list[tuple[bytes, Done]] = []
        self._asked: list[object] = []
        self._proposals = Proposals()
        self._reads = Reads()
        self._held: deque[tuple[int, list[Message]]] = deque()
        self._durable_batch = 0
        self._applied_term = Term(0)
        self._contact: dict[NodeId, float] = {}
        self._role_listeners: list[RoleListener] = []
        self._applied_listeners: list[Callable[[Index], None]] = []
        self._armed = False
        self._stopped = False
        self._ticker: asyncio.TimerHandle | None = None
        self._core: RaftCore
        self._loop: asyncio.AbstractEventLoop
        self._writer: WalWriter

    # ---- life ------------------------------------------------------------------------------------

    async def start(self) -> int:
        """Recover the log, listen, and take part; returns the port for peers.

        Raises:
            CorruptionError: the log is damaged; nothing was changed.
            DataDirError: the log is of a newer version.
            PortInUseError: somebody listens there.
        """
        self._loop = asyncio.get_running_loop()
        wal, found = await asyncio.to_thread(Wal.open, self._options.directory)
        self._core = RaftCore(
            self._options.raft,
            random.Random(),  # noqa: S311 - spreads time-outs, guards nothing
            hard_state=found.hard_state,
            entries=found.entries,
            tracer=lambda event, facts: _log.debug(event, **facts),
        )
        self._writer = WalWriter(wal, durable=self._durable_in_thread, failed=self._fail_in_thread)
        self._writer.start()
        try:
            port = await self._links.start()
        except BaseException:
            await asyncio.to_thread(self._writer.stop)
            raise
        _log.info("raft node started", node=self.node_id, last_index=self._core.last_index)
        self._tick()
        return port

    async def stop(self) -> None:
        """Leave the network and close the log; what waits is told that its outcome is unknown."""
        self._stopped = True
        if self._ticker is not None:
            self._ticker.cancel()
        await self._links.stop()
        await asyncio.to_thread(self._writer.stop)
        error = NotLeader(None)
        for _, done in self._proposed:
            done(error)
        self._proposals.drop_all(error)
        self._reads.drop_all(error)
        finish(self._asked, error)

    # ---- what it knows ---------------------------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """This node."""
        return self._options.node_id

    @property
    def leader_id(self) -> NodeId | None:
        """Who leads, as far as this node knows."""
        return self._core.leader

    @property
    def term(self) -> Term:
        """The newest Raft term seen."""
        return self._core.term

    @property
    def role(self) -> Role:
        """The role in that term."""
        return self._core.role

    @property
    def commit_index(self) -> Index:
        """Entries up to here will never change."""
        return self._core.commit_index

    @property
    def applied_index(self) -> Index:
        """Entries up to here are in the state machine."""
        return self._core.applied_index

    @property
    def is_serving_leader(self) -> bool:
        """Whether this node leads and has applied all that was committed before it did."""
        return self._core.role is Role.LEADER and self._applied_term == self._core.term

    @property
    def links(self) -> PeerLinks:
        """The connections to the peers, for their counters."""
        return self._links

    @property
    def wal_batches(self) -> int:
        """Syncs of the log so far."""
        return self._writer.batches

    def peer_status(self) -> list[PeerStatus]:
        """All other members, ascending."""
        now = self._loop.time()
        progress = self._core.peers
        return [
            PeerStatus(
                node,
                progress[node].match_index if node in progress else None,
                round((now - self._contact[node]) * 1000) if node in self._contact else None,
            )
            for node in sorted(self._options.peers)
            if node != self.node_id
        ]

    def add_role_listener(self, listener: RoleListener) -> None:
        """Call ``listener`` when role, term or leader change, or this node begins to serve."""
        self._role_listeners.append(listener)

    def add_applied_listener(self, listener: Callable[[Index], None]) -> None:
        """Call ``listener`` with the newest applied index, once per pass."""
        self._applied_listeners.append(listener)

    # ---- requests --------------------------------------------------------------------------------

    def propose(self, command: bytes, done: Done) -> None:
        """Order ``command``; ``done`` gets the result of applying it, or an exception.

        The exceptions are ``NotLeader`` (nothing was ordered), ``Overloaded`` (likewise) and
        ``ProposalDropped`` (it will never take effect). ``done`` may come late or, while there is
        no quorum, not at all: deadlines are the caller's.
        """
        if len(self._proposed) + len(self._proposals) >= PROPOSALS_MAX:
            self.stats.proposals_refused += 1
            done(Overloaded(f"{PROPOSALS_MAX} commands already wait for the quorum."))
            return
        self.stats.proposals += 1
        self._proposed.append((command, done))
        self._arm()

    def read(self, done: ReadDone) -> None:
        """``done(None)`` once the local state is at least as new as this call (ReadIndex).

        Gets ``NotLeader`` if this node cannot confirm that.
        """
        self.stats.reads += 1
        self._asked.append(done)
        self._arm()

    # ---- inputs ----------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_MS / 1000, self._tick)
        self._core.tick()
        self._arm()

    def _on_messages(self, peer: NodeId, bodies: list[bytes]) -> None:
        self._contact[peer] = self._loop.time()
        for body in bodies:
            self._core.step(decode(body))
        self._arm()

    def _on_peer_lost(self, node: NodeId) -> None:
        self._core.leader_lost(node)
        self._arm()

    def _durable_in_thread(self, batch: int) -> None:
        self._call_soon(self._on_durable, batch)

    def _fail_in_thread(self, error: OSError) -> None:
        self._call_soon(self._on_disk_failure, error)

    def _call_soon(self, callback: Callable[..., None], argument: object) -> None:
        """From the log's thread; a loop that has ended needs no word any more."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, argument)

    def _on_durable(self, batch: int) -> None:
        while self._durable_batch < batch:
            self._durable_batch += 1
            self._core.persisted(self._durable_batch)
        self._release()
        self._arm()

    def _on_disk_failure(self, error: OSError) -> None:
        raise DiskError(
            f"Writing the log in {self._options.directory} failed ({error.strerror or error}); "
            "what is durable is unknown, so this node stops; replace the disk and start it again."
        ) from error

    # ---- the pass --------------------------------------------------------------------------------

    def _arm(self) -> None:
        if not self._armed and not self._stopped:
            self._armed = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        self._armed = False
        if self._stopped:
            return
        self.stats.passes += 1
        self._hand_in()
        ready = self._core.ready()
        self._send(ready.messages_now)
        self._persist(ready)
        for read in ready.reads:
            self._reads.add(read.index, read.contexts)
        if ready.reads_dropped:
            finish(ready.reads_dropped, NotLeader(self._core.leader))
        served = self.is_serving_leader
        self._apply(ready.committed)
        self._reads.answer(self._core.applied_index)
        if ready.soft_state is not None or served != self.is_serving_leader:
            self._tell_role()

    def _hand_in(self) -> None:
        """Give the core what was asked since the last pass."""
        if self._proposed:
            proposed, self._proposed = self._proposed, []
            try:
                first = self._core.propose([command for command, _ in proposed])
            except (NotLeader, Overloaded) as error:
                self.stats.proposals_refused += len(proposed)
                for _, done in proposed:
                    done(error)
            else:
                term = self._core.term
                for offset, (_, done) in enumerate(proposed):
                    self._proposals.add(Index(first + offset), term, done)
        if self._asked:
            asked, self._asked = self._asked, []
            try:
                self._core.read_index(asked)
            except NotLeader as error:
                finish(asked, error)

    def _persist(self, ready: Ready) -> None:
        """Write, and hold back what peers may only learn once it is durable."""
        if ready.messages_after_persist:
            self._held.append((ready.batch, ready.messages_after_persist))
        if ready.must_persist:
            assert ready.hard_state is not None
            self._writer.submit(ready.batch, Write(ready.entries, ready.hard_state))
        self._release()

    def _release(self) -> None:
        while self._held and self._held[0][0] <= self._durable_batch:
            self._send(self._held.popleft()[1])

    def _send(self, messages: list[Message]) -> None:
        by_target: dict[NodeId, list[bytes]] = {}
        for message in messages:
            by_target.setdefault(message.target, []).append(encode(message))
        for target, bodies in by_target.items():
            self._links.send(target, bodies)

    def _apply(self, committed: list[Entry]) -> None:
        if not committed:
            return
        for entry in committed:
            result = None
            if entry.kind is EntryKind.COMMAND:
                result = self._machine.apply(entry.index, entry.term, entry.command)
            self._applied_term = entry.term
            self._proposals.applied(entry.index, entry.term, result)
        newest = committed[-1].index
        self._core.applied(newest)
        for listener in self._applied_listeners:
            listener(newest)
        self._arm()

    def _tell_role(self) -> None:
        _log.info(
            "role",
            node=self.node_id,
            role=self._core.role.value,
            term=self._core.term,
            leader=self._core.leader,
            serving=self.is_serving_leader,
        )
        for listener in self._role_listeners:
            listener()
