"""A node whose own disk is silent: no error, and no word that a batch is durable.

Such a leader would lead for ever. Its heartbeats need no disk, so nobody else stands; the others
store what it sends, so commit goes on; but it applies nothing that is not on its own disk, so no
caller is answered again. The rule, with ticks as the only time there is:

- The disk *hangs* when batches are under way and none was confirmed for ``disk_patience_ticks``.
- A leader whose disk hangs, while a quorum has had for an election time-out what it has not, gives
  way: it tells the voter that holds most to campaign, and follows. Without such a quorum it stays:
  the others' disks are no better (all of them may be on one machine), and nobody else could do what
  it cannot. The time-out is for disks that hung together and answer one after the other.
- A node whose disk hangs stands for no election, and promises no vote: it could not keep its word.
  Its votes and acknowledgements wait for the disk by themselves (``ready``).
"""

from gantry_controller.raft import transfer
from gantry_controller.raft.state import RaftState, Role


def tick(state: RaftState) -> None:
    """One tick of any node."""
    _count_overtaken(state)
    if not state.log.writes_under_way:
        state.disk_silent_ticks = 0
        return
    state.disk_silent_ticks += 1
    if state.disk_silent_ticks == state.config.disk_patience_ticks:
        state.trace("disk-hangs", ticks=state.disk_silent_ticks)
    if state.disk_hangs:
        _give_way(state)


def answered(state: RaftState) -> None:
    """A batch is durable."""
    if state.disk_hangs:
        state.trace("disk-answers", ticks=state.disk_silent_ticks)
    state.disk_silent_ticks = 0
    state.overtaken_ticks = 0


def _count_overtaken(state: RaftState) -> None:
    overtaken = state.role is Role.LEADER and state.log.commit_index > state.log.persisted_index
    state.overtaken_ticks = state.overtaken_ticks + 1 if overtaken else 0


def _give_way(state: RaftState) -> None:
    if state.role is Role.FOLLOWER:
        return
    if state.role is Role.LEADER:
        if state.overtaken_ticks < state.config.election_ticks:
            return
        state.trace("gives-way", term=state.term)
        target = transfer.best_target(state)
        if target is not None:
            transfer.tell(state, target)
    state.become_follower(state.term, None)
