"""Election priority: leadership goes to the member that is preferred, once it is fit and stays so.

Every node says its priority with its answers to heartbeats. A leader hands over (``transfer``) to a
voter of a higher one that has been *steady* for a while: it answers, counts, and lacks next to
nothing. Priority never decides an election: an election must not wait for anybody.

Equal priorities never move leadership. A preferred member that fails again and again would take it
along each time; so each handover doubles the time for which the next candidate must be steady, and
long calm halves it again (``Patience``).
"""

from gantry_protocol.types import NodeId

from gantry_controller.raft import transfer
from gantry_controller.raft.progress import Progress
from gantry_controller.raft.state import RaftState

LAG_MAX = 100  # entries behind commit; under load nobody is at the very end


def tick(state: RaftState) -> None:
    """One tick of a leader."""
    for node, peer in state.peers.items():
        peer.steady_ticks = peer.steady_ticks + 1 if _is_steady(state, node, peer) else 0
    preferred = _preferred(state)
    if preferred is not None and state.transfer is None:
        state.patience.handed_over()
        transfer.begin(state, preferred)


def _is_steady(state: RaftState, node: NodeId, peer: Progress) -> bool:
    return (
        node in state.members.voters
        and peer.counts
        and peer.silent_ticks < state.config.election_ticks // 2
        and peer.match_index > 0
        and state.log.commit_index - peer.match_index <= LAG_MAX
    )


def _preferred(state: RaftState) -> NodeId | None:
    """The steady voter of the highest priority, if that is higher than the own."""
    fit = {n: p.priority for n, p in state.peers.items() if p.steady_ticks >= state.patience.ticks}
    best = min(fit, key=lambda node: (-fit[node], node), default=None)
    return best if best is not None and fit[best] > state.config.priority else None
