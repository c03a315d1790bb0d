"""Events about a resource: what changed since the status was last written.

They follow from two statuses, so a repeated reconcile repeats none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator.plan.actions import Action, EmitEvent
from gantry_operator.plan.conditions import find
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.models import BrokerGroupStatus, Condition, ControllerGroupStatus


def broker_events(old: BrokerGroupStatus | None, new: BrokerGroupStatus) -> list[Action]:
    """Changes of a BrokerGroup that people want to read about."""
    events: list[Action] = []
    if new.master is not None and (old is None or old.master is None or _moved(old, new)):
        who = new.master.pod or f"Broker {new.master.broker_id}"
        note = f"{who} became master at epoch {new.master.epoch}."
        events.append(EmitEvent(type="Normal", reason=Reason.MASTER_ELECTED, note=note))
    request, before = new.switchover, old.switchover if old else None
    if request is not None and request != before and request.state != "InProgress":
        completed = request.state == "Completed"
        events.append(
            EmitEvent(
                type="Normal" if completed else "Warning",
                reason=Reason.SWITCHOVER_COMPLETED if completed else Reason.SWITCHOVER_REFUSED,
                note=f"Switchover {request.id}: {request.message}",
            )
        )
    return events + _turned_false(old.conditions if old else (), new.conditions)


def controller_events(
    old: ControllerGroupStatus | None, new: ControllerGroupStatus
) -> list[Action]:
    """Changes of a ControllerGroup that people want to read about."""
    events: list[Action] = []
    before = old.leader if old else None
    if new.leader is not None and (before is None or before.pod != new.leader.pod):
        note = f"{new.leader.pod} leads in term {new.leader.term}."
        events.append(EmitEvent(type="Normal", reason=Reason.LEADER_ELECTED, note=note))
    return events + _turned_false(old.conditions if old else (), new.conditions)


def _moved(old: BrokerGroupStatus, new: BrokerGroupStatus) -> bool:
    assert old.master is not None, "checked by the caller"
    assert new.master is not None, "checked by the caller"
    return old.master.epoch != new.master.epoch


def _turned_false(old: Iterable[Condition], new: Iterable[Condition]) -> list[Action]:
    """Warnings about conditions that are False now and were not, or are for another reason."""
    events: list[Action] = []
    before = list(old)
    for name in ("Accepted", "Available"):
        condition, was = find(new, name), find(before, name)
        if condition is None or condition.status != "False":
            continue
        fresh = was is None and name == "Available"  # every group starts without a master
        same = was is not None and (was.status, was.reason) == ("False", condition.reason)
        if not fresh and not same:
            note = condition.message
            events.append(EmitEvent(type="Warning", reason=condition.reason, note=note))
    return events
