"""The switchover request of a BrokerGroup: carried out once per id, reported in status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator.models import SwitchoverStatus
from gantry_operator.plan.actions import Elect
from gantry_operator.plan.broker_steps import PlanStep
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from gantry_protocol.admin import MemberView

    from gantry_operator.models.broker_group import Switchover
    from gantry_operator.plan.members import ObservedGroup

Result = tuple[SwitchoverStatus | None, PlanStep | None]


def switchover(
    group: ObservedGroup, request: Switchover | None, old: SwitchoverStatus | None
) -> Result:
    """Rule: the mastership moves to the requested replica, if that is safe now.

    Safe because only a member of the sync-state set that is alive and not draining can be asked
    for, and the controllers check the set and the epoch again. What cannot be done now is refused
    for good: a switch that came true much later, because a replica happened to catch up, would
    surprise whoever asked. The chosen replica is written to status before the election is asked
    for, so a lost answer is not followed by a second, different choice.
    """
    if request is None:
        return old, None
    begun = old if old is not None and old.id == request.id else None
    if begun is not None and begun.state != "InProgress":
        return _ended(request, begun), None
    chosen = begun.to if begun is not None else request.to
    master = group.master()
    if master is None:
        return begun, None
    target = _target(group, chosen)
    if isinstance(target, str):
        return _report(request, chosen, "Refused", target), None
    pod = group.pod_of(target)
    ordinal = pod.ordinal if pod else chosen
    if target.broker_id == master.broker_id:
        text = f"Replica {ordinal} is the master, at epoch {group.view.master_epoch}."
        return _report(request, ordinal, "Completed", text), None
    text = f"Moving the mastership to replica {ordinal}."
    action = Elect(broker_id=target.broker_id, master_epoch=group.view.master_epoch)
    return (
        _report(request, ordinal, "InProgress", text),
        PlanStep(Reason.SWITCHOVER_IN_PROGRESS, text, action),
    )


def _ended(request: Switchover, old: SwitchoverStatus) -> SwitchoverStatus:
    """What became of an id that is used up; another replica under the same id is refused aloud."""
    if request.to is None or request.to == old.to:
        return old
    text = f"The id {request.id} was used up before: choose a new id to move to {request.to}."
    return _report(request, request.to, "Refused", text)


def _target(group: ObservedGroup, ordinal: int | None) -> MemberView | str:
    """The member to elect, or why there is none."""
    if ordinal is None:
        return group.successor() or "No other replica is Ready and in sync."
    member = group.at_ordinal(ordinal)
    if member is None:
        return f"Replica {ordinal} does not exist or has not registered with the controllers."
    if member.broker_id == group.view.master_broker_id:
        return member
    if member.fenced:
        return f"Replica {ordinal} is fenced: take it out of spec.fenced first."
    if member.broker_id not in group.in_sync():
        return f"Replica {ordinal} is not in sync; it would lose acknowledged messages."
    return member


def _report(request: Switchover, to: int | None, state: str, message: str) -> SwitchoverStatus:
    return SwitchoverStatus.model_validate(
        {"id": request.id, "to": to, "state": state, "message": message}
    )
