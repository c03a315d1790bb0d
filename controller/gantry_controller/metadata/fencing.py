"""A member that people have taken out of its group for a while: fenced, and let in again.

Its process and volume stay. It is outside the sync-state set, its master gives it no byte, and it
serves nobody. The rule that does this is one invariant (``invariants``): **no fenced member is in
the sync-state set.** Elections choose from the set alone, so it is never elected, whoever else
dies; ``AlterSyncStateSet`` refuses to take it in; where the whole set was struck and a person has
to name a member, it cannot be named.

To take a member out of the set is always safe: everybody who stays holds what was acknowledged. It
is refused where writes would end with it, or could not come back without it.
"""

from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId

from gantry_controller.metadata.election import believable
from gantry_controller.metadata.events import FenceMember
from gantry_controller.metadata.results import Result, missing, refuse
from gantry_controller.metadata.state import BrokerGroup, MetadataState


def fence_member(state: MetadataState, event: FenceMember) -> Result:
    """Fences a member, or lets it in again; commits nothing if it is so already.

    The set epoch rises in any case. So brokers can tell which of two answers is the newer one, and
    no change of the set that its master had proposed before can come true.
    """
    group = state.find(event.cluster, event.name)
    if group is None:
        code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        return missing(state, event, code, f"There is no broker group {event.name}")
    if (event.broker_id in group.fenced) is event.fenced:
        return Result(group=group)
    reason = _reason_against(group, event) if event.fenced else ""
    if reason:
        return refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, reason, group)
    fenced = set(group.fenced) ^ {event.broker_id}
    kept = tuple(item for item in group.sync_state_set if item not in fenced)
    changed = state.put(
        group,
        fenced=tuple(sorted(fenced)),
        sync_state_set=kept,
        sync_state_set_epoch=group.sync_state_set_epoch + 1,
    )
    return Result(group=changed, changed=True)


def without(group: BrokerGroup, members: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """The fenced of those that stay."""
    return tuple(item for item in group.fenced if item in members)


def _reason_against(group: BrokerGroup, event: FenceMember) -> str:
    broker_id, name = event.broker_id, group.name
    if group.member(broker_id) is None:
        known = ", ".join(str(member.broker_id) for member in group.members) or "nobody"
        return f"Group {name} has no member {broker_id}; it has: {known}"
    if not group.had_master:
        return f"Group {name} has not elected a master yet: wait for its first election"
    if broker_id == group.master_id:
        return f"Broker {broker_id} is the master of {name}: move the mastership first"
    live = believable(group, event.live)
    staying = [item for item in live if item != broker_id and item not in group.fenced]
    where = "alive and not fenced"
    if broker_id in group.sync_state_set:
        staying = [item for item in staying if item in group.sync_state_set]
        where = "in sync and alive"
    wish = group.declaration
    needed = 1 if wish is None else wish.min_in_sync_replicas
    if len(staying) < needed:
        return (
            f"Without broker {broker_id} only {len(staying)} members of {name} would be {where}, "
            f"and {needed} are needed for a write: wait for others, or lower minInSyncReplicas"
        )
    return ""
