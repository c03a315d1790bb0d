"""The plan for a ControllerGroup: which rules apply, in which order.

A pure function of the observation and the time, like the plan for a BrokerGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.builders import controller_objects
from gantry_operator.models import Condition, ControllerGroupStatus
from gantry_operator.models.controller_group import LeaderStatus
from gantry_operator.plan.acceptance import Acceptance, accept_controller_group
from gantry_operator.plan.actions import Action, CheckAgain, EmitEvent, EnsureSecret, WriteStatus
from gantry_operator.plan.broker_steps import taking_in
from gantry_operator.plan.conditions import Conditions, find
from gantry_operator.plan.controller_steps import caught_up, leader_pod, roll_controllers
from gantry_operator.plan.events import controller_events
from gantry_operator.plan.objects import ensure
from gantry_operator.plan.observed import ControllerObserved, Unreachable
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.workload import workload

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.plan.broker_steps import Step

STEP_CHECK_S = 2.0
UNSETTLED_CHECK_S = 5.0


def plan_controller_group(seen: ControllerObserved, now: dt.datetime) -> list[Action]:
    """All that is to be done now, in order."""
    if seen.meta.deletion_timestamp is not None:
        return []  # garbage collection removes what it owns; no finalizer stands in the way
    statefulset = seen.objects.get(("StatefulSet", names.controller_statefulset(seen.meta.name)))
    accepted = accept_controller_group(seen.group, seen.invalid, statefulset, seen.refusals)
    actions: list[Action] = []
    step = None
    if accepted.usable and seen.group is not None and not seen.group.spec.paused:
        if not seen.has_secret:  # before the pods that mount it
            actions.append(EnsureSecret(name=names.admin_secret(seen.meta.name)))
        actions += ensure(controller_objects(seen.group, image=seen.image), seen.objects)
        load = workload(statefulset, seen.pods)
        if load is not None and load.revision is not None and accepted.accepted:
            step = roll_controllers(seen.quorum, load)
        step = step or taking_in(actions, load)
    status = _status(seen, accepted, step, now)
    body = status.to_object()
    if body != seen.live_status:
        actions.append(WriteStatus(status=body))
    actions += controller_events(seen.previous, status)
    if step is not None and step.action is not None:
        actions.append(EmitEvent(type="Normal", reason=step.reason, note=step.message))
        actions.append(step.action)
    return actions + _check_again(status, step)


def _status(
    seen: ControllerObserved, accepted: Acceptance, step: Step | None, now: dt.datetime
) -> ControllerGroupStatus:
    old = seen.previous or ControllerGroupStatus(observed_generation=0)
    ready = sum(pod.ready for pod in seen.pods)
    wished = seen.group.spec.replicas if seen.group else len(seen.pods)
    return old.model_copy(
        update={
            "observed_generation": seen.meta.generation,
            "replicas": len(seen.pods),
            "ready_replicas": ready,
            "ready": f"{ready}/{wished}",
            "leader": old.leader if isinstance(seen.quorum, Unreachable) else _leader(seen),
            "conditions": _conditions(seen, accepted, step, now),
        }
    )


def _leader(seen: ControllerObserved) -> LeaderStatus | None:
    assert not isinstance(seen.quorum, Unreachable), "the caller has checked"
    pod = leader_pod(seen.quorum, seen.pods)
    if pod is None or seen.quorum.leader_id is None:
        return None
    return LeaderStatus(pod=pod.name, node_id=seen.quorum.leader_id, term=seen.quorum.term)


def _conditions(
    seen: ControllerObserved, accepted: Acceptance, step: Step | None, now: dt.datetime
) -> tuple[Condition, ...]:
    old = seen.previous.conditions if seen.previous else ()
    conditions = Conditions(old, seen.meta.generation, now)
    conditions.set(
        "Accepted", "True" if accepted.accepted else "False", accepted.reason, accepted.message
    )
    if isinstance(seen.quorum, Unreachable):
        for name in ("Available", "FullyReplicated"):
            reason = Reason.CONTROLLER_UNREACHABLE
            conditions.set(name, "Unknown", reason, seen.quorum.reason)
    else:
        _quorum(conditions, seen)
    _progressing(conditions, seen, step)
    if seen.group is not None and seen.group.spec.paused:
        conditions.set("Paused", "True", Reason.PAUSED_BY_SPEC, "spec.paused is true.")
    else:
        conditions.set("Paused", "False", Reason.ACTIVE, "spec.paused is not set.")
    return conditions.result()


def _quorum(conditions: Conditions, seen: ControllerObserved) -> None:
    """Available: the quorum has a leader. FullyReplicated: every member is caught up."""
    assert not isinstance(seen.quorum, Unreachable), "the caller has checked"
    leader = leader_pod(seen.quorum, seen.pods)
    if leader is None:
        text = "Controllers answer, but none of them leads; a majority has to be running."
        conditions.set("Available", "False", Reason.NO_LEADER, text)
    else:
        conditions.set("Available", "True", Reason.LEADER_ELECTED, f"{leader.name} leads.")
    wished = len(seen.quorum.peers)
    count = len(caught_up(seen.quorum, seen.pods))
    text = f"{count} of {wished} controllers are caught up."
    if count >= wished:
        conditions.set("FullyReplicated", "True", Reason.ALL_IN_SYNC, text)
    else:
        conditions.set("FullyReplicated", "False", Reason.REPLICA_CATCHING_UP, text)


def _progressing(conditions: Conditions, seen: ControllerObserved, step: Step | None) -> None:
    """Progressing: pods start, or are being replaced. It rests on pods only, so never Unknown."""
    if seen.group is None:
        conditions.keep("Progressing")
        return
    ready, wished = sum(pod.ready for pod in seen.pods), seen.group.spec.replicas
    if step is not None:
        conditions.set("Progressing", "True", step.reason, step.message)
    elif ready < wished:
        text = f"{ready} of {wished} pods are Ready."
        conditions.set("Progressing", "True", Reason.STARTING, text)
    else:
        conditions.set("Progressing", "False", Reason.SETTLED, "Nothing is under way.")


def _check_again(status: ControllerGroupStatus, step: Step | None) -> list[Action]:
    if step is not None:
        return [CheckAgain(after_s=STEP_CHECK_S)]
    wanted = (find(status.conditions, name) for name in ("Available", "FullyReplicated"))
    if all(condition is not None and condition.status == "True" for condition in wanted):
        return []
    return [CheckAgain(after_s=UNSETTLED_CHECK_S)]
