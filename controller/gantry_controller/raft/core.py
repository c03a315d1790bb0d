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

``ready()`` may be called again while earlier batches are still being written; batches must become
durable, and be reported, in order. ``messages_after_persist`` of a Ready that has nothing to write
wait for the batch before it (``Ready.batch`` then names that one).
"""

from collections import deque

import msgspec
from gantry_protocol.types import Index, NodeId, Term

from gantry_controller.raft import (
    admission,
    changes,
    election,
    follower_reads,
    lease,
    priority,
    replication,
    snapshots,
    transfer,
)
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.digests import DigestPoint, Digests
from gantry_controller.raft.errors import MessageError, NotLeader, Overloaded
from gantry_controller.raft.members import Membership
from gantry_controller.raft.messages import (
    Append,
    AppendReply,
    Census,
    CensusReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Message,
    ReadIndexReply,
    ReadIndexRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from gantry_controller.raft.progress import Progress
from gantry_controller.raft.reads import ReadState
from gantry_controller.raft.snapshot import Base, Marker, SnapshotMeta
from gantry_controller.raft.state import RaftState, Randomness, Role, Tracer

InTerm = (
    Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | VoteReply
    | TimeoutNow
    | ReadIndexRequest
    | ReadIndexReply
)
"""Messages of a term: a higher one is adopted, a lower one refused, before anything else."""


class SoftState(msgspec.Struct, frozen=True):
    """What need not survive a crash but interests the node's surroundings."""

    role: Role
    term: Term
    leader: NodeId | None


class Ready(msgspec.Struct):
    """What a pass produced; see the module for the order in which to handle it.

    Attributes:
        batch: number of the batch that must be durable for ``messages_after_persist``.
        markers: to write first; each names a snapshot that is durable already.
        hard_state: to write, or None.
        entries: to write; the first may overwrite what was written at its index and behind it.
        messages_now: to send at once.
        messages_after_persist: to send when ``batch`` is durable.
        committed: to apply, in order.
        reads: may be answered once their index is applied.
        reads_dropped: contexts of reads this node cannot answer any more.
        reads_redirected: contexts of a follower's reads that the leader should answer.
        soft_state: the new role, term or leader, or None if all are as before.
    """

    batch: int
    markers: list[Marker]
    hard_state: HardState | None
    entries: list[Entry]
    messages_now: list[Message]
    messages_after_persist: list[Message]
    committed: list[Entry]
    reads: list[ReadState]
    reads_dropped: list[object]
    reads_redirected: list[object]
    soft_state: SoftState | None

    @property
    def must_persist(self) -> bool:
        """Whether there is anything to write."""
        return self.hard_state is not None or bool(self.entries)


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
        self._batch = 0
        self._under_way: deque[tuple[int, HardState]] = deque()
        self._last_hard = hard
        self._durable_hard = hard
        self._last_soft = self._soft_state()

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
        """Who leads the present term, as far as is known."""
        return self._state.leader

    @property
    def is_voter(self) -> bool:
        """Whether this node may vote (``admission``)."""
        return self._state.blank == 0

    @property
    def members(self) -> Membership:
        """Who takes part now, committed or not."""
        return self._state.members

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
        state = self._state
        if message.target != state.node_id or message.source == state.node_id:
            raise MessageError(
                f"a message from node {message.source} to node {message.target} reached node "
                f"{state.node_id} of {list(state.members.nodes)}"
            )
        match message:
            case Census():
                admission.on_census(state, message)
            case CensusReply():
                admission.on_census_reply(state, message)
            case VoteRequest():
                self._step_vote_request(message)
            case _:
                self._step_in_term(message)

    def persisted(self, batch: int) -> None:
        """``batch`` is durable. Batches must be reported in order."""
        expected, self._durable_hard = self._under_way.popleft()
        assert batch == expected, "batches become durable in order"
        state = self._state
        state.log.batch_persisted()
        durable = self._durable_hard
        if durable.voting and state.blank:
            admission.mark_is_durable(state)
        if state.role is Role.LEADER:
            replication.update_commit(state)
        elif (durable.term, durable.vote) == (state.term, state.node_id):
            election.own_vote_is_durable(state)

    def applied(self, index: Index) -> None:
        """Entries up to ``index`` have been applied."""
        log = self._state.log
        assert log.applied_index <= index <= log.handed_index
        log.applied_index = index

    # ---- snapshots (thesis §5) -------------------------------------------------------------------

    def snapshot_meta(self) -> SnapshotMeta:
        """What a snapshot of the state machine would cover now."""
        return snapshots.meta_now(self._state)

    def compact(self, snapshot: SnapshotMeta, margin_entries: int) -> list[Entry]:
        """``snapshot`` is durable: drop the log up to ``margin_entries`` before its end.

        Returns:
            The dropped entries, to be let go of in slices; none if a newer snapshot is known.
        """
        return snapshots.compact(self._state, snapshot, margin_entries)

    def wants_snapshot(self, index: Index, term: Term) -> bool:
        """Whether a snapshot that ends there would bring this node anything."""
        return snapshots.wants(self._state, index, term)

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
        entries = state.log.submit()
        markers, state.markers = state.markers, []
        hard_state = self._hard_state_to_write(writes=bool(entries or markers))
        now, state.now = state.now, []
        after_persist, state.after_persist = state.after_persist, []
        reads, state.reads_confirmed = state.reads_confirmed, []
        dropped, state.reads_dropped = state.reads_dropped, []
        redirected, state.reads_redirected = state.reads_redirected, []
        return Ready(
            batch=self._batch,
            markers=markers,
            hard_state=hard_state,
            entries=entries,
            messages_now=now,
            messages_after_persist=after_persist,
            committed=state.log.hand_out(state.config.apply_entries_max),
            reads=reads,
            reads_dropped=dropped,
            reads_redirected=redirected,
            soft_state=self._changed_soft_state(),
        )

    def _hard_state_to_write(self, *, writes: bool) -> HardState | None:
        """The hard state, if it changed or comes with more; commit alone is not worth a sync."""
        hard = self._state.hard_state
        last = self._last_hard
        changed = (hard.term, hard.vote, hard.voting) != (last.term, last.vote, last.voting)
        if not changed and not writes:
            return None
        self._batch += 1
        self._last_hard = hard
        self._under_way.append((self._batch, hard))
        self._state.log.batch_submitted()
        return hard

    def _soft_state(self) -> SoftState:
        return SoftState(self._state.role, self._state.term, self._state.leader)

    def _changed_soft_state(self) -> SoftState | None:
        soft = self._soft_state()
        if soft == self._last_soft:
            return None
        self._last_soft = soft
        return soft

    # ---- messages --------------------------------------------------------------------------------

    def _step_vote_request(self, request: VoteRequest) -> None:
        """Voting is refused by silence while a leader is heard, and by a blank node always."""
        state = self._state
        if state.blank != 0:
            return
        if request.term < state.term:
            reply = VoteReply(state.node_id, request.source, state.term, False, request.pre)
            state.now.append(reply)
            return
        if not request.transfer and (state.hears_leader or lease.promised(state)):
            return
        if request.pre:
            election.on_pre_vote_request(state, request)
            return
        if request.term > state.term:
            state.become_follower(request.term, None)
        election.on_vote_request(state, request)

    def _step_in_term(self, message: InTerm) -> None:
        """Adopt a higher term, refuse a lower one (thesis §3.3), then handle the message."""
        state = self._state
        if isinstance(message, VoteReply) and message.pre and message.granted:
            if message.term == state.term + 1:  # about a term that nobody has entered
                election.on_vote_reply(state, message)
            return
        if message.term > state.term:
            if self._is_answer_of_stranger(message):
                return
            state.become_follower(message.term, None)
        elif message.term < state.term:
            self._answer_old_term(message)
            return
        match message:
            case Append():
                self._follow(message.source)
                replication.on_append(state, message)
            case Heartbeat():
                self._follow(message.source)
                replication.on_heartbeat(state, message)
            case VoteReply():
                election.on_vote_reply(state, message)
            case TimeoutNow():
                self._follow(message.source)
                transfer.on_timeout_now(state)
            case ReadIndexRequest():
                follower_reads.on_request(state, message)
            case ReadIndexReply():
                follower_reads.on_reply(state, message)
            case _:
                self._step_reply(message)

    def _is_answer_of_stranger(self, message: Message) -> bool:
        """A server that was removed may be in any term; it must not depose a leader (§4.2.3).

        A *request* of a stranger is heard: its sender may lead a quorum that has grown since.
        """
        request = isinstance(message, (Append, Heartbeat, TimeoutNow))
        return not request and message.source not in self._state.members.nodes

    def _step_reply(self, message: AppendReply | HeartbeatReply) -> None:
        state = self._state
        if state.role is not Role.LEADER or message.source not in state.peers:
            return
        if isinstance(message, HeartbeatReply):
            replication.on_heartbeat_reply(state, message)
            return
        if message.index > state.log.last_index:
            raise MessageError(
                f"node {message.source} answers for entry {message.index} of term {message.term}, "
                f"but this leader has sent no more than {state.log.last_index}"
            )
        replication.on_append_reply(state, message)

    def _follow(self, leader: NodeId) -> None:
        """A leader of the present term speaks (thesis §3.4: candidates give way)."""
        state = self._state
        assert state.role is not Role.LEADER, "two leaders in one term"
        if state.role is not Role.FOLLOWER or state.leader is None:
            state.become_follower(state.term, leader)
        assert state.leader == leader, "two leaders in one term"
        state.restart_election_timer()
        state.promise_elapsed = 0

    def _answer_old_term(self, message: InTerm) -> None:
        """Tell a leader of an older term; with pre-vote it may not learn otherwise (etcd #8517).

        This node's term is higher although somebody leads an older one, so no vote will raise the
        others; the answer makes that leader step down and the election settles the term.
        """
        state = self._state
        if isinstance(message, (Append, Heartbeat)):
            state.now.append(
                HeartbeatReply(state.node_id, message.source, state.term, 0, state.blank)
            )
