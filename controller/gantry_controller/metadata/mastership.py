"""The two events that move mastership: an election, and a change of the sync-state set."""

from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch

from gantry_controller.metadata.election import (
    Elected,
    Kept,
    Refused,
    believable,
    decide,
    is_gone_for_good,
)
from gantry_controller.metadata.events import AlterSyncStateSet, ElectMaster
from gantry_controller.metadata.invariants import is_ascending
from gantry_controller.metadata.results import Result, missing, refuse
from gantry_controller.metadata.state import BrokerGroup, MetadataState


def elect_master(state: MetadataState, event: ElectMaster) -> Result:
    """Elects by ``election.decide``.

    A failure changes nothing. (Upstream drops the master and burns an epoch with each failed try of
    the controller's own; then a master that was merely out of the controllers' sight comes back to
    an epoch it cannot serve in.)
    """
    group = state.find(event.cluster, event.name)
    if group is None:
        code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        return missing(state, event, code, "Broker hasn't been registered")
    if event.incarnation and event.requester is not None and not event.designate:
        asking = group.member(event.requester)
        if asking is None or asking.incarnation != event.incarnation:
            return refuse(
                ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                f"This process of broker {event.requester} hasn't been registered",
                group,
            )
    floor = state.floors.get(group.key)
    decision = decide(group, event, floor)
    match decision:
        case Refused(code, remark):
            return refuse(code, remark, group)
        case Kept():
            return refuse(
                ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
                f"The old master {group.master_id} is still alive, "
                f"not need to elect new master for broker {group.name}",
                group,
            )
        case Elected():
            if is_gone_for_good(group, believable(group, event.live), floor):
                state.put_plain("floors", group.key, None)
            return Result(group=promote(state, group, decision), changed=True)


def promote(state: MetadataState, group: BrokerGroup, decision: Elected) -> BrokerGroup:
    """Makes the winner the master of the next epoch."""
    winner = group.member(decision.winner)
    assert winner is not None, (group, decision)
    return state.put(
        group,
        master_id=decision.winner,
        master_incarnation=winner.incarnation,
        master_epoch=Epoch(group.master_epoch + 1),
        sync_state_set=decision.sync_state_set,
        sync_state_set_epoch=group.sync_state_set_epoch + 1,
        clean=group.clean and decision.clean,
    )


def alter_sync_state_set(state: MetadataState, event: AlterSyncStateSet) -> Result:
    """Replaces the set if the asker is the master of this very epoch and knows the current set.

    The checks stand in upstream's order (``ReplicasInfoManager.alterSyncStateSet``).
    """
    group = state.find(event.cluster, event.name)
    if group is None:
        code = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        return missing(state, event, code, "Broker metadata is not existed")
    new_set = event.new_set
    if not is_ascending(new_set):
        new_set = tuple(sorted(set(new_set)))
    refusal = _refuse_alteration(group, event, new_set)
    if refusal is not None:
        code, remark = refusal
        return refuse(code, remark, group)
    altered = state.put(
        group, sync_state_set=new_set, sync_state_set_epoch=group.sync_state_set_epoch + 1
    )
    return Result(group=altered, changed=True)


def _refuse_alteration(
    group: BrokerGroup, event: AlterSyncStateSet, new_set: tuple[BrokerId, ...]
) -> tuple[ResponseCode, str] | None:
    rejecting = "Rejecting alter syncStateSet request because"
    if new_set == group.sync_state_set:
        return (
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
        )
    if group.master_id is None or group.master_id != event.master_id:
        return (
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"{rejecting} {_mismatch('leader', group.master_id, event.master_id)}",
        )
    if event.incarnation and event.incarnation != group.master_incarnation:
        return (
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"{rejecting} another process of broker {event.master_id} was elected",
        )
    if event.master_epoch != group.master_epoch:
        return (
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"{rejecting} {_mismatch('master epoch', group.master_epoch, event.master_epoch)}",
        )
    if event.expected_set_epoch != group.sync_state_set_epoch:
        return (
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"{rejecting} "
            + _mismatch("syncStateSet epoch", group.sync_state_set_epoch, event.expected_set_epoch),
        )
    heard = {evidence.broker_id: evidence.incarnation for evidence in event.live}
    for broker_id in new_set:
        member = group.member(broker_id)
        if member is None:
            return (
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"{rejecting} the replicas {{{broker_id}}} don't exist",
            )
        if broker_id in group.fenced:
            return (
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"{rejecting} the replicas {{{broker_id}}} are fenced",
            )
        if broker_id not in heard or not member.is_incarnation(heard[broker_id]):
            return (
                ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
                f"{rejecting} the replicas {{{broker_id}}} don't alive",
            )
    if group.master_id not in new_set:
        return (
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"{rejecting} the newSyncStateSet don't contains origin leader {{{group.master_id}}}",
        )
    return None


def _mismatch(what: str, current: int | None, claimed: int) -> str:
    return f"the current {what} is:{{{current}}}, not {{{claimed}}}"
