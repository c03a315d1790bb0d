"""Compaction, and what a snapshot from a peer does to the log (thesis §5.1 - §5.3).

A node compacts its own log whenever it likes, since a snapshot holds only what it has applied. A
follower whose next entry the leader has dropped needs the leader's snapshot; its bytes travel
beside the core (``shipment``), which only hears of them when they are durable.

The rules protected here:

- A snapshot never takes the log back. One that ends at or before commit, or at an entry this log
  holds, brings no entries: they are here, and behind them may be others that were confirmed.
- What a snapshot covers is committed. One that ends at an entry this log holds therefore says that
  the log is committed up to there (etcd's ``restore``). The leader that offers it has dropped the
  entries up to that place; if this node did not learn of the commit here, it would have nothing to
  say but its old commit index, and be offered the same snapshot for ever.
- Else the whole log is void, its uncommitted entries included: they contradict the snapshot, or
  end before it. What was committed of it lies before the snapshot's end, hence in the snapshot.
- A snapshot may carry a newer term than this node has seen. It enters that term as a follower, for
  a log must not hold entries of terms its node has not entered.
"""

from gantry_protocol.types import Index, NodeId, Term

from gantry_controller.raft.members import MemberHistory
from gantry_controller.raft.messages import Entry
from gantry_controller.raft.snapshot import Base, Marker, SnapshotMeta
from gantry_controller.raft.state import RaftState, Role


def meta_now(state: RaftState) -> SnapshotMeta:
    """The entries that a snapshot of the state machine would cover now."""
    index = state.log.applied_index
    term = state.log.term_at(index)
    assert term is not None
    return SnapshotMeta(index, term, state.history.at(index), state.lease.at(index))


def compact(state: RaftState, snapshot: SnapshotMeta, margin_entries: int) -> list[Entry]:
    """Note ``snapshot`` and drop the log up to ``margin_entries`` before its end."""
    if state.snapshot is not None and snapshot.index <= state.snapshot.index:
        return []
    log = state.log
    index = Index(max(log.base.index, snapshot.index - margin_entries))
    dropped = log.compact(index)
    state.snapshot = snapshot
    state.history.release(snapshot.index)
    state.lease.release(snapshot.index)
    state.markers.append(Marker(snapshot.index, snapshot.term, log.base, restart=False))
    state.trace("compacted", snapshot=snapshot.index, base=index)
    return dropped


def offered(state: RaftState, index: Index, term: Term) -> bool:
    """Whether a snapshot that ends at (``index``, ``term``) would bring this node any entries.

    If not, its end may still be news of what is committed. A leader needs none: it counts itself.
    """
    log = state.log
    if index <= log.commit_index:
        return False
    if log.term_at(index) != term:
        return True
    if state.role is not Role.LEADER:
        log.commit_to(index)
        state.trace("commit-by-snapshot", snapshot=index)
        if state.role is not Role.FOLLOWER and not state.may_campaign:
            # Its own removal is committed: elected, it would lead on, as only a leader that sees
            # its removal being committed resigns (``changes.committed``).
            state.become_follower(state.term, None)
    return False


def install(state: RaftState, snapshot: SnapshotMeta) -> list[Entry] | None:
    """Begin the log behind ``snapshot``; None if that would bring no entries."""
    if not offered(state, snapshot.index, snapshot.term):
        return None
    if snapshot.term > state.term:
        state.become_follower(snapshot.term, None)
    elif state.role is not Role.FOLLOWER:
        assert state.role is not Role.LEADER, "a leader lacks a committed entry"
        state.become_follower(state.term, None)
    base = Base(snapshot.index, snapshot.term)
    void = state.log.restart(base)
    state.snapshot = snapshot
    state.history = MemberHistory(snapshot.index, snapshot.members)
    state.lease.restart(snapshot.index, on=snapshot.lease)
    state.markers.append(Marker(snapshot.index, snapshot.term, base, restart=True))
    state.trace("installed", snapshot=snapshot.index, term=snapshot.term)
    return void


def delivered(state: RaftState, node: NodeId, holds: Index) -> None:
    """Probe ``node`` behind ``holds``, if this node still leads and ``node`` still waits."""
    progress = state.peers.get(node)
    if progress is not None and progress.next_index <= state.log.base.index:
        progress.probe(Index(max(progress.match_index, min(holds, state.log.last_index)) + 1))
