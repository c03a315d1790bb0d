"""The plan for a ControllerGroup: which rules apply, in which order.

A pure function of the observation and the time, like the plan for a BrokerGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.builders import controller_objects
from gantry_operator.models import Condition, ControllerGroupStatus
from gantry_operator.models.controller_group import LeaderStatus
from gantry_operator.plan.acceptance import Acceptance, accept_controller_group
from gantry_operator.plan.actions import Action, CheckAgain, EmitEvent, EnsureSecret, WriteStatus
from gantry_operator.plan.additions import report_additions
from gantry_operator.plan.broker_steps import may_tell_crash, taking_in
from gantry_operator.plan.conditions import Conditions, crashing, find
from gantry_operator.plan.controller_steps import caught_up, leader_pod, roll_controllers
from gantry_operator.plan.crashes import crash_loop, crash_words
from gantry_operator.plan.deletion import (
    FOREGROUND,
    held_by,
    is_held,
    keep_quorum_finalizer,
)
from gantry_operator.plan.events import controller_events
from gantry_operator.plan.growth import (
    NOTHING,
    RETRY_S,
    as_growth,
    grow,
    template_size,
    wished_last,
    with_outdated,
)
from gantry_operator.plan.headline import headline
from gantry_operator.plan.objects import ensure, surplus
from gantry_operator.plan.reasons import GROWTH, Reason
from gantry_operator.plan.turns import with_check
from gantry_operator.plan.volumes import Identity, identity, marks
from gantry_operator.plan.workload import workload

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.plan.broker_steps import PlanStep
    from gantry_operator.plan.observed import ControllerObserved

STEP_CHECK_S = 2.0
UNSETTLED_CHECK_S = 5.0


def plan_controller_group(seen: ControllerObserved, now: dt.datetime) -> list[Action]:
    """All that is to be done now, in order."""
    finalizer = keep_quorum_finalizer(seen)
    if seen.meta.deletion_timestamp is not None and not is_held(seen):
        return [*finalizer]  # garbage collection removes what it owns
    statefulset = seen.objects.get(("StatefulSet", names.controller_statefulset(seen.meta.name)))
    known = identity(seen.group, statefulset, seen.claims) if seen.group is not None else None
    accepted = accept_controller_group(seen.group, seen.invalid, statefulset, seen.refusals, known)
    actions: list[Action] = [*finalizer]
    step, growth = None, NOTHING
    if _acts(seen, accepted):
        assert seen.group is not None, "an accepted resource has been parsed"
        assert known is not None, "as above"
        # Before the pods that mount them.
        actions += [EnsureSecret(name=name) for name in seen.missing_secrets]
        wished = controller_objects(
            seen.group,
            image=seen.image,
            operator_namespace=seen.operator_namespace,
            cluster_uid=known.uid,
            claim_size=template_size(seen.group.spec.storage, statefulset, seen.volumes or ()),
        )
        actions += ensure(wished, seen.objects)
        actions += surplus(seen.meta.uid, wished, seen.objects)
        actions += marks(seen, known.uid, seen.claims) if statefulset is not None else ()
        load = workload(statefulset, seen.pods)
        growth = grow(
            seen,
            seen.group.spec.storage,
            load,
            now,
            noted=wished_last(statefulset),
            last=_leaders(seen),
        )
        actions += growth.claims
        if load is not None and load.revision is not None and accepted.accepted:
            step = roll_controllers(seen.quorum, load)
            if step is None and growth.restart:
                waiting = with_outdated(load, growth.restart)
                step = as_growth(roll_controllers(seen.quorum, waiting))
        step = step or taking_in(actions, load) or growth.step
    status = _status(seen, accepted, step, known, now, grown=growth.extent)
    body = status.to_object()
    if body != seen.live_status:
        actions.append(WriteStatus(status=body))
    actions += controller_events(seen.previous, status, seen.meta.uid)
    if step is not None and step.action is not None:
        actions.append(EmitEvent(type="Normal", reason=step.reason, note=step.message))
        actions.append(step.action)
    return with_check(seen.image_wait, actions + _check_again(status, step))


def _leaders(seen: ControllerObserved) -> tuple[str, ...]:
    if isinstance(seen.quorum, Unreachable):
        return ()
    leader = leader_pod(seen.quorum, seen.pods)
    return () if leader is None else (leader.name,)


def _acts(seen: ControllerObserved, accepted: Acceptance) -> bool:
    """Whether objects are kept: not while they are being collected before their owner."""
    if not accepted.usable or seen.group is None or seen.group.spec.paused:
        return False
    return seen.meta.deletion_timestamp is None or FOREGROUND not in seen.meta.finalizers


def _status(
    seen: ControllerObserved,
    accepted: Acceptance,
    step: PlanStep | None,
    known: Identity | None,
    now: dt.datetime,
    *,
    grown: str,
) -> ControllerGroupStatus:
    old = seen.previous or ControllerGroupStatus(observed_generation=0)
    ready = sum(pod.ready for pod in seen.pods)
    wished = seen.group.spec.replicas if seen.group else len(seen.pods)
    conditions = _conditions(seen, accepted, step, now)
    return old.model_copy(
        update={
            "observed_generation": seen.meta.generation,
            "replicas": len(seen.pods),
            "ready_replicas": ready,
            "ready": f"{ready}/{wished}",
            "leader": old.leader if isinstance(seen.quorum, Unreachable) else _leader(seen),
            "cluster_uid": known.uid if known and known.uid else old.cluster_uid,
            "summary": headline(
                conditions,
                extents=_extents(seen, f"{ready}/{wished}") | dict.fromkeys(GROWTH, grown),
                ending=held_by(seen).short if is_held(seen) else "",
                crash=crash_words(seen.pods, now),
            ),
            "conditions": conditions,
        }
    )


def _extents(seen: ControllerObserved, ready: str) -> dict[str, str]:
    extents: dict[str, str] = {Reason.STARTING: ready}
    load = workload(
        seen.objects.get(("StatefulSet", names.controller_statefulset(seen.meta.name))), seen.pods
    )
    if load is not None:
        extents[Reason.ROLLING_UPDATE] = load.replaced()
    if not isinstance(seen.quorum, Unreachable):
        count = len(caught_up(seen.quorum, seen.pods))
        extents[Reason.REPLICA_CATCHING_UP] = f"{count}/{len(seen.quorum.peers)}"
    return extents


def _leader(seen: ControllerObserved) -> LeaderStatus | None:
    assert not isinstance(seen.quorum, Unreachable), "the caller has checked"
    pod = leader_pod(seen.quorum, seen.pods)
    if pod is None or seen.quorum.leader_id is None:
        return None
    return LeaderStatus(pod=pod.name, node_id=seen.quorum.leader_id, term=seen.quorum.term)


def _conditions(
    seen: ControllerObserved, accepted: Acceptance, step: PlanStep | None, now: dt.datetime
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
    _progressing(conditions, seen, step, crash_loop(seen.pods, now))
    report_additions(conditions, seen.objects)
    if seen.group is not None and seen.group.spec.paused:
        conditions.set("Paused", "True", Reason.PAUSED_BY_SPEC, "spec.paused is true.")
    else:
        conditions.set("Paused", "False", Reason.ACTIVE, "spec.paused is not set.")
    conditions.sum_up()
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


def _progressing(
    conditions: Conditions, seen: ControllerObserved, step: PlanStep | None, crashes: str
) -> None:
    """Progressing: pods start, or are being replaced. It rests on pods only, so never Unknown."""
    if seen.group is None:
        conditions.keep("Progressing")
        return
    ready, wished = sum(pod.ready for pod in seen.pods), seen.group.spec.replicas
    if seen.meta.deletion_timestamp is not None:
        conditions.set("Progressing", "True", Reason.DELETING, held_by(seen).text)
    elif crashes and may_tell_crash(step):
        conditions.set("Progressing", "True", Reason.POD_CRASHING, crashes)
    elif step is not None:
        refused = step.reason == Reason.VOLUME_EXPANSION_REFUSED
        conditions.set("Progressing", "False" if refused else "True", step.reason, step.message)
    elif ready < wished:
        text = f"{ready} of {wished} pods are Ready."
        conditions.set("Progressing", "True", Reason.STARTING, text)
    elif seen.image_wait is not None:
        text = seen.image_wait.describe(seen.image)
        conditions.set("Progressing", "False", Reason.WAITING_FOR_TURN, text)
    else:
        conditions.set("Progressing", "False", Reason.SETTLED, "Nothing is under way.")


def _check_again(status: ControllerGroupStatus, step: PlanStep | None) -> list[Action]:
    refused = step is not None and step.reason == Reason.VOLUME_EXPANSION_REFUSED
    if step is not None and not refused:
        return [CheckAgain(after_s=STEP_CHECK_S)]
    wanted = (find(status.conditions, name) for name in ("Available", "FullyReplicated"))
    settled = all(condition is not None and condition.status == "True" for condition in wanted)
    if settled and not crashing(status.conditions):
        return [CheckAgain(after_s=RETRY_S)] if refused else []
    return [CheckAgain(after_s=UNSETTLED_CHECK_S)]
