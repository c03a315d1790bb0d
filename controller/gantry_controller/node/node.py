"""``RaftNode``: one member of the quorum, alive on an event loop.

Everything happens in passes (``_pass``). An input (a proposal, a read, a peer's message, a tick,
the disk's confirmation) changes the core or is queued, and arms a pass, which runs once for all
inputs of that wake-up, in this order: what became durable, proposals and reads into the core;
messages out, entries to the disk thread, committed entries applied, callers answered.

The rule kept here: an error of the disk, the state machine or the core ends the node for good
(``on_fatal``), because memory may no longer be what is on disk. Which message leaves when is
decided in ``raft.after_persist``.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from gantry_protocol.process import log
from gantry_protocol.steps.ring import StepRing
from gantry_protocol.types import Index, NodeId, Term

from gantry_controller.node.contacts import contacts
from gantry_controller.node.disk import Disk
from gantry_controller.node.handover import Handovers, TransferDone
from gantry_controller.node.links import PeerLinks
from gantry_controller.node.machine import StateMachine
from gantry_controller.node.options import COMMAND_BYTES_MAX, NodeOptions
from gantry_controller.node.pending import (
    Done,
    ProposalDropped,
    Proposals,
    ReadDone,
    Reads,
)
from gantry_controller.node.snapshots import Snapshots
from gantry_controller.node.status import NodeStats, NodeStatus, PeerStatus, peer_statuses
from gantry_controller.node.ticker import TICK_S, Ticker, boottime_ns
from gantry_controller.node.traces import CoreEvents, new_core
from gantry_controller.node.traffic import SnapshotTraffic
from gantry_controller.raft.after_persist import AfterPersist
from gantry_controller.raft.core import RaftCore, SoftState
from gantry_controller.raft.digests import DigestPoint, Digests
from gantry_controller.raft.errors import (
    ChangeRefused,
    MessageError,
    NotLeader,
    Overloaded,
    ReadRedirect,
)
from gantry_controller.raft.members import Membership, decode_members
from gantry_controller.raft.messages import COMMAND, Entry, EntryKind, Message
from gantry_controller.raft.state import Role

_log = log.get("raft")


class RaftNode:
    """See the module.

    Args:
        options: who the peers are, times and bounds.
        machine: gets every committed command, in order, from the first one on at every start.
        on_fatal: called once when the node must not go on; by default the event loop's exception
            handler, which ends the process.

    Attributes:
        stats: plain counters.
        steps: the last steps of the core.
    """

    def __init__(
        self,
        options: NodeOptions,
        machine: StateMachine,
        *,
        on_fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.stats = NodeStats()
        self.steps = StepRing(options.recorded_bytes)
        self._options = options
        self._machine = machine
        self._on_fatal = on_fatal or self._tell_loop
        self._raft_config = options.raft()
        self._links = PeerLinks(
            options,
            receive=self._on_messages,
            receive_snapshot=lambda *part: self.traffic.on_frames(*part),  # noqa: PLW0108 - below
            process_gone=partial(self._hint, lambda core, node: core.leader_lost(node)),
            changed=partial(self._hint, lambda core, node: core.connection_changed(node)),
        )
        self._ticker = Ticker(self._arm)
        self._after_persist = AfterPersist()
        self._disk = Disk(options, durable=self._on_durable, failed=self._fail)
        self.disk_sync_times = self._disk.sync_times
        self.snapshots = Snapshots(options, machine, news=self._arm, failed=self._fail)
        self.traffic = SnapshotTraffic(
            options,
            self.snapshots,
            address_of=self._links.address_of,
            news=self._arm,
            failed=self._fail,
        )
        self._applied_listeners: list[Callable[[Index], None]] = []
        self._queued: list[tuple[bytes, Done]] = []
        self._queued_reads: list[object] = []
        self._queued_reads_anywhere: list[object] = []
        self._proposals = Proposals()
        self._reads = Reads()
        self._applied_term = Term(0)
        self._armed = False
        self._running = False  # takes part
        self._started = False  # has something to close
        self._contact: dict[NodeId, float] = {}
        self._role_listeners: list[Callable[[], None]] = []
        self._handovers = Handovers()
        self._followed: tuple[Membership, int] | None = None
        self._status = NodeStatus(Role.FOLLOWER, Term(0), None, False)
        self._log = _log.bind(node_id=options.node_id)
        self._core: RaftCore
        self._loop: asyncio.AbstractEventLoop

    # ---- what others may look at -----------------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """This node."""
        return self._options.node_id

    @property
    def status(self) -> NodeStatus:
        """Role, term, leader, serving; as of the last pass."""
        return self._status

    @property
    def role(self) -> Role:
        """The role in the present term."""
        return self._status.role

    @property
    def term(self) -> Term:
        """The newest term seen."""
        return self._status.term

    @property
    def leader_id(self) -> NodeId | None:
        """The leader, as far as this node knows."""
        return self._status.leader

    @property
    def is_serving_leader(self) -> bool:
        """Whether this node leads and has applied all that was committed before it did."""
        return self._status.serving

    @property
    def is_voter(self) -> bool:
        """Whether this node may vote; a node with a new disk may not yet (``raft.admission``)."""
        return self._running and self._core.is_voter

    @property
    def commit_index(self) -> Index:
        """Entries up to here will never change."""
        return self._core.commit_index if self._running else Index(0)

    @property
    def applied_index(self) -> Index:
        """Entries up to here are applied."""
        return self._core.applied_index if self._running else Index(0)

    @property
    def lease_is_on(self) -> bool:
        """Whether reads by lease are allowed in this quorum, as far as this node knows."""
        return self._running and self._core.lease_is_on

    @property
    def lease_is_valid(self) -> bool:
        """Whether this node leads and may answer reads by lease now."""
        return self._running and self._core.lease_is_valid(boottime_ns())

    @property
    def members(self) -> Membership:
        """The members, as far as this node's log says."""
        return self._core.members if self._running else Membership(())

    @property
    def contacts(self) -> dict[NodeId, str]:
        """The addresses of the members, as far as this node knows."""
        return contacts(self.members, self._options.peers, self._options.unnamed)

    @property
    def log_file_bytes(self) -> int:
        """Size of the log's files; 0 before the start."""
        return self._disk.log_bytes if self._started else 0

    @property
    def links(self) -> PeerLinks:
        """The connections to the peers, for their counters."""
        return self._links

    @property
    def wal_batches(self) -> int:
        """Syncs of the log so far."""
        return self._disk.batches

    @property
    def disk_hangs(self) -> bool:
        """Whether the disk has confirmed nothing for too long (``raft.own_disk``)."""
        return self._running and self._core.disk_hangs

    @property
    def disk_silent_s(self) -> float:
        """The time for which the disk has owed a confirmation without any; 0 if it owes none."""
        return self._core.disk_silent_ticks * TICK_S if self._running else 0.0

    @property
    def messages_held(self) -> AfterPersist:
        """The messages that wait for the disk."""
        return self._after_persist

    @property
    def digests(self) -> Digests:
        """The digests of this node's state, and how the others' compare."""
        return self._core.digests

    def peer_status(self) -> list[PeerStatus]:
        """All other members, ascending."""
        now = self._loop.time()
        return peer_statuses(
            self.members,
            self.node_id,
            self._core if self._running else None,
            self._links.connected,
            {node: now - heard_at for node, heard_at in self._contact.items()},
        )

    def add_role_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when role, term or leader change, or this node begins to serve."""
        self._role_listeners.append(listener)

    def add_applied_listener(self, listener: Callable[[Index], None]) -> None:
        """Call ``listener`` with the newest applied index, once per pass that applied any."""
        self._applied_listeners.append(listener)

    def say_layout(self, layout: int) -> None:
        """The layout of the digests to come."""
        self._core.say_layout(layout)

    def digest_taken(self, point: DigestPoint) -> None:
        """The state machine has digested its state; for an applied listener, once per point.

        Raises:
            StateDiffersError: a majority disagrees; raised into the pass, it ends the node.
        """
        if point.index > self._core.digests.newest.index:
            self._core.digest_taken(point)

    # ---- life ------------------------------------------------------------------------------------

    async def start(self) -> int:
        """Recover the log, listen, dial the peers, begin to tick; returns the peers' port.

        Raises:
            CorruptionError: the log is damaged.
            DataDirError: it was written by a newer program.
            PortInUseError: somebody listens there.
        """
        self._loop = asyncio.get_running_loop()
        found = await self._disk.open()
        try:
            snapshot = await self.snapshots.load(found.marker)
        except BaseException:
            await self._close_disk()
            raise
        self._core = new_core(
            self._options,
            self.steps,
            hard_state=found.hard_state,
            entries=found.entries,
            snapshot=snapshot,
            base=found.base,
            tracer=CoreEvents(self._log, self.stats, lambda: self.disk_silent_s),
        )
        self.snapshots.begin(self._core, found.entries)
        try:
            port = await self._links.start()
        except BaseException:
            await self._close_disk()
            raise
        self.traffic.begin(self._core)
        self._running = self._started = True
        self._log.info(
            "node started",
            port=port,
            term=self._core.term,
            last_index=self._core.last_index,
            voter=self._core.is_voter,
        )
        self._ticker.start(self._loop)
        self._arm()
        return port

    async def stop(self) -> None:
        """Stop taking part; callers that still wait are told so. Harmless when called again."""
        if self._running:
            self._end()
        if self._started:
            self._started = False
            await self._links.stop()
            await self.traffic.stop()
            await self._close_disk()

    async def _close_disk(self) -> None:
        self._after_persist.clear()
        await self.snapshots.stop()
        await self._disk.close()

    # ---- requests --------------------------------------------------------------------------------

    def propose(self, command: bytes, done: Done) -> None:
        """Order ``command``; ``done`` gets the result of apply, or an exception.

        ``done`` is called from the loop, never from within this call, exactly once: with the
        result, with ``NotLeader`` or ``Overloaded`` (not taken), or ``ProposalDropped`` (unknown).
        """
        assert len(command) <= COMMAND_BYTES_MAX, "the caller bounds its commands"
        if not self._running:
            asyncio.get_running_loop().call_soon(done, NotLeader(None))
            return
        if len(self._proposals) + len(self._queued) >= self._options.proposals_max:
            self.stats.proposals_refused += 1
            self._loop.call_soon(done, Overloaded(self._too_many()))
            return
        self._queued.append((command, done))
        self._arm()

    def read(self, done: ReadDone, *, anywhere: bool = False) -> None:
        """``done(None)`` once the local state is at least as new as this call, or with an error.

        The error is ``NotLeader`` or ``Overloaded``. Inside ``done`` the state may be read.

        Args:
            done: see above.
            anywhere: a follower answers, too; it may say ``ReadRedirect``.
        """
        if not self._running:
            asyncio.get_running_loop().call_soon(done, NotLeader(None))
            return
        if self._reads.open >= self._options.proposals_max:
            self._loop.call_soon(done, Overloaded(self._too_many()))
            return
        self._reads.open += 1
        (self._queued_reads_anywhere if anywhere else self._queued_reads).append(done)
        self._arm()

    def set_lease(self, done: Done, *, on: bool) -> None:
        """Allow reads by lease, or end that; ``done`` as for ``change``, None when it is so."""
        self.change(lambda core: core.set_lease(on=on), done)

    def _too_many(self) -> str:
        limit = self._options.proposals_max
        return f"{limit} requests already wait for a quorum; try again when it has answered."

    def change(self, begin: Callable[[RaftCore], Index], done: Done) -> None:
        """Begin a change; ``done`` gets its result (``Membership``, None) once it is committed.

        Or ``NotLeader`` or ``ChangeRefused`` (nothing was begun), or ``ProposalDropped`` (unknown).
        It is called from the loop, exactly once.
        """
        try:
            if not self._running:
                raise NotLeader(None)
            index = begin(self._core)
        except (NotLeader, ChangeRefused) as error:
            asyncio.get_running_loop().call_soon(done, error)
            return
        self._proposals.add(index, [done])
        self._arm()

    def transfer(self, target: NodeId | None, done: TransferDone) -> None:
        """Hand leadership over, to ``target`` or to the voter that is furthest.

        ``done`` gets the next leader, or ``NotLeader`` or ``ChangeRefused``, from the loop, within
        one or two election time-outs. Proposals wait meanwhile (``_take_proposals``).
        """
        try:
            if not self._running:
                raise NotLeader(None)
            chosen = self._core.transfer(target)
        except (NotLeader, ChangeRefused) as error:
            asyncio.get_running_loop().call_soon(done, error)
            return
        self._handovers.add(chosen, self._core.term, done)
        self._arm()

    # ---- inputs ----------------------------------------------------------------------------------

    def _on_messages(self, peer: NodeId, messages: list[Message]) -> None:
        """Raises MessageError: the connection it came from is closed."""
        self._contact[peer] = self._loop.time()
        try:
            for message in messages:
                if self._running:
                    self._core.step(message)
        except MessageError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was, the node must not go on
            self._fail(error)
        self._arm()

    def _on_durable(self, batch: int) -> None:
        self._after_persist.confirmed(batch)
        self._arm()

    def _hint(self, hint: Callable[[RaftCore, NodeId], None], peer: NodeId) -> None:
        if self._running:
            hint(self._core, peer)
            self._arm()

    # ---- the pass --------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Run one pass for everything that arrives before it."""
        if not self._armed and self._running:
            self._armed = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        self._armed = False
        if not self._running:
            return
        self.stats.passes += 1
        try:
            self._take_time()
            self._take_durable()
            self._take_proposals()
            self._take_reads()
            self._handle_ready()
        except Exception as error:  # noqa: BLE001 - whatever it was, the node must not go on
            self._fail(error)

    def _take_time(self) -> None:
        for _ in range(self._ticker.take()):
            self._core.tick()

    def _take_durable(self) -> None:
        marked = self._after_persist.report(self._core.persisted)
        if marked is not None:
            self.snapshots.durable(marked)

    def _take_proposals(self) -> None:
        if not self._queued or self._core.handing_over:
            return  # for one election time-out at most; then they are ordered, or refused
        queued, self._queued = self._queued, []
        callers = [done for _, done in queued]
        try:
            first = self._core.propose([command for command, _ in queued])
        except (NotLeader, Overloaded) as error:
            self.stats.proposals_refused += len(callers)
            for done in callers:
                done(error)
            return
        self.stats.proposals += len(callers)
        self._proposals.add(first, callers)

    def _take_reads(self) -> None:
        if self._queued_reads:
            contexts, self._queued_reads = self._queued_reads, []
            try:
                self._core.read_index(contexts)
            except NotLeader as error:
                self._reads.answer(contexts, error)
        if self._queued_reads_anywhere:
            contexts, self._queued_reads_anywhere = self._queued_reads_anywhere, []
            try:
                self._core.read_anywhere(contexts)
            except ReadRedirect as error:
                self._redirect(contexts, error)

    def _redirect(self, contexts: list[object], error: ReadRedirect) -> None:
        self.stats.reads_redirected += len(contexts)
        self._reads.answer(contexts, error)

    def _handle_ready(self) -> None:
        ready = self._core.ready(boottime_ns())
        leaving = self._after_persist.hand_out(ready)
        if leaving:
            self._links.send(leaving)  # before the disk: peers write while this node does
        self._disk.submit(ready)
        if ready.soft_state is not None:
            self._on_soft_state(ready.soft_state)
        if ready.reads_dropped:
            self._reads.answer(ready.reads_dropped, NotLeader(self._core.leader))
        if ready.reads_redirected:
            why = "since the leader did not answer in time or is far ahead"
            self._redirect(ready.reads_redirected, ReadRedirect(self._core.leader, why))
        self._apply(ready.committed)
        self.traffic.serve(self._core)
        self._reads.add(ready.reads)
        self._reads.serve(self._core.applied_index, self.stats.reads)
        self._update_status()
        self._handovers.look(self._core)
        self._follow_members()

    def _follow_members(self) -> None:
        core = self._core
        now = (core.members, len(core.peers))
        if now != self._followed:
            self._followed = now
            fellows = core.members.nodes if self.node_id in core.members.nodes else ()
            nodes = {*core.peers, *fellows} - {self.node_id}
            self._links.follow(sorted(nodes), self.contacts)

    def _apply(self, entries: list[Entry]) -> None:
        if not entries:
            return
        for entry in entries:
            result: Any = None
            if entry.kind is COMMAND:
                result = self._machine.apply(entry.index, entry.term, entry.command)
            elif entry.kind is EntryKind.MEMBERS:
                result = decode_members(entry.command)
            done = self._proposals.take(entry.index)
            if done is not None:
                done(result)
        last = entries[-1]
        self._applied_term = last.term
        self._core.applied(last.index)
        self.stats.entries_applied += len(entries)
        self.snapshots.applied(entries)
        for listener in self._applied_listeners:
            listener(last.index)
        if self._core.more_to_apply:
            self._arm()  # the loop gets its turn between two groups

    def _on_soft_state(self, soft: SoftState) -> None:
        if soft.role is not Role.LEADER or soft.term != self._status.term:
            self._proposals.drop(ProposalDropped())
            self._reads.drop(NotLeader(soft.leader))
        if soft.leader is not None and soft.leader != self._status.leader:
            self.stats.leader_changes += 1
        self._log.info("role", role=soft.role.value, term=soft.term, leader=soft.leader)

    def _update_status(self) -> None:
        core = self._core
        serving = core.role is Role.LEADER and self._applied_term == core.term
        status = NodeStatus(core.role, core.term, core.leader, serving)
        if status != self._status:
            self._status = status
            for listener in self._role_listeners:
                listener()

    # ---- the end ---------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """Nothing more may leave this node."""
        if not self._running:
            return
        self._log.error("node failed", reason=error)
        self._end()
        self._on_fatal(error)

    def _end(self) -> None:
        self._running = False
        self._ticker.stop()
        self.traffic.end()
        self._status = NodeStatus(Role.FOLLOWER, self._core.term, None, False)
        for listener in self._role_listeners:
            listener()
        queued, self._queued = self._queued, []
        for _, done in queued:
            done(NotLeader(None))
        # These may be in the logs of others already: the next leader may commit them.
        self._proposals.drop(ProposalDropped())
        self._handovers.drop(NotLeader(None))
        reads = self._queued_reads + self._queued_reads_anywhere
        self._queued_reads, self._queued_reads_anywhere = [], []
        self._reads.answer(reads, NotLeader(None))
        self._reads.drop(NotLeader(None))

    def _tell_loop(self, error: BaseException) -> None:
        # "future": the process may not take it for a socket's trouble.
        context = {"message": "the Raft node failed", "exception": error, "future": None}
        self._loop.call_exception_handler(context)
