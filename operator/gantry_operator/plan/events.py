"""Events about a resource: what changed since the status was last written.

They follow from two statuses, so a repeated reconcile repeats none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator.plan import additions
from gantry_operator.plan.actions import Action, EmitEvent
from gantry_operator.plan.approval import told
from gantry_operator.plan.conditions import find
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.shards import known_groups
from gantry_operator.plan.tier import CONDITION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.models import (
        BrokerGroupStatus,
        Condition,
        ControllerGroupStatus,
        FrontGroupStatus,
    )
    from gantry_operator.plan.observed import BrokerObserved

_ON_PURPOSE = (Reason.HIBERNATING, Reason.HIBERNATED)
_WARNED = (
    ("Progressing", Reason.POD_CRASHING),
    ("Progressing", Reason.DRAIN_REFUSED),
    (additions.CONDITION, Reason.ALTERED_BY_OTHERS),
)


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
    events += _forgotten(old, new)
    events += _held(old, new)
    queues = (old.queues or 0) if old else 0
    if (new.queues or 0) != queues:
        note = f"It has {new.queues or 0} queues of mapped topics now, {queues} before."
        events.append(EmitEvent(type="Normal", reason=Reason.QUEUES_MOVED, note=note))
    if new.drain is not None and (old is None or old.drain is None):
        note = new.drain.message
        events.append(EmitEvent(type="Normal", reason=Reason.DRAINING, note=note))
    served = old is not None and old.master is not None
    before_all = old.conditions if old else ()
    return (
        events
        + _turned_false(before_all, new.conditions, served=served)
        + _warnings(before_all, new.conditions)
        + _tier_events(old, new)
    )


def _forgotten(old: BrokerGroupStatus | None, new: BrokerGroupStatus) -> list[Action]:
    """The outcome of a request to forget a member, once."""
    request = new.forget
    if request is None or request.state == "InProgress" or (old and old.forget == request):
        return []
    note = f"Forget {request.id}, broker {request.broker_id}: {request.message}"
    if request.state == "Completed":
        return [EmitEvent(type="Normal", reason=Reason.MEMBER_FORGOTTEN, note=note)]
    return [EmitEvent(type="Warning", reason=Reason.FORGET_REFUSED, note=note)]


def _held(old: BrokerGroupStatus | None, new: BrokerGroupStatus) -> list[Action]:
    """A change that waits for a person, once for each."""
    waits, before = new.pending_change, old.pending_change if old else None
    if waits is None or (before is not None and before.id == waits.id):
        return []
    note = f"Waiting for approval of {waits.id}: {told(waits)}."
    return [EmitEvent(type="Normal", reason=Reason.WAITING_FOR_APPROVAL, note=note)]


def drain_ended(seen: BrokerObserved) -> list[Action]:
    """The end of a drain: a warning if something is left."""
    drain = seen.previous.drain if seen.previous else None
    left = any(
        member.drain is not None and not member.drain.done
        for group in known_groups(seen)
        for member in group.view.members
    )
    if drain is None or not left:
        note = "Nothing is left to be consumed here." if drain is not None else ""
        return [EmitEvent(type="Normal", reason=Reason.DRAIN_ENDED, note=note)] if note else []
    note = f"It goes with {drain.progress}, which nobody consumed in time."
    return [EmitEvent(type="Warning", reason=Reason.DRAIN_ENDED, note=note)]


def _tier_events(old: BrokerGroupStatus | None, new: BrokerGroupStatus) -> list[Action]:
    """Each new holder of the tier, and each new reason why nothing is uploaded."""
    events: list[Action] = []
    before = old.tier if old else None
    former = before.epoch if before is not None else 0
    if new.tier is not None and new.tier.epoch not in (0, former):  # 0: of many shards
        who = new.master.pod if new.master is not None else None
        note = f"{who or 'The master'} uploads to the tier from epoch {new.tier.epoch} on."
        events.append(EmitEvent(type="Normal", reason=Reason.TIER_CLAIMED, note=note))
    healthy, was = find(new.conditions, CONDITION), find(old.conditions if old else (), CONDITION)
    if healthy is None or healthy.status != "False":
        return events
    if was is None or (was.status, was.reason) != ("False", healthy.reason):
        events.append(_warning(healthy))
    return events


def controller_events(
    old: ControllerGroupStatus | None, new: ControllerGroupStatus, uid: str = ""
) -> list[Action]:
    """Changes of a ControllerGroup, whose own uid is `uid`, that people want to read about."""
    events: list[Action] = []
    taken_up = new.cluster_uid not in (None, uid)
    if taken_up and (old is None or old.cluster_uid != new.cluster_uid):
        note = f"The quorum runs as {new.cluster_uid}, whose volumes it takes up."
        events.append(EmitEvent(type="Normal", reason=Reason.VOLUMES_TAKEN_UP, note=note))
    deleting, was = (
        find(new.conditions, "Progressing"),
        find(old.conditions if old else (), "Progressing"),
    )
    told = was is not None and deleting is not None and was.message == deleting.message
    if deleting is not None and deleting.reason == Reason.DELETING and not told:
        events.append(_warning(deleting))
    before = old.leader if old else None
    if new.leader is not None and (before is None or before.pod != new.leader.pod):
        note = f"{new.leader.pod} leads in term {new.leader.term}."
        events.append(EmitEvent(type="Normal", reason=Reason.LEADER_ELECTED, note=note))
    served = old is not None and old.leader is not None
    conditions = old.conditions if old else ()
    events += _turned_false(conditions, new.conditions, served=served)
    return events + _warnings(conditions, new.conditions)


def front_events(old: FrontGroupStatus | None, new: FrontGroupStatus) -> list[Action]:
    """Changes of a FrontGroup that people want to read about."""
    events: list[Action] = []
    before, conditions = (old.address, old.conditions) if old else (None, ())
    if new.address is not None and new.address != before:
        note = f"Clients are led to {new.address}."
        events.append(EmitEvent(type="Normal", reason=Reason.FRONTS_DECLARED, note=note))
    elif before is not None and new.address is None:
        note = "Clients are led to the brokers again."
        events.append(EmitEvent(type="Warning", reason=Reason.FRONTS_NOT_DECLARED, note=note))
    events += _turned_false(conditions, new.conditions, served=before is not None)
    return events + _warnings(conditions, new.conditions)


def _moved(old: BrokerGroupStatus, new: BrokerGroupStatus) -> bool:
    assert old.master is not None, "checked by the caller"
    assert new.master is not None, "checked by the caller"
    return old.master.epoch != new.master.epoch


def _turned_false(
    old: Iterable[Condition], new: Iterable[Condition], *, served: bool
) -> list[Action]:
    """Warnings: the spec is not accepted (for this reason), or what served serves no more.

    What only comes up has lost nothing, so nothing is said unless it `served` before.
    """
    before = list(old)
    events: list[Action] = []
    accepted, was = find(new, "Accepted"), find(before, "Accepted")
    if accepted is not None and accepted.status == "False":
        same = was is not None and (was.status, was.reason) == ("False", accepted.reason)
        if not same:
            events.append(_warning(accepted))
    available, was = find(new, "Available"), find(before, "Available")
    lost = (
        available is not None
        and available.status == "False"
        and available.reason not in _ON_PURPOSE
    )
    if lost and served and was is not None and was.status != "False":
        assert available is not None, "checked above"
        events.append(_warning(available))
    return events


def _warnings(old: Iterable[Condition], new: Iterable[Condition]) -> list[Action]:
    """Warnings of `_WARNED`, such as a process that ends in errors; once for the same words."""
    events: list[Action] = []
    for name, reason in _WARNED:
        condition, was = find(new, name), find(old, name)
        if condition is None or condition.reason != reason:
            continue
        if was is None or (was.reason, was.message) != (condition.reason, condition.message):
            events.append(_warning(condition))
    return events


def _warning(condition: Condition) -> EmitEvent:
    return EmitEvent(type="Warning", reason=condition.reason, note=condition.message)
