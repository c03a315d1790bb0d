"""The plan for a BrokerGroup: which rules apply, in which order.

A pure function of the observation and the time. It may be called at any moment, any number of
times, by anybody: it starts from what is, never from what was done last. At most one action of a
plan is disruptive, and the status that tells about it is written before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin import GroupView
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.builders import Manifest, broker_objects
from gantry_operator.plan import steady
from gantry_operator.plan.acceptance import Acceptance, accept_broker_group
from gantry_operator.plan.actions import (
    Action,
    CheckAgain,
    EmitEvent,
    SetFinalizer,
    WriteStatus,
)
from gantry_operator.plan.broker_status import broker_status
from gantry_operator.plan.broker_steps import PlanStep, rolling_update, scale_down, taking_in
from gantry_operator.plan.conditions import crashing, find
from gantry_operator.plan.deletion import delete_broker_group, deletion_waits_for
from gantry_operator.plan.events import broker_events
from gantry_operator.plan.members import ObservedGroup
from gantry_operator.plan.minimum import minimum_now
from gantry_operator.plan.objects import container, ensure, surplus
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.switchover import switchover
from gantry_operator.plan.tier import REFRESH_S, has_tier
from gantry_operator.plan.turns import with_check
from gantry_operator.plan.workload import Workload, workload

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.models import BrokerGroup, BrokerGroupStatus, SwitchoverStatus
    from gantry_operator.plan.observed import BrokerObserved

STEP_CHECK_S = 2.0
"""While a step is under way. Events usually come sooner; this is for those that do not come."""
UNSETTLED_CHECK_S = 5.0
"""While anything is not as wished."""


def plan_broker_group(seen: BrokerObserved, now: dt.datetime) -> list[Action]:
    """All that is to be done now, in order."""
    statefulset = seen.objects.get(("StatefulSet", names.broker_statefulset(seen.meta.name)))
    accepted = accept_broker_group(seen, statefulset)
    joined = ObservedGroup(seen.view, seen.pods) if isinstance(seen.view, GroupView) else None
    load = workload(statefulset, seen.pods)
    old_switchover = seen.previous.switchover if seen.previous else None
    if seen.meta.deletion_timestamp is not None:
        steps = delete_broker_group(seen)
        if any(isinstance(action, SetFinalizer) for action in steps):
            return steps  # the last one; a status before it would be another version
        ending = PlanStep(Reason.DELETING, deletion_waits_for(seen))
        status = broker_status(seen, accepted, joined, ending, old_switchover, now)
        return [*_write(seen, status), *steps]
    actions = _for_clients(seen, joined)
    moved, step = old_switchover, None
    acting = accepted.usable and seen.group is not None and not seen.group.spec.paused
    if acting:
        assert seen.group is not None, "an accepted resource has been parsed"
        actions += _ensure(seen, seen.group, load)
        moved, step = _next_step(seen, seen.group, accepted, joined, load)
        step = step or taking_in(actions, load)
        if joined is not None and step is None:
            actions += steady.forget_gone(joined, load, seen.group.spec.replicas)
    status = broker_status(seen, accepted, joined, step, moved, now)
    actions += _report(seen, status, step) + _check_again(seen, status, step)
    return with_check(seen.image_wait, actions)


def _for_clients(seen: BrokerObserved, joined: ObservedGroup | None) -> list[Action]:
    """What clients wait for; no object that the API server is slow about or refuses comes before.

    Traffic first: kube-proxy follows the first change of endpoints at once, and the next ones a
    second later (its minSyncPeriod).
    """
    if joined is None:
        return []
    actions: list[Action] = []
    if seen.group is not None:
        in_force = minimum_now(joined.view, seen.group.spec.min_in_sync)
        actions += steady.route_traffic(joined, in_force)
    actions += steady.label_roles(joined)
    actions += steady.report_gone(joined)
    return actions


def _ensure(seen: BrokerObserved, group: BrokerGroup, load: Workload | None) -> list[Action]:
    # Scaling up is applied at once; scaling down is a disruptive step of its own.
    replicas = max(group.spec.replicas, load.replicas if load else 0)
    actions: list[Action] = []
    actions += steady.keep_finalizer(seen, group)
    wished = _objects(seen, group, replicas)
    actions += ensure(wished, seen.objects)
    actions += surplus(seen.meta.uid, wished, seen.objects)
    actions += steady.declare_group(seen, group, replicas)
    return actions


def _objects(seen: BrokerObserved, group: BrokerGroup, replicas: int) -> list[Manifest]:
    assert seen.controllers is not None, "an accepted resource has controllers"
    return broker_objects(
        group,
        seen.controllers,
        image=seen.image,
        replicas=replicas,
        door=_knows_doors(seen, group.spec.image or seen.image),
    )


def _knows_doors(seen: BrokerObserved, image: str) -> bool:
    """Rule: a group gets its doors with the first image that an operator with doors gives it.

    One that it has had before may be older than doors: that of a group that waits for its turn, and
    one that its spec names. A door would end there again and again, and no pod would be Ready.
    """
    live = seen.objects.get(("StatefulSet", names.broker_statefulset(seen.meta.name)))
    if live is None or names.ANNOTATION_DOORS in (live["metadata"].get("annotations") or {}):
        return True
    broker = container(live, names.BROKER)
    return broker is not None and broker.get("image") != image


def _next_step(
    seen: BrokerObserved,
    group: BrokerGroup,
    accepted: Acceptance,
    joined: ObservedGroup | None,
    load: Workload | None,
) -> tuple[SwitchoverStatus | None, PlanStep | None]:
    """The disruptive rules by rank; the first that has something to do or to wait for decides.

    Premises of all of them: the controllers know the group, and the StatefulSet exists and is seen
    as it is by its own controller. Without these, nothing disruptive is even considered.
    """
    old = seen.previous.switchover if seen.previous else None
    if joined is None or load is None or load.revision is None or not accepted.accepted:
        return old, None
    moved, step = switchover(joined, group.spec.switchover, old)
    minimum = group.spec.min_in_sync
    if step is None:
        manifest = _objects(seen, group, max(load.replicas - 1, group.spec.replicas))[-1]
        step = scale_down(
            joined, load, wished=group.spec.replicas, min_in_sync=minimum, manifest=manifest
        )
    if step is None:
        step = rolling_update(joined, load, min_in_sync=minimum)
    return moved, step


def _report(seen: BrokerObserved, status: BrokerGroupStatus, step: PlanStep | None) -> list[Action]:
    actions: list[Action] = [*_write(seen, status)]
    actions += broker_events(seen.previous, status)
    if step is not None and step.action is not None:
        actions.append(EmitEvent(type="Normal", reason=step.reason, note=step.message))
        actions.append(step.action)
    return actions


def _write(seen: BrokerObserved, status: BrokerGroupStatus) -> list[WriteStatus]:
    body = status.to_object()
    return [] if body == seen.live_status else [WriteStatus(status=body)]


def _check_again(
    seen: BrokerObserved, status: BrokerGroupStatus, step: PlanStep | None
) -> list[Action]:
    if step is not None:
        return [CheckAgain(after_s=STEP_CHECK_S)]
    settled = all(
        condition is not None and condition.status == wanted
        for name, wanted in (("Available", "True"), ("FullyReplicated", "True"))
        for condition in [find(status.conditions, name)]
    )
    if settled and not crashing(status.conditions) and not isinstance(seen.view, Unreachable):
        return [CheckAgain(after_s=REFRESH_S)] if has_tier(seen) else []
    return [CheckAgain(after_s=UNSETTLED_CHECK_S)]
