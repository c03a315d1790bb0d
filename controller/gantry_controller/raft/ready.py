"""The output of the core, and what of it is durable: ``Ready``, and batches under way.

Several batches may be on their way to the disk at once. They become durable in the order in which
they were handed out, and only then they count: the log learns how far it is stable, a candidate
that its own vote is, a blank node that it is blank no more. A batch that carries no change of term,
vote or mark and nothing of the log is not made, since the commit index alone is not worth a sync.
"""

from collections import deque

import msgspec
from gantry_protocol.types import NodeId, Term

from gantry_controller.raft import admission, election, own_disk, replication
from gantry_controller.raft.messages import Entry, HardState, Message
from gantry_controller.raft.reads import ReadState
from gantry_controller.raft.snapshot import Marker
from gantry_controller.raft.state import RaftState, Role


class SoftState(msgspec.Struct, frozen=True):
    """State that need not survive a crash but interests the node's surroundings."""

    role: Role
    term: Term
    leader: NodeId | None


class Ready(msgspec.Struct):
    """The products of a pass; see ``core`` for the order in which to handle them.

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


class Outbox:
    """Collects what a pass produced, and numbers what must become durable; see the module."""

    def __init__(self, state: RaftState, durable: HardState) -> None:
        """``durable`` is what recovery found; ``state`` may differ from it already."""
        self._state = state
        self._batch = 0
        self._under_way: deque[tuple[int, HardState]] = deque()
        self._last_hard = durable
        self._last_soft = self._soft_state()

    def take(self) -> Ready:
        """Everything that has to happen now; nothing of it is handed out again."""
        state = self._state
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

    def persisted(self, batch: int) -> None:
        """``batch`` is durable. Batches must be reported in order."""
        expected, durable = self._under_way.popleft()
        assert batch == expected, "batches become durable in order"
        state = self._state
        own_disk.answered(state)
        state.log.batch_persisted()
        if durable.voting and state.blank:
            admission.mark_is_durable(state)
        if state.role is Role.LEADER:
            replication.update_commit(state)
        elif (durable.term, durable.vote) == (state.term, state.node_id):
            election.own_vote_is_durable(state)

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
