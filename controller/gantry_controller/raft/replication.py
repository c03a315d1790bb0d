"""Appends and heartbeats, both sides, and what is committed (thesis §3.5, §3.6, §10.2.1).

Leader: ``send_all`` runs once per pass and sends each peer everything its window allows, so entries
proposed together travel together. Entries leave before they are on the leader's own disk; the
leader counts itself only for what is (``log.persisted_index``).

Follower: an append is answered when its entries are durable, a rejection at once. Commit follows
the leader's, but never beyond the last entry *this message* covers: what stands behind it may be
the rest of an older leader's log.

Commit: only an entry of the leader's own term is committed by counting; older ones follow with it
(§3.6.2, figure 3.7, known as Figure 8 of the paper).
"""

from gantry_protocol.types import Index, NodeId

from gantry_controller.raft import admission, changes, lease, transfer
from gantry_controller.raft.digests import DigestPoint
from gantry_controller.raft.errors import LogLostError
from gantry_controller.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    ReadIndexReply,
)
from gantry_controller.raft.progress import Progress
from gantry_controller.raft.reads import ReadMode, ReadState, RemoteRead
from gantry_controller.raft.state import RaftState

# ---- leader ------------------------------------------------------------------------------------


def tick_leader(state: RaftState) -> None:
    """Make heartbeats due."""
    state.heartbeat_elapsed += 1
    if state.heartbeat_elapsed >= state.config.heartbeat_ticks:
        state.heartbeat_elapsed = 0
        for progress in state.peers.values():
            progress.heartbeat_due = True
        state.lease.renew = True


def send_all(state: RaftState) -> None:
    """Send each peer what it may get now."""
    for node, progress in state.peers.items():
        _send_entries(state, node, progress)
        committed = commit_vouched(state, progress)
        untold = progress.commit_sent < committed and not progress.inflight
        news = untold or progress.round_sent < state.reads.wanted
        if progress.heartbeat_due or news:
            progress.heartbeat_due = False
            progress.commit_sent = committed
            progress.round_sent = state.reads.round
            agreed = state.digests.agreed
            state.now.append(
                Heartbeat(
                    state.node_id,
                    node,
                    state.term,
                    committed,
                    state.reads.round,
                    agreed.index,
                    agreed.digest,
                )
            )
    transfer.proceed(state)
    if state.leaving:
        _let_go(state)


def _let_go(state: RaftState) -> None:
    """Those whose removal is committed have been told; a leader among them hands over.

    It does so once it has applied its removal, so that whoever asked for it can be answered. Who
    was taken in again since stays: a peer without progress would be a member for nothing.
    """
    for node in state.leaving:
        if node not in state.members.nodes:
            state.peers.pop(node, None)
    resigns = state.node_id in state.leaving
    if resigns and state.log.applied_index < state.history.changed_index:
        state.leaving = [state.node_id]
        return
    state.leaving = []
    if resigns:
        state.trace("resigns", term=state.term)
        target = transfer.best_target(state)
        if target is not None:
            transfer.tell(state, target)
        state.become_follower(state.term, None)


def needs_snapshot(state: RaftState, progress: Progress) -> bool:
    """Whether the next append would have to follow an entry that this log no longer knows."""
    return progress.next_index <= state.log.base.index


def commit_vouched(state: RaftState, progress: Progress) -> Index:
    """The commit index for a heartbeat: no more than the peer is known to hold of this log."""
    return min(progress.match_index, state.log.commit_index)


def _send_entries(state: RaftState, node: NodeId, progress: Progress) -> None:
    """Fill the peer's window; while probing, and when nudged, an empty append will do.

    A peer that needs entries which are gone gets none until it holds a snapshot (thesis §5.2).
    """
    must = progress.nudge or not progress.streaming
    progress.nudge = False
    if needs_snapshot(state, progress):
        return
    while progress.may_send(state.config.inflight_max):
        waiting = state.log.last_index - progress.next_index + 1
        full = waiting >= state.config.append_entries_min
        if not must and (waiting <= 0 or (progress.inflight and not full)):
            return
        _send_append(state, progress, node, state.config.append_bytes_max)
        must = False
    if must and progress.streaming:  # the window is full and perhaps lost: ask, without entries
        _send_append(state, progress, node, 0)


def _send_append(state: RaftState, progress: Progress, node: NodeId, bytes_max: int) -> None:
    log = state.log
    prev_index = Index(progress.next_index - 1)
    prev_term = log.term_at(prev_index)
    assert prev_term is not None
    entries = log.entries_from(progress.next_index, bytes_max) if bytes_max else ()
    last = Index(prev_index + len(entries))
    progress.sent(last)
    progress.commit_sent = min(last, log.commit_index)
    progress.round_sent = state.reads.round
    admit = admission.nonce_to_admit(state, progress)
    state.now.append(
        Append(
            state.node_id,
            node,
            state.term,
            prev_index,
            prev_term,
            log.commit_index,
            state.reads.round,
            admit,
            entries,
        )
    )


def on_append_reply(state: RaftState, reply: AppendReply) -> None:
    """A follower has stored entries, or could not match them."""
    progress = state.peers[reply.source]
    confirmed = Index(0) if reply.rejected else reply.index
    turned = admission.judge(state, progress, reply.blank, confirmed)
    _heard(state, progress, reply.blank, reply.round)
    if reply.rejected:
        hint = state.log.conflict_hint(reply.hint_index, reply.hint_term)
        if progress.rejected(reply.index, hint, reply.round):
            state.reads.round += 1
            progress.round_valid = state.reads.round
            state.trace("rejected", source=reply.source, index=reply.index, hint=hint)
    elif progress.accepted(reply.index) or turned:
        update_commit(state)


def on_heartbeat_reply(state: RaftState, reply: HeartbeatReply) -> None:
    """A follower lives; if it still lacks entries, something on the way to it may be lost.

    Raises:
        StateDiffersError: with this answer a majority disagrees with this node's state.
    """
    digest_heard(state, reply)
    progress = state.peers[reply.source]
    admission.judge(state, progress, reply.blank, 0)
    progress.priority = reply.priority
    _heard(state, progress, reply.blank, reply.round)
    if progress.match_index < state.log.last_index or not progress.counts:
        progress.nudge = True
        progress.probe_sent = False


def digest_heard(state: RaftState, reply: HeartbeatReply) -> None:
    """Compare a follower's state with the others'; a new difference is traced once."""
    known = len(state.digests.differing)
    point = DigestPoint(reply.digest_index, reply.digest)
    state.digests.heard(reply.source, point, state.members)
    if len(state.digests.differing) > known:
        state.trace("state differs", node=reply.source, index=reply.digest_index)


def _heard(state: RaftState, progress: Progress, blank: int, acked_round: int) -> None:
    """The peer lives; its word counts for reads if it comes from the life we take it for."""
    progress.recently_active = True
    progress.silent_ticks = 0
    if blank == progress.blank and acked_round > progress.round_acked:
        progress.round_acked = acked_round
        confirm_reads(state)


def update_commit(state: RaftState) -> None:
    """Commit what a quorum holds durably, if it is of this term."""
    index = Index(state.reached(state.log.persisted_index, lambda peer: peer.match_index))
    before = state.log.commit_index
    if index <= before or not may_commit_by_counting(state, index):
        return
    state.log.commit_to(index)
    state.uncommitted_bytes -= state.log.bytes_between(before, index)
    changes.committed(state, before)


def may_commit_by_counting(state: RaftState, index: Index) -> bool:
    """An older term's entry may still be overwritten, however many hold it (§3.6.2)."""
    return state.log.term_at(index) == state.term


def confirm_reads(state: RaftState) -> None:
    """Release the reads whose round a quorum has echoed; the leader's own word is the newest."""
    acked = state.reached(state.reads.round, lambda peer: peer.round_acked)
    for read, remote in state.reads.confirmed(acked):
        _answer_reads(state, read, remote)


def begin_reads(state: RaftState, now_ns: int | None) -> None:
    """Once per pass: answer the reads that have arrived by the lease, or begin a round for them.

    ``now_ns`` was taken after they arrived and before this call; nothing happens in between.
    """
    reads = state.reads
    if not (reads.contexts or reads.remote) or not state.term_is_committed:
        return
    if lease.is_valid(state, now_ns):
        contexts, remote = reads.take()
        read = ReadState(state.log.commit_index, contexts, ReadMode.LEASE)
        _answer_reads(state, read, remote)
        return
    reads.begin(state.log.commit_index)
    if now_ns is not None:
        state.lease.round_began(reads.round, now_ns, state.config.lease_ns)
    confirm_reads(state)


def _answer_reads(state: RaftState, read: ReadState, remote: list[RemoteRead]) -> None:
    """These reads are linearizable: this node's own, and those that followers asked for."""
    if read.contexts:
        state.reads_confirmed.append(read)
    state.now.extend(
        ReadIndexReply(state.node_id, item.source, state.term, item.nonce, read.index)
        for item in remote
    )


# ---- follower ----------------------------------------------------------------------------------


def on_append(state: RaftState, message: Append) -> None:
    """Store a leader's entries, or say where the logs may match."""
    log = state.log
    state.follower_reads.note_commit(message.commit)
    if message.prev_index < log.commit_index:
        _accept(state, message, log.commit_index)  # old news: committed entries match for sure
    elif log.term_at(message.prev_index) == message.prev_term:
        before = log.last_index
        cut = log.merge(message.prev_index, message.entries)
        if cut is not None:
            state.trace("cut", first=cut)
        kept = before if cut is None else Index(cut - 1)
        changes.log_followed(state, kept, message.entries)
        lease.log_followed(state, kept, message.entries)
        last = Index(message.prev_index + len(message.entries))
        log.commit_to(commit_covered(message.commit, last))
        admission.on_admit(state, message.admit)
        _accept(state, message, last)
    else:
        _reject(state, message)


def commit_covered(leader_commit: Index, last: Index) -> Index:
    """The leader's commit index, as far as this message vouches for it (§3.5)."""
    return min(leader_commit, last)


def _accept(state: RaftState, message: Append, index: Index) -> None:
    state.after_persist.append(
        AppendReply(
            source=state.node_id,
            target=message.source,
            term=state.term,
            index=index,
            rejected=False,
            hint_index=Index(0),
            hint_term=message.term,
            round=message.round,
            blank=state.blank,
        )
    )


def _reject(state: RaftState, message: Append) -> None:
    hint = state.log.conflict_hint(message.prev_index, message.prev_term)
    hint_term = state.log.term_at(hint)
    assert hint_term is not None
    state.now.append(
        AppendReply(
            source=state.node_id,
            target=message.source,
            term=state.term,
            index=message.prev_index,
            rejected=True,
            hint_index=hint,
            hint_term=hint_term,
            round=message.round,
            blank=state.blank,
        )
    )


def on_heartbeat(state: RaftState, message: Heartbeat) -> None:
    """The leader lives. A blank node takes no commit from it: it may be meant for its past life.

    Raises:
        LogLostError: this node confirmed entries that its log does not hold.
        StateDiffersError: a majority disagrees with this node's state.
    """
    state.digests.told(DigestPoint(message.digest_index, message.digest))
    state.follower_reads.note_commit(message.commit)
    if state.blank == 0:
        if message.commit > state.log.last_index:
            raise LogLostError(message.commit, state.log.last_index)
        state.log.commit_to(message.commit)
    state.now.append(
        HeartbeatReply(
            state.node_id,
            message.source,
            state.term,
            message.round,
            state.blank,
            state.config.priority,
            state.digests.newest.index,
            state.digests.newest.digest,
        )
    )
