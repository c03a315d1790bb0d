"""Handing leadership over without an election time-out (thesis §3.10).

The leader stops taking proposals, brings the target up to the end of its log and then tells it to
campaign at once. The target's request says so (``VoteRequest.transfer``), and voters who still hear
the old leader answer it, which they otherwise never do (§4.2.3).

Bounded: after one election time-out without a new leader the old one takes proposals again. What it
said may still arrive later: then the target campaigns in the next term like any candidate, which is
safe. Only a lease would not bear it, since a voter that promised time would answer; so a leader
holds none from the moment a transfer begins, and none for the rest of its term once it has said
``TimeoutNow`` (``may_hold_lease``; etcd-io/raft #99 is what happens otherwise).
"""

import msgspec
from gantry_protocol.types import NodeId

from gantry_controller.raft import changes, election
from gantry_controller.raft.errors import ChangeRefused, NotLeader
from gantry_controller.raft.messages import TimeoutNow
from gantry_controller.raft.state import RaftState, Role, Transfer


def begin(state: RaftState, target: NodeId | None) -> NodeId:
    """Begin to hand over to ``target``, or to the voter that is furthest; returns whom.

    Raises:
        NotLeader: with the leader, if one is known.
        ChangeRefused: the target cannot lead, or a transfer is under way.
    """
    if state.role is not Role.LEADER:
        raise NotLeader(state.leader)
    if state.transfer is not None:
        raise ChangeRefused(
            f"Leadership is being handed over to node {state.transfer.target} already."
        )
    chosen = best_target(state) if target is None else target
    if chosen is None:
        raise ChangeRefused("No other voter answers, so there is nobody to hand over to.")
    reason = _why_not(state, chosen)
    if reason:
        raise ChangeRefused(f"Node {chosen} cannot take over: {reason}.")
    state.trace("transfer", target=chosen)
    state.transfer = Transfer(chosen)
    return chosen


def _why_not(state: RaftState, target: NodeId) -> str:
    if target == state.node_id:
        return "it leads already"
    if target not in state.members.voters:
        return f"it is not a voter; the voters are {list(state.members.voters)}"
    if target not in state.counted:
        return "its disk is new and it may not vote yet"
    if not changes.answers(state, state.peers[target]):
        return "it has not answered within the last election time-out"
    return ""


def best_target(state: RaftState) -> NodeId | None:
    """The voter that answers and holds most; of equals the one with the lowest number."""
    able = {n: peer for n, peer in state.counted.items() if changes.answers(state, peer)}
    return min(able, key=lambda node: (-able[node].match_index, node), default=None)


def tick(state: RaftState) -> None:
    """One tick of a leader: a transfer that did not succeed ends."""
    if state.transfer is None:
        return
    elapsed = state.transfer.elapsed_ticks + 1
    state.transfer = msgspec.structs.replace(state.transfer, elapsed_ticks=elapsed)
    if elapsed >= state.config.election_ticks or _why_not(state, state.transfer.target):
        state.trace("transfer-ended", target=state.transfer.target)
        state.transfer = None


def proceed(state: RaftState) -> None:
    """One pass of a leader: tell the target as soon as it holds the whole log."""
    transfer = state.transfer
    if transfer is None or transfer.told or transfer.target not in state.counted:
        return
    if state.peers[transfer.target].match_index == state.log.last_index:
        state.transfer = msgspec.structs.replace(transfer, told=True)
        tell(state, transfer.target)


def tell(state: RaftState, target: NodeId) -> None:
    """Tell ``target`` to campaign; whatever lease there was has ended before this leaves."""
    state.trace("timeout-now", target=target)
    state.lease_barred = True
    state.now.append(TimeoutNow(state.node_id, target, state.term))


def on_timeout_now(state: RaftState) -> None:
    """The leader hands over to this node."""
    if state.may_campaign:
        election.campaign_at_once(state)
