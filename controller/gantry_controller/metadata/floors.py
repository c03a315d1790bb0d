"""The two events about what a group is known to have confirmed: it rises, or a person gives it up.

Rule protected: a floor falls only with ``AcceptLoss``, or with the group itself.
"""

from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch

from gantry_controller.metadata.confirmed import Floor, Loss
from gantry_controller.metadata.election import Elected, believable, holds, newest
from gantry_controller.metadata.events import AcceptLoss, FloorRow, LiveMember, RaiseFloors
from gantry_controller.metadata.mastership import promote
from gantry_controller.metadata.results import Result, missing, refuse
from gantry_controller.metadata.state import BrokerGroup, MetadataState


def raise_floors(state: MetadataState, event: RaiseFloors) -> Result:
    """Takes each row that is of the group's present epoch, and rises."""
    raised = [row for row in event.rows if _raises(state, row)]
    for row in raised:
        state.put_plain("floors", (row.cluster, row.name), Floor(row.epoch, row.offset))
    return Result(changed=bool(raised))


def _raises(state: MetadataState, row: FloorRow) -> bool:
    group = state.find(row.cluster, row.name)
    if group is None or not group.had_master or row.master_epoch != group.master_epoch:
        return False
    known = state.floors.get(group.key)
    return known is None or (row.offset > known.offset and row.epoch >= known.epoch)


def accept_loss(state: MetadataState, event: AcceptLoss) -> Result:
    """Elects the named member, which must be the furthest that lives, and forgets the floor.

    Refused while there is a way without a loss: a living master, or a living member of the set
    that holds all that is known to be confirmed.
    """
    group = state.find(event.cluster, event.name)
    if group is None:
        code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        return missing(state, event, code, f"There is no broker group {event.name}")
    live = believable(group, event.live)
    floor = state.floors.get(group.key)
    refusal = _reason_against(group, event, live, floor)
    if refusal:
        return refuse(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, refusal, group)
    chosen = live[event.broker_id]
    loss = Loss(
        master_epoch=Epoch(group.master_epoch + 1),
        broker_id=chosen.broker_id,
        epoch=chosen.epoch,
        end=chosen.max_offset,
        floor=floor,
        at_ms=event.at_ms,
    )
    state.put_plain("losses", group.key, loss)
    state.put_plain("floors", group.key, None)
    elected = Elected(chosen.broker_id, (chosen.broker_id,), clean=False)
    return Result(group=promote(state, group, elected), changed=True)


def _reason_against(  # a table of refusals, in the order in which they are looked at
    group: BrokerGroup,
    event: AcceptLoss,
    live: dict[BrokerId, LiveMember],
    floor: Floor | None,
) -> str:
    if event.expected_epoch != group.master_epoch:
        return f"The group is in master epoch {group.master_epoch}, not {event.expected_epoch}"
    if event.floor_offset != (-1 if floor is None else floor.offset):
        return "What is known to be confirmed has changed since: look again"
    if group.master_is_current and group.master_id in live:
        return f"The master, broker {group.master_id}, is alive"
    chosen = live.get(event.broker_id)
    if chosen is None or chosen.max_offset < 0:
        return f"Broker {event.broker_id} is not alive, or has not said how far its log goes"
    if chosen.broker_id in group.fenced:
        return f"Broker {chosen.broker_id} is fenced: let it in again, or name another"
    complete = [item for item in live.values() if holds(item, floor)]
    whole = [item.broker_id for item in complete if item.broker_id in group.sync_state_set]
    if whole:
        return f"Broker {whole[0]} holds all that is known to be confirmed: it will be elected"
    furthest = newest(live.values(), group)
    if (furthest.epoch, furthest.max_offset) > (chosen.epoch, chosen.max_offset):
        return f"Broker {furthest.broker_id} has the newest log of those that are alive"
    return ""
