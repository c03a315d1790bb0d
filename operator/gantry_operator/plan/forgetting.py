"""The request to forget a member of a BrokerGroup: carried out once per id, reported in status.

Members that are gone are struck without a request once all others are in sync (`steady`). A request
is for those who do not want to see, or wait for, a ghost until then.

Rule protected: only a member is struck that cannot be missed. It gives no sign of life, no pod is
or will be its own again, and it is outside the sync-state set, of which somebody lives. The
controllers judge again, by their own evidence. What cannot be done now is refused for good: a
member that was struck much later, because its node was down for an hour, would surprise whoever
asked, and would have to be filled anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator.models import ForgetStatus
from gantry_operator.plan.actions import ForgetMember
from gantry_operator.plan.broker_steps import PlanStep
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_protocol.admin import MemberView

    from gantry_operator.models import ForgetWish
    from gantry_operator.plan.members import ObservedGroup

Result = tuple[ForgetStatus | None, PlanStep | None]


def forget(
    group: ObservedGroup,
    request: ForgetWish | None,
    old: ForgetStatus | None,
    before: Mapping[int, int],
    replicas: int,
) -> Result:
    """Rule: the member is struck, if that is safe now; see the module.

    Args:
        group: what the controllers know, and its pods.
        request: the wish; None for none.
        old: what became of the last one.
        before: ordinals by broker id, as the status has them.
        replicas: pods that there are to be.
    """
    if request is None:
        return old, None
    begun = old if old is not None and old.id == request.id else None
    if begun is not None and begun.broker_id != request.broker_id:
        text = f"The id {request.id} was used up before: choose a new id."
        return _report(request, "Refused", text), None
    if begun is not None and begun.state != "InProgress":
        return begun, None
    members = {member.broker_id: member for member in group.view.members}
    member = members.get(request.broker_id)
    if member is None:
        if begun is not None:
            return _report(request, "Completed", "The member is struck from the record."), None
        known = ", ".join(map(str, sorted(members))) or "nobody"
        text = f"The controllers know no broker {request.broker_id}; they know {known}."
        return _report(request, "Refused", text), None
    reason = reason_to_keep(group, member, before, replicas)
    if reason:
        return _report(request, "Refused", f"{reason}."), None
    text = f"Striking broker {member.broker_id} from the record."
    action = ForgetMember(
        broker_id=member.broker_id, incarnation=member.incarnation, group=group.shard
    )
    return _report(request, "InProgress", text), PlanStep(Reason.FORGETTING, text, action)


def reason_to_keep(
    group: ObservedGroup, member: MemberView, before: Mapping[int, int], replicas: int
) -> str:
    """The reason to keep a member, without a full stop; empty if it may be struck."""
    who, pod = f"Broker {member.broker_id}", group.pod_of(member)
    if member.broker_id == group.view.master_broker_id:
        return f"{who} is the master"
    if member.alive:
        where = f", in pod {pod.name}" if pod else ""
        return f"{who} is alive{where}: scale down, or stop it first"
    if pod is not None:
        return f"{who} has a pod, {pod.name}, in which it comes back: delete its claim and pod"
    ordinal = before.get(member.broker_id)
    if ordinal is not None and ordinal < replicas and group.at_ordinal(ordinal) is None:
        return (
            f"{who} is that of replica {ordinal}, which is to be there and comes back with its "
            "volume: scale down, or delete its claim and let the replica start"
        )
    if member.broker_id in group.view.sync_state_set:
        return f"{who} is in the sync-state set: it holds what was acknowledged"
    if group.view.master_epoch > 0 and not group.in_sync():
        return f"Nobody in sync is alive: broker {member.broker_id} may hold the only copy left"
    return ""


def _report(request: ForgetWish, state: str, message: str) -> ForgetStatus:
    return ForgetStatus.model_validate(
        {"id": request.id, "broker_id": request.broker_id, "state": state, "message": message}
    )
