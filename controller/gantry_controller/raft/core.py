"""``RaftCore``: the interface of the consensus core, in the shape of etcd's Ready.

A driver does this, forever:

    core.tick() / core.step(message) / core.propose(commands) / core.read_index(contexts)
    ready = core.ready(now_ns)
    send ready.messages_now
    write ready.markers, ready.entries and ready.hard_state; when durable, and in this order:
        core.persisted(ready.batch); send ready.messages_after_persist
    apply ready.committed; core.applied(index)
    give every peer of core.awaiting_snapshot the newest snapshot; core.snapshot_delivered(...)
    answer ready.reads once their index is applied; refuse ready.reads_dropped; send whoever waits
    for ready.reads_redirected to the leader

What a node knows is in one place (``state.RaftState``), and here is what its owner may ask of it.
What a peer's message may do is in ``stepping``, what leaves and what of it is durable in ``ready``.

``ready()`` may be called again while earlier batches are still being written; batches must become
durable, and be reported, in order. ``messages_after_persist`` of a Ready that has nothing to write
wait for the batch before it (``Ready.batch`` then names that one).
"""

from gantry_protocol.types import Index, NodeId, Term

from gantry_controller.raft import (
    admission,
    changes,
    election,
    follower_reads,
    lease,
    own_disk,
    priority,
    replication,
    snapshots,
    stepping,
    transfer,
)
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.digests import DigestPoint, Digests
from gantry_controller.raft.errors import NotLeader, Overloaded
from gantry_controller.raft.members import Membership
from gantry_controller.raft.messages import Entry, EntryKind, HardState, Message
from gantry_controller.raft.progress import Progress
from gantry_controller.raft.ready import Outbox, Ready, SoftState
from gantry_controller.raft.snapshot import Base, SnapshotMeta
from gantry_controller.raft.state import RaftState, Randomness, Role, Tracer

__all__ = ["RaftCore", "Ready", "SoftState"]


class RaftCore:
    """One node of a quorum. Not thread-safe; every call returns at once."""

    def __init__(
        self,
        config: RaftConfig,
        rng: Randomness,
        *,
        hard_state: HardState | None = None,
        entries: list[Entry] | None = None,
        snapshot: SnapshotMeta | None = None,
        base: Base = Base(),  # noqa: B008 - a frozen value
        tracer: Tracer | None = None,
    ) -> None:
        """Start as a follower with what recovery found.

        Args:
            config: who takes part and within which bounds.
            rng: seeds time-outs and nonces; the only chance there is.
            hard_state: None for an empty disk.
            entries: the recovered log behind ``base``, all of it durable; taken over, not copied.
            snapshot: the newest one; the state machine holds exactly what it covers.
            base: where the log begins; at or before the snapshot.
            tracer: gets each event's name and facts.
        """
        hard = HardState() if hard_state is None else hard_state
        self._state = RaftState(
            config, rng, hard, entries or [], tracer, snapshot=snapshot, base=base
        )
        self._outbox = Outbox(self._state, hard)

    # ---- what a driver may look at ---------------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """This node."""
        return self._state.node_id

    @property
    def role(self) -> Role:
        """The role in the present term."""
        return self._state.role

    @property
    def term(self) -> Term:
        """The newest term seen."""
        return self._state.term

    @property
    def leader(self) -> NodeId | None:
        """The leader of the present term, as far as is known."""
        return self._state.leader

    @property
    def is_voter(self) -> bool:
        """Whether this node may vote (``admission``)."""
        return self._state.blank == 0

    @property
    def members(self) -> Membership:
        """The members now, committed or not."""
        return self._state.members

    @property
    def disk_hangs(self) -> bool:
        """Whether the own disk has been silent for too long (``own_disk``)."""
        return self._state.disk_hangs

    @property
    def disk_silent_ticks(self) -> int:
        """The time for which the own disk has owed a confirmation; 0 if it owes none."""
        return self._state.disk_silent_ticks

    @property
    def handing_over(self) -> bool:
        """Whether proposals are held back because leadership is being handed over."""
        return self._state.transfer is not None

    @property
    def commit_index(self) -> Index:
        """Entries up to here will never change."""
        return self._state.log.commit_index

    @property
    def applied_index(self) -> Index:
        """Entries up to here have been reported as applied."""
        return self._state.log.applied_index

    @property
    def more_to_apply(self) -> bool:
        """Whether the next ``ready()`` has committed entries."""
        return self._state.log.has_more_to_hand_out

    @property
    def last_index(self) -> Index:
        """End of the log."""
        return self._state.log.last_index

    @property
    def term_is_committed(self) -> bool:
        """Whether an entry of the present term is committed."""
        return self._state.term_is_committed

    @property
    def lease_is_on(self) -> bool:
        """Whether reads by lease are allowed, by the newest committed setting."""
        return lease.is_on(self._state)

    def lease_is_valid(self, now_ns: int) -> bool:
        """Whether this node leads and may answer reads by lease at ``now_ns`` (see ``ready``)."""
        return lease.is_valid(self._state, now_ns)

    @property
    def peers(self) -> dict[NodeId, Progress]:
        """The leader's view of the others; empty on a node that does not lead."""
        return self._state.peers

    def counted(self, node: NodeId) -> bool | None:
        """Whether the word of ``node`` counts; None if this leader does not hear it, or none leads.

        Who is silent may have lost its disk since: it says so with its next answer (``admission``).
        """
        progress = self._state.peers.get(node)
        if progress is None or (progress.counts and not changes.answers(self._state, progress)):
            return None
        return progress.counts

    @property
    def snapshot(self) -> SnapshotMeta | None:
        """The newest durable one of this node."""
        return self._state.snapshot

    @property
    def awaiting_snapshot(self) -> list[NodeId]:
        """Peers that get no entries from this leader until they hold a snapshot."""
        state = self._state
        return [
            node
            for node, progress in state.peers.items()
            if replication.needs_snapshot(state, progress)
        ]

    @property
    def digests(self) -> Digests:
        """The digests of this node's state, and how the others' compare."""
        return self._state.digests

    # ---- inputs ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """One unit of time has passed."""
        state = self._state
        state.patience.tick()
        own_disk.tick(state)
        if state.role is Role.LEADER:
            replication.tick_leader(state)
            election.tick_leader(state)
            transfer.tick(state)
            priority.tick(state)
        else:
            admission.tick(state)
            follower_reads.tick(state)
            election.tick(state)

    def leader_lost(self, node: NodeId) -> None:
        """Hint: the process of ``node`` has closed its connections and refuses new ones."""
        election.leader_lost(self._state, node)

    def connection_changed(self, node: NodeId) -> None:
        """The connection of ``node`` began or ended: another life of it may be next to speak."""
        changes.connection_changed(self._state, node)

    def propose(self, commands: list[bytes]) -> Index:
        """Append commands to the log.

        Returns:
            The index of the first; the others follow it. They take effect if and when an entry
            with this index *and the present term* is committed.

        Raises:
            NotLeader: with the leader, if one is known.
            Overloaded: too many bytes wait for a quorum, or leadership is being handed over;
                nothing was appended.
        """
        state = self._state
        if state.role is not Role.LEADER:
            raise NotLeader(state.leader)
        if state.transfer is not None:
            raise Overloaded(
                f"Leadership is being handed over to node {state.transfer.target}; try again in a "
                "moment."
            )
        size = sum(map(len, commands))
        limit = state.config.uncommitted_bytes_max
        if state.uncommitted_bytes and state.uncommitted_bytes + size > limit:
            raise Overloaded(
                f"{state.uncommitted_bytes} bytes of commands already wait for a quorum (limit "
                f"{limit}); try again when it has answered."
            )
        return state.append_own(EntryKind.COMMAND, commands)

    def read_index(self, contexts: list[object]) -> None:
        """Begin linearizable reads; each context comes back in ``reads`` or ``reads_dropped``.

        Raises:
            NotLeader: with the leader, if one is known.
        """
        state = self._state
        if state.role is not Role.LEADER:
            raise NotLeader(state.leader)
        state.reads.contexts.extend(contexts)

    def read_anywhere(self, contexts: list[object]) -> None:
        """As ``read_index``, but a follower serves them, too, once it has asked the leader.

        A follower's reads may also come back in ``reads_redirected``.

        Raises:
            ReadRedirect: the leader should be asked, not this node.
        """
        if self._state.leads:
            self.read_index(contexts)
        else:
            follower_reads.ask(self._state, contexts)

    def set_lease(self, *, on: bool) -> Index:
        """Append the setting that allows reads by lease, or ends that; may raise ``NotLeader``."""
        if not self._state.leads:
            raise NotLeader(self._state.leader)
        return lease.append_setting(self._state, on=on)

    def barrier(self) -> Index:
        """Append an entry that applies as nothing; may raise ``NotLeader``."""
        if not self._state.leads:
            raise NotLeader(self._state.leader)
        return self._state.append_own(EntryKind.NOOP, [b""])

    def transfer(self, target: NodeId | None) -> NodeId:
        """See ``transfer.begin``; it ends within one election time-out, either way."""
        return transfer.begin(self._state, target)

    def add_learner(self, node: NodeId, address: str) -> Index:
        """See ``changes``; the change is complete when the entry is committed."""
        return changes.add_learner(self._state, node, address)

    def promote(self, node: NodeId) -> Index:
        """See ``changes``; the change is complete when the entry is committed."""
        return changes.promote(self._state, node)

    def remove(self, node: NodeId) -> Index:
        """See ``changes``; the change is complete when the entry is committed."""
        return changes.remove(self._state, node)

    def step(self, message: Message) -> None:
        """Take a peer's message; a leader or candidate this node does not know yet may be one.

        Raises:
            MessageError: no honest peer of this quorum sends that; nothing was changed.
            LogLostError: the own disk has lost what this node acknowledged.
            StateDiffersError: a majority disagrees with this node's state.
        """
        stepping.step(self._state, message)

    def persisted(self, batch: int) -> None:
        """``batch`` is durable. Batches must be reported in order."""
        self._outbox.persisted(batch)

    def applied(self, index: Index) -> None:
        """Entries up to ``index`` have been applied."""
        log = self._state.log
        assert log.applied_index <= index <= log.handed_index
        log.applied_index = index

    # ---- snapshots (thesis §5) -------------------------------------------------------------------

    def snapshot_meta(self) -> SnapshotMeta:
        """The entries that a snapshot of the state machine would cover now."""
        return snapshots.meta_now(self._state)

    def compact(self, snapshot: SnapshotMeta, margin_entries: int) -> list[Entry]:
        """``snapshot`` is durable: drop the log up to ``margin_entries`` before its end.

        Returns:
            The dropped entries, to be let go of in slices; none if a newer snapshot is known.
        """
        return snapshots.compact(self._state, snapshot, margin_entries)

    def snapshot_offered(self, index: Index, term: Term) -> bool:
        """Whether a snapshot that ends there would bring this node any entries.

        If it holds them, it takes note that they are committed; the next ``ready()`` may say so.
        """
        return snapshots.offered(self._state, index, term)

    def install(self, snapshot: SnapshotMeta) -> list[Entry] | None:
        """A snapshot of another node is durable here: begin the log behind it.

        Returns:
            None if this node needs it no more, and nothing changed. Else the entries that are void;
            the state machine must be replaced by the snapshot before the next ``ready()``.
        """
        return snapshots.install(self._state, snapshot)

    def snapshot_delivered(self, node: NodeId, holds: Index) -> None:
        """``node`` says that it holds committed entries up to ``holds``: try appends behind it.

        It only tells where to look; what the node holds counts when it answers the append.
        """
        snapshots.delivered(self._state, node, holds)

    def say_layout(self, layout: int) -> None:
        """The layout of the digests to come (``digests``)."""
        self._state.digests.say_layout(layout)

    def digest_taken(self, point: DigestPoint) -> None:
        """The driver's state machine has digested its state after ``point.index``.

        Raises:
            StateDiffersError: a majority has found another digest there; the node must not serve.
        """
        self._state.digests.take(point, self._state.members)

    # ---- output ----------------------------------------------------------------------------------

    def ready(self, now_ns: int | None = None) -> Ready:
        """Everything that has to happen now; may be empty.

        Args:
            now_ns: time by a clock that never goes back and goes on while the machine sleeps, taken
                after the last input and right before this call; None: there is none, so no leases.
        """
        state = self._state
        if state.role is Role.LEADER:
            lease.renew(state, now_ns)
            replication.begin_reads(state, now_ns)
            replication.send_all(state)
        else:
            follower_reads.send(state)
        return self._outbox.take()
