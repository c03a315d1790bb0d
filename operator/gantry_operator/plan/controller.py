"""The plan for a ControllerGroup: which rules apply, in which order.

A pure function of the observation and the time, like the plan for a BrokerGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.builders import controller_objects
from gantry_operator.builders.config import NEWEST_LIVE_OF_CONTROLLERS, toml
from gantry_operator.models import Condition, ControllerGroupStatus
from gantry_operator.models.controller_group import LeaderStatus, QuorumMember
from gantry_operator.plan.acceptance import Acceptance, accept_controller_group
from gantry_operator.plan.actions import (
    Action,
    ChangeMembers,
    CheckAgain,
    DeletePod,
    EmitEvent,
    EnsureSecret,
    RenewFiles,
    ScaleDown,
    WriteStatus,
)
from gantry_operator.plan.additions import report_additions
from gantry_operator.plan.broker_steps import PlanStep, may_tell_crash, taking_in
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
from gantry_operator.plan.listener_tls import LOOK_S
from gantry_operator.plan.listeners import name_service_status, report_name_service
from gantry_operator.plan.live_settings import (
    applies_live,
    applying,
    live_now,
    live_text,
    renew,
    told_by_controllers,
)
from gantry_operator.plan.objects import ensure, surplus
from gantry_operator.plan.quorum_size import (
    SizeStep,
    founding_size,
    next_step,
    size_to_tell,
    told_size,
    voting,
)
from gantry_operator.plan.reasons import GROWTH, Reason
from gantry_operator.plan.turns import with_check
from gantry_operator.plan.volumes import Identity, identity, marks
from gantry_operator.plan.workload import starting, workload

if TYPE_CHECKING:
    import datetime as dt

    from gantry_protocol.admin import PeerView, QuorumView

    from gantry_operator.builders import Manifest
    from gantry_operator.models import ControllerGroup
    from gantry_operator.plan.observed import Body, ControllerObserved
    from gantry_operator.plan.workload import Workload

_ROLES: dict[str, Literal["Voter", "Learner"]] = {"voter": "Voter", "learner": "Learner"}
_REFUSED_FOR_NOW = (Reason.VOLUME_EXPANSION_REFUSED, Reason.SETTINGS_REFUSED)
STEP_CHECK_S = 2.0
UNSETTLED_CHECK_S = 5.0


def plan_controller_group(seen: ControllerObserved, now: dt.datetime) -> list[Action]:
    """All that is to be done now, in order."""
    finalizer = keep_quorum_finalizer(seen)
    if seen.meta.deletion_timestamp is not None and not is_held(seen):
        return [*finalizer]  # garbage collection removes what it owns
    statefulset = _statefulset(seen)
    known = identity(seen.group, statefulset, seen.claims) if seen.group is not None else None
    accepted = accept_controller_group(seen.group, seen.invalid, statefulset, seen.refusals, known)
    actions: list[Action] = [*finalizer]
    step, growth, voters = None, NOTHING, voting(seen.quorum)
    if _acts(seen, accepted):
        assert seen.group is not None, "an accepted resource has been parsed"
        assert known is not None, "as above"
        # Before the pods that mount them.
        actions += [EnsureSecret(name=name) for name in seen.missing_secrets]
        load = workload(statefulset, seen.pods)
        may_step = load is not None and load.revision is not None and accepted.steps
        sizing = _sizing(seen, seen.group, load) if load is not None else None
        if load is not None and may_step:
            rolling = roll_controllers(seen.quorum, load, voters)
            step, sizing = _first(seen.group, load, rolling, sizing, voters)
        replicas = load.replicas if load is not None else seen.group.spec.replicas
        starts = may_step and sizing is not None and sizing.change == "start"
        wished = _objects(seen, seen.group, known, replicas + starts)
        actions += ensure(wished, seen.objects)
        actions += surplus(seen.meta.uid, wished, seen.objects)
        if load is not None and load.replicas == seen.group.spec.replicas and sizing is None:
            actions += marks(seen, known.uid, seen.claims, voters)
        growth = grow(
            seen,
            seen.group.spec.storage,
            load,
            now,
            noted=wished_last(statefulset),
            last=_leaders(seen),
        )
        actions += growth.claims
        if load is not None and may_step and sizing is not None and step is None:
            step = _as_step(seen, seen.group, known, load, sizing)
        if load is not None and may_step and step is None and growth.restart:
            waiting = with_outdated(load, growth.restart)
            step = as_growth(roll_controllers(seen.quorum, waiting, voters))
        renewed, tuning = _settings(seen, seen.group)
        actions += renewed
        step = step or taking_in(actions, load) or growth.step or tuning
    status = _status(seen, accepted, step, known, now, grown=growth.extent)
    body = status.to_object()
    if body != seen.live_status:
        actions.append(WriteStatus(status=body))
    actions += controller_events(seen.previous, status, seen.meta.uid)
    if step is not None and step.action is not None:
        actions.append(EmitEvent(type="Normal", reason=step.reason, note=step.message))
        actions.append(step.action)
    return with_check(seen.image_wait, actions + _check_again(seen, status, step))


def _statefulset(seen: ControllerObserved) -> Body | None:
    return seen.objects.get(("StatefulSet", names.controller_statefulset(seen.meta.name)))


def _objects(
    seen: ControllerObserved, group: ControllerGroup, known: Identity, replicas: int
) -> list[Manifest]:
    statefulset = _statefulset(seen)
    founders = _founders(seen, group)
    return controller_objects(
        group,
        image=seen.image,
        operator_namespace=seen.operator_namespace,
        cluster_uid=known.uid,
        claim_size=template_size(group.spec.storage, statefulset, seen.volumes or ()),
        replicas=replicas,
        founders=founders,
        size=founders
        if statefulset is None
        else size_to_tell(replicas, seen.quorum, _told(seen, founders)),
        live=live_now(
            statefulset,
            names.CONTROLLER,
            group.spec.image or seen.image,
            NEWEST_LIVE_OF_CONTROLLERS,
        ),
    )


def _settings(
    seen: ControllerObserved, group: ControllerGroup
) -> tuple[list[RenewFiles], PlanStep | None]:
    """Settings that controllers apply while running."""
    statefulset = _statefulset(seen)
    if not applies_live(statefulset) or isinstance(seen.quorum, Unreachable):
        return [], None
    there = live_text(seen.objects, names.controller_statefulset(seen.meta.name))
    last = find(seen.previous.conditions, "Progressing") if seen.previous else None
    under_way = last is not None and last.reason == Reason.APPLYING_SETTINGS
    told = told_by_controllers(seen.quorum, seen.pods)
    wished = toml(group.spec.config)
    return renew(told, there), applying(told, seen.pods, wished, under_way=under_way)


def _founders(seen: ControllerObserved, group: ControllerGroup) -> int:
    known = founding_size(seen.meta.name, seen.meta.namespace, _statefulset(seen))
    return known or group.spec.replicas


def _told(seen: ControllerObserved, founders: int) -> int:
    name = names.controller_statefulset(seen.meta.name)
    return told_size(seen.objects.get(("ConfigMap", name)), founders)


def _sizing(seen: ControllerObserved, group: ControllerGroup, load: Workload) -> SizeStep | None:
    name = names.controller_statefulset(seen.meta.name)
    return next_step(
        group.spec.replicas,
        load,
        seen.quorum,
        _told(seen, _founders(seen, group)),
        lambda number: names.pod(name, number - 1),
    )


def _first(
    group: ControllerGroup,
    load: Workload,
    rolling: PlanStep | None,
    sizing: SizeStep | None,
    voters: int | None,
) -> tuple[PlanStep | None, SizeStep | None]:
    """Of a rolling update and a change of the size the one that goes first, without the other.

    What has begun is ended first: a member that waits to be taken in is not Ready, so a rolling
    update would wait for it. A dead pod is replaced all the same, since its new template may be
    what cures it.
    """
    if rolling is None or sizing is None:
        return rolling, sizing
    deed = rolling.action
    dead = isinstance(deed, DeletePod) and deed.only_if_dead
    begun = voters not in (None, load.replicas) or load.replicas > group.spec.replicas
    if dead or (sizing.change == "wait" and deed is not None) or not begun:
        return rolling, None
    return None, sizing


def _as_step(
    seen: ControllerObserved,
    group: ControllerGroup,
    known: Identity,
    load: Workload,
    sizing: SizeStep,
) -> PlanStep:
    name, number = names.controller_statefulset(seen.meta.name), sizing.number
    action: Action | None = None
    if sizing.change == "stop":
        fewer = _objects(seen, group, known, load.replicas - 1)[-1]
        action = ScaleDown(manifest=fewer, number=number)
    elif sizing.change == "add":
        address = names.pod_host(name, number - 1, seen.meta.namespace)
        action = ChangeMembers(change="add", number=number, address=address)
    elif sizing.change in ("promote", "remove", "transfer"):
        action = ChangeMembers(change=sizing.change, number=number)
    return PlanStep(Reason.CHANGING_SIZE, sizing.message, action, stalled=sizing.stalled)


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
            "members": old.members if voting(seen.quorum) is None else _members(seen),
            "cluster_uid": known.uid if known and known.uid else old.cluster_uid,
            "listeners": name_service_status(seen),
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
    load = workload(_statefulset(seen), seen.pods)
    if load is not None:
        extents[Reason.ROLLING_UPDATE] = load.replaced()
    if not isinstance(seen.quorum, Unreachable):
        count = len(caught_up(seen.quorum, seen.pods))
        extents[Reason.REPLICA_CATCHING_UP] = f"{count}/{len(_voters(seen.quorum))}"
    if voting(seen.quorum) is not None and seen.group is not None:
        extents[Reason.CHANGING_SIZE] = f"{voting(seen.quorum)}/{seen.group.spec.replicas}"
    return extents


def _voters(quorum: QuorumView) -> list[PeerView]:
    return [peer for peer in quorum.peers if peer.role == "voter"]


def _members(seen: ControllerObserved) -> tuple[QuorumMember, ...]:
    assert not isinstance(seen.quorum, Unreachable), "the caller has checked"
    return tuple(
        QuorumMember(node_id=peer.id, name=peer.name, role=_ROLES.get(peer.role, "Learner"))
        for peer in seen.quorum.peers
    )


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
    report_name_service(conditions, seen, now)
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
    wished = len(_voters(seen.quorum))
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
        refused = step.reason in _REFUSED_FOR_NOW
        conditions.set("Progressing", "False" if refused else "True", step.reason, step.message)
    elif ready < wished:
        name, load = (
            names.controller_statefulset(seen.meta.name),
            workload(_statefulset(seen), seen.pods),
        )
        conditions.set("Progressing", "True", Reason.STARTING, starting(load, name, ready, wished))
    elif seen.image_wait is not None:
        text = seen.image_wait.describe(seen.image)
        conditions.set("Progressing", "False", Reason.WAITING_FOR_TURN, text)
    else:
        conditions.set("Progressing", "False", Reason.SETTLED, "Nothing is under way.")


def _check_again(
    seen: ControllerObserved, status: ControllerGroupStatus, step: PlanStep | None
) -> list[Action]:
    refused = step is not None and step.reason in _REFUSED_FOR_NOW
    if step is not None and not refused:
        return [CheckAgain(after_s=STEP_CHECK_S)]
    wanted = (find(status.conditions, name) for name in ("Available", "FullyReplicated"))
    settled = all(condition is not None and condition.status == "True" for condition in wanted)
    if settled and not crashing(status.conditions):
        if refused:
            return [CheckAgain(after_s=RETRY_S)]
        return [CheckAgain(after_s=LOOK_S)] if seen.certificates else []
    return [CheckAgain(after_s=UNSETTLED_CHECK_S)]
