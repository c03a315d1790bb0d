"""Bugs to plant: each is a patch, applied only in a test, that the simulator must notice.

A simulator that lets one of these live proves nothing about the others. Each names the kind of
world that shows it soonest: what a seed draws shifts with every change of the code, so a bug that
only one seed in a hundred meets is given a world that is made for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from gantry_controller.raft import admission, core, election, members, quorum, replication
from gantry_controller.raft.log import RaftLog
from gantry_controller.raft.messages import AppendReply
from gantry_controller.raft.progress import Progress
from gantry_controller.raft.state import RaftState, Role
from gantry_controller.wal.format import encode_batch
from gantry_protocol.types import Index
from sim.kernel.disk import DiskOptions
from sim.kernel.nemesis import NemesisOptions
from sim.kernel.world import MS, SECOND
from sim.raft import scripts
from sim.raft.process import SimWal
from sim.raft.world import RaftOptions, RaftWorld

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_controller.raft.core import RaftCore
    from gantry_controller.raft.messages import Append, Entry, VoteRequest
    from gantry_controller.wal.format import Write


def answer_before_sync(patch: pytest.MonkeyPatch) -> None:
    """The driver reports a batch as durable once it is written, not synced."""

    def submit(self: SimWal, ticket: int, write: Write) -> None:
        offset = self._head.offset
        self._file.write(offset, encode_batch(self._head, [write]))
        self._durable(ticket)

    patch.setattr(SimWal, "submit", submit)


def recovery_without_sync(patch: pytest.MonkeyPatch) -> None:
    """A restarted process takes what it reads for durable; it may be in the page cache only."""
    patch.setattr(SimWal, "sync_recovered", lambda self: None)


def ack_before_persist(patch: pytest.MonkeyPatch) -> None:
    """A follower answers an append before the entries are on its disk."""
    accept = replication._accept

    def early(node: RaftState, message: Append, index: Index) -> None:
        accept(node, message, index)
        node.now.append(node.after_persist.pop())

    patch.setattr(replication, "_accept", early)


def leader_counts_itself_early(patch: pytest.MonkeyPatch) -> None:
    """The leader takes its own entries for durable when it hands them to the disk."""

    def submitted(self: RaftLog) -> None:
        self._under_way.append(self.submitted_index)
        self.persisted_index = self.submitted_index

    patch.setattr(RaftLog, "batch_submitted", submitted)


def two_votes_in_a_term(patch: pytest.MonkeyPatch) -> None:
    """A vote does not bind."""

    def may(node: RaftState, request: VoteRequest) -> bool:
        return node.log.is_up_to_date(request.last_index, request.last_term)

    patch.setattr(election, "may_vote_for", may)


def vote_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A restart forgets whom the node voted for."""
    init = RaftState.__init__

    def forgetful(self: RaftState, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]  # passed through
        self.vote = None

    patch.setattr(RaftState, "__init__", forgetful)


def vote_without_log_check(patch: pytest.MonkeyPatch) -> None:
    """A vote is given to a candidate whose log is behind."""
    patch.setattr(RaftLog, "is_up_to_date", lambda *_: True)


def read_without_quorum_round(patch: pytest.MonkeyPatch) -> None:
    """A leader answers reads from its commit index without asking whether it still leads."""

    def confirm(node: RaftState) -> None:
        node.reads_confirmed += node.reads.confirmed(node.reads.round)

    patch.setattr(replication, "confirm_reads", confirm)


def read_before_own_commit(patch: pytest.MonkeyPatch) -> None:
    """A new leader trusts its commit index before an entry of its term is committed."""
    patch.setattr(RaftState, "term_is_committed", property(lambda _: True))


def truncate_without_conflict(patch: pytest.MonkeyPatch) -> None:
    """Every append cuts what stands behind it (PySyncObj's rule)."""

    def merge(self: RaftLog, prev_index: Index, entries: Sequence[Entry]) -> Index | None:
        keep = max(prev_index, self.commit_index)
        fresh = [entry for entry in entries if entry.index > keep]
        if keep < self.last_index:
            self._cut(Index(keep + 1))
        if fresh:
            self.append(fresh)
        return None

    patch.setattr(RaftLog, "merge", merge)


def commit_beyond_the_message(patch: pytest.MonkeyPatch) -> None:
    """A follower commits up to its last entry, not up to the last one the message covers."""

    def clamped(self: RaftLog, index: Index) -> None:
        self.commit_index = max(self.commit_index, min(index, self.last_index))

    patch.setattr(replication, "commit_covered", lambda leader_commit, last: leader_commit)
    patch.setattr(RaftLog, "commit_to", clamped)


def heartbeat_with_bare_commit(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat tells the leader's commit index, whatever the peer holds."""
    patch.setattr(replication, "commit_vouched", lambda node, progress: node.log.commit_index)


def quorum_of_half(patch: pytest.MonkeyPatch) -> None:
    """Half of the members are taken for a majority."""

    def half(members: int) -> int:
        return max(members // 2, 1)

    patch.setattr(quorum, "quorum_size", half)
    patch.setattr(members, "quorum_size", half)


def old_term_ack(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement of an earlier term counts."""
    answer = core.RaftCore._answer_old_term

    def count(self: RaftCore, message: object) -> None:
        if isinstance(message, AppendReply) and self._state.role is Role.LEADER:
            if not message.rejected and message.index <= self.last_index:
                replication.on_append_reply(self._state, message)
            return
        answer(self, message)  # type: ignore[arg-type]  # the original's own union

    patch.setattr(core.RaftCore, "_answer_old_term", count)


def blank_node_votes(patch: pytest.MonkeyPatch) -> None:
    """A node that lost its disk votes and counts as if nothing had happened."""
    init = RaftState.__init__

    def trusting(self: RaftState, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]  # passed through
        self.blank = 0
        self.voter_marked = True

    patch.setattr(RaftState, "__init__", trusting)


def blank_peer_counts(patch: pytest.MonkeyPatch) -> None:
    """A leader counts the word of a peer that has lost its disk."""
    patch.setattr(Progress, "counts", property(lambda _: True))


def admitted_at_once(patch: pytest.MonkeyPatch) -> None:
    """A peer that lost its disk may vote as soon as the leader hears of it."""
    patch.setattr(admission, "nonce_to_admit", lambda node, progress: progress.blank)


def old_term_commit_by_counting(patch: pytest.MonkeyPatch) -> None:
    """A leader commits an entry of an older term because a majority holds it (Figure 8)."""
    patch.setattr(replication, "may_commit_by_counting", lambda node, index: True)


def replaced_entry_confirmed(patch: pytest.MonkeyPatch) -> None:
    """A disk's confirmation counts although the entry was replaced meanwhile (ABA)."""
    cut = RaftLog._cut

    def forgetful(self: RaftLog, first: Index) -> Index:
        under_way = deque(self._under_way)
        cut(self, first)
        self._under_way = under_way
        return first

    patch.setattr(RaftLog, "_cut", forgetful)


def anything(seed: int) -> RaftWorld:
    """A world with everything drawn from the seed."""
    return RaftWorld.swarm(seed)


def killed_while_writing(seed: int) -> RaftWorld:
    """Processes are killed and come back at once; the disk is slow, so the page cache is dirty."""
    return _world(seed, ["kill"], down_us=5 * MS, sync_us=(5 * MS, 300 * MS))


def late_leaders(seed: int) -> RaftWorld:
    """Leaders sleep, or are cut off, while others are elected."""
    return _world(seed, ["pause_leader", "isolate_leader", "heal"], election_ticks=5)


def losing_volumes(seed: int) -> RaftWorld:
    """Volumes are lost, and links break one way."""
    return _world(seed, ["wipe", "one_way", "split", "heal"], election_ticks=5)


def _world(
    seed: int,
    faults: list[str],
    *,
    election_ticks: int = 20,
    down_us: int = SECOND,
    sync_us: tuple[int, int] = (100, 2_000),
) -> RaftWorld:
    return RaftWorld(
        seed,
        RaftOptions(election_ticks=election_ticks, read_every_us=20 * MS, faulty_us=15 * SECOND),
        disk=DiskOptions(sync_us=sync_us),
        nemesis=NemesisOptions(faults=faults, mean_gap_us=300 * MS, down_us=down_us),
    )


# Found by chance, in the kind of world where the bug shows soonest.
BY_SEED: dict[Callable[[pytest.MonkeyPatch], None], Callable[[int], RaftWorld]] = {
    answer_before_sync: anything,
    recovery_without_sync: killed_while_writing,
    ack_before_persist: anything,
    leader_counts_itself_early: anything,
    two_votes_in_a_term: anything,
    vote_without_log_check: anything,
    read_without_quorum_round: late_leaders,
    read_before_own_commit: anything,
    truncate_without_conflict: anything,
    heartbeat_with_bare_commit: anything,
    quorum_of_half: anything,
    blank_node_votes: losing_volumes,
}

# Too rare for chance: the script that plays it.
BY_SCRIPT: dict[Callable[[pytest.MonkeyPatch], None], Callable[[], None]] = {
    old_term_commit_by_counting: scripts.figure_8,
    commit_beyond_the_message: scripts.commit_beyond_the_message,
    old_term_ack: scripts.old_term_ack,
    replaced_entry_confirmed: scripts.aba_persist_race,
    vote_is_forgotten: scripts.vote_after_restart,
    blank_peer_counts: scripts.forgotten_vote,
    admitted_at_once: scripts.forgotten_vote,
}
