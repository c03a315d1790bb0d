"""The plan for a BrokerGroup: which rules apply, in which order.

A pure function of the observation and the time. It may be called at any moment, any number of
times, by anybody: it starts from what is, never from what was done last. At most one action of a
plan is disruptive, and the status that tells about it is written before it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.builders import Manifest, broker_objects
from gantry_operator.builders.config import NEWEST_LIVE, broker_settings, toml
from gantry_operator.plan import steady
from gantry_operator.plan.acceptance import Acceptance, accept_broker_group
from gantry_operator.plan.actions import (
    Action,
    CheckAgain,
    EmitEvent,
    RenewFiles,
    SetFinalizer,
    WriteStatus,
)
from gantry_operator.plan.approval import (
    ensure_meanwhile,
    held_change,
    hosted_meanwhile,
    pending_status,
    size_of,
)
from gantry_operator.plan.beginning import begin
from gantry_operator.plan.broker_status import broker_status
from gantry_operator.plan.broker_steps import PlanStep, rolling_update, scale_down, taking_in
from gantry_operator.plan.changes import expected_gap_ms, last_change, last_failover
from gantry_operator.plan.conditions import crashing, find
from gantry_operator.plan.deletion import delete_broker_group, deletion_waits_for
from gantry_operator.plan.drain import drain_reason, drain_status, keep_drain_finalizer
from gantry_operator.plan.events import broker_events, drain_ended
from gantry_operator.plan.fencing import fence, homes_before, unfence
from gantry_operator.plan.forgetting import forget
from gantry_operator.plan.growth import (
    NOTHING,
    RETRY_S,
    Growth,
    as_growth,
    grow,
    template_size,
    wished_last,
    with_outdated,
)
from gantry_operator.plan.hibernation import hibernate, is_off, size_known, size_now
from gantry_operator.plan.listener_tls import LOOK_S, shared_listeners
from gantry_operator.plan.live_settings import (
    applies_live,
    applying,
    live_now,
    live_text,
    renew,
    told_by_brokers,
)
from gantry_operator.plan.minimum import minimum_now
from gantry_operator.plan.objects import container, ensure, key_of, surplus
from gantry_operator.plan.preferred import Preference, prefer
from gantry_operator.plan.quorum_size import addressed_size
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.shards import all_groups, born, known_groups, present_groups
from gantry_operator.plan.shrink import hosted_now, shrink_status, shrink_steps, shrinking
from gantry_operator.plan.switchover import switchover
from gantry_operator.plan.tier import REFRESH_S, has_tier
from gantry_operator.plan.turns import with_check
from gantry_operator.plan.workload import Workload, workload

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.models import (
        BrokerGroup,
        BrokerGroupStatus,
        PendingChangeStatus,
        SwitchoverStatus,
    )
    from gantry_operator.plan.approval import HeldChange
    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import Body, BrokerObserved

_REFUSED_FOR_NOW = (Reason.VOLUME_EXPANSION_REFUSED, Reason.SETTINGS_REFUSED)
STEP_CHECK_S = 2.0
"""While a step is under way. Events usually come sooner; this is for those that do not come."""
BEGIN_CHECK_S = 0.1
"""Between the announcement of a change that is approved already, and its first step."""
UNSETTLED_CHECK_S = 5.0
"""While anything is not as wished."""


def plan_broker_group(
    seen: BrokerObserved, now: dt.datetime, *, announces: bool = True
) -> list[Action]:
    """All that is to be done now, in order; `announces`: and what will follow, where it begins."""
    statefulset = _statefulset(seen)
    accepted = accept_broker_group(seen, statefulset)
    load = workload(statefulset, seen.pods, seen.group.spec.fenced_now if seen.group else ())
    old_switchover = seen.previous.switchover if seen.previous else None
    if seen.meta.deletion_timestamp is not None:
        steps = delete_broker_group(seen, now)
        if any(isinstance(action, SetFinalizer) for action in steps):
            told = drain_ended(seen) if names.DRAIN_FINALIZER in seen.meta.finalizers else []
            return [*told, *steps]  # the last one; a status before it would be another version
        drain = drain_status(seen, now)
        if drain is None:
            wait = deletion_waits_for(seen)
            ending = PlanStep(Reason.DELETING, wait.text, short=wait.short)
        else:
            ending = PlanStep(drain_reason(seen, now), drain.message, short=drain.progress)
        status = broker_status(seen, accepted, ending, old_switchover, now)
        status = status.model_copy(update={"drain": drain})
        # A group that is drained serves its clients, also through failovers.
        serving = [] if drain is None else _for_clients(seen, known_groups(seen))
        told = broker_events(seen.previous, status) if drain is not None else []
        return [*serving, *_write(seen, status), *told, *steps]
    held = _held(seen, accepted, load, now, announces=announces)
    if held is not None and seen.group is not None:
        seen = hosted_meanwhile(seen, seen.group)
    groups = known_groups(seen)
    actions = _for_clients(seen, groups)
    moved, step, growth = old_switchover, None, NOTHING
    forgotten = seen.previous.forget if seen.previous else None
    begun = seen.previous.bootstrap if seen.previous else None
    acting = accepted.usable and seen.group is not None and not seen.group.spec.paused
    awake = seen.group is not None and not seen.group.spec.hibernated
    if acting:
        assert seen.group is not None, "an accepted resource has been parsed"
        actions += _ensure(seen, seen.group, load, held=held is not None)
        actions += shrink_steps(seen, seen.group, now) if awake else []
        if awake:
            growth = grow(
                seen,
                seen.group.spec.storage,
                load,
                now,
                noted=wished_last(statefulset),
                last=_masters(groups),
            )
            actions += growth.claims
        actions += unfence(groups, seen.group.spec.fenced, homes_before(seen.previous))
        moved, step = _next_step(seen, seen.group, accepted, load, growth, held=held is not None)
        if awake and load is not None and len(groups) == 1:
            forgotten, striking = forget(
                groups[0],
                seen.group.spec.forget,
                forgotten,
                homes_before(seen.previous),
                load.replicas,
            )
            step = step or striking
        begun, adoptions = begin(groups[0] if groups else None, seen.group.spec, begun)
        actions += adoptions if awake else []
        step = step or taking_in(actions, load)
        step = step or (shrinking(seen, seen.group, now) if awake else None) or growth.step
        for group in groups if step is None else ():
            actions += steady.forget_gone(group, load, seen.group.spec.replicas)
        if awake:
            renewals, settling = _settings(seen, seen.group, groups, held=held is not None)
            actions += renewals
            step = step or settling
    acts = acting and awake and accepted.accepted
    preference = _preference(seen, load, moved, step, held, now, acts=acts)
    step = step or preference.step
    status = broker_status(seen, accepted, step, moved, now, held, grown=growth.extent)
    status = status.model_copy(
        update={
            "bootstrap": begun,
            "forget": forgotten,
            "preferred_master": preference.status,
        }
    )
    status = _proved(seen, status, step, now, announces=announces)
    if seen.group is not None and not isinstance(seen.view, Unreachable):
        drain = shrink_status(seen, seen.group, now, acts=acting and awake)
        status = status.model_copy(update={"drain": drain})
    again = preference.with_check(_check_again(seen, status, step))
    if held is not None and held[0].reason == Reason.APPLYING:
        again = [CheckAgain(after_s=BEGIN_CHECK_S)]  # the next plan finds it announced
    actions += [*_report(seen, status, step), *again]
    waits = held is not None and held[0].reason == Reason.WAITING_FOR_TURN
    return with_check(seen.image_wait, with_check(seen.roll_turn if waits else None, actions))


def _preference(
    seen: BrokerObserved,
    load: Workload | None,
    moved: SwitchoverStatus | None,
    step: PlanStep | None,
    held: tuple[HeldChange, PendingChangeStatus] | None,
    now: dt.datetime,
    *,
    acts: bool,
) -> Preference:
    """What follows from the zones in which the master is wished; as before while nobody may act."""
    known = known_groups(seen)
    if seen.group is None or not acts or len(known) != 1 or known[0].shard:
        wished = seen.group is None or seen.group.spec.preferred_master is not None
        old = seen.previous.preferred_master if seen.previous and wished else None
        return Preference(old)
    busy = "a change waits" if held is not None or seen.image_wait is not None else ""
    if step is not None:
        busy = "something else is under way"
    return prefer(
        known[0],
        seen.group.spec,
        load,
        seen.previous,
        moved,
        now,
        busy=busy,
        turn=seen.move_turn,
    )


def _held(
    seen: BrokerObserved,
    accepted: Acceptance,
    load: Workload | None,
    now: dt.datetime,
    *,
    announces: bool,
) -> tuple[HeldChange, PendingChangeStatus] | None:
    """The change that waits for a person, and what it would do; None if there is none."""
    group = seen.group
    if group is None or load is None or not accepted.usable:
        return None
    if not group.spec.update.is_supervised and seen.roll_turn is None:
        return None
    held = held_change(seen, group, _objects(seen, group, load.replicas))
    if held is None:
        return None
    planner = partial(plan_broker_group, announces=False) if announces else None
    gap_ms = expected_gap_ms(seen.previous)
    return held, pending_status(seen, held, now, planner, gap_ms=gap_ms)


def _masters(groups: tuple[ObservedGroup, ...]) -> frozenset[str]:
    """Names of the pods that masters live in."""
    members = ((group, group.master()) for group in groups)
    pods = (group.pod_of(master) for group, master in members if master is not None)
    return frozenset(pod.name for pod in pods if pod is not None)


def _proved(
    seen: BrokerObserved,
    status: BrokerGroupStatus,
    step: PlanStep | None,
    now: dt.datetime,
    *,
    announces: bool,
) -> BrokerGroupStatus:
    """The status with what was announced, and what came of it."""
    update: dict[str, object] = {"last_failover": last_failover(seen)}
    if announces:
        ready = find(status.conditions, "Ready")
        update["last_change"] = last_change(
            seen,
            step,
            now,
            partial(plan_broker_group, announces=False),
            ready=ready is not None
            and (ready.status == "True" or ready.reason == Reason.WAITING_FOR_APPROVAL),
        )
    return status.model_copy(update=update)


def _for_clients(seen: BrokerObserved, groups: tuple[ObservedGroup, ...]) -> list[Action]:
    """What clients wait for; no object that the API server is slow about or refuses comes before.

    Traffic first: kube-proxy follows the first change of endpoints at once, and the next ones a
    second later (its minSyncPeriod).
    """
    if not groups:
        return []
    actions: list[Action] = []
    if seen.group is not None:
        wished = seen.group.spec.min_in_sync
        in_force = min(minimum_now(group.view, wished) for group in groups)
        actions += steady.route_traffic(groups, in_force)
    for group in groups:
        if not group.shard:  # a pod with shards has no one role
            actions += steady.label_roles(group)
        actions += steady.report_gone(group)
    return actions


def _ensure(
    seen: BrokerObserved, group: BrokerGroup, load: Workload | None, *, held: bool
) -> list[Action]:
    # Scaling up is applied at once; scaling down is a disruptive step of its own.
    replicas = size_now(seen, group, load)
    actions: list[Action] = []
    actions += steady.keep_finalizer(seen, group) or keep_drain_finalizer(seen, group)
    wished = _objects(seen, group, replicas)
    actions += ensure_meanwhile(seen, wished) if held else ensure(wished, seen.objects)
    actions += surplus(seen.meta.uid, wished, seen.objects)
    asleep = load is not None and load.replicas == 0
    declared = size_known(seen, group) if asleep else replicas
    for part in present_groups(seen):
        actions += steady.declare_group(part, group, declared)
    return actions


def _objects(seen: BrokerObserved, group: BrokerGroup, replicas: int) -> list[Manifest]:
    assert seen.controllers is not None, "an accepted resource has controllers"
    load = workload(_statefulset(seen), seen.pods, group.spec.fenced_now)
    return broker_objects(
        group,
        seen.controllers,
        image=seen.image,
        replicas=replicas,
        shards=hosted_now(seen, group),
        door=_knows(seen, group.spec.image or seen.image, names.ANNOTATION_DOORS),
        fronts=seen.fronts,
        knows_fronts=_knows(seen, group.spec.image or seen.image, names.ANNOTATION_FRONTS),
        live=live_now(
            _statefulset(seen), names.BROKER, group.spec.image or seen.image, NEWEST_LIVE
        ),
        claim_size=template_size(group.spec.storage, _statefulset(seen), seen.volumes or ()),
        addressed=addressed_size(
            seen.controllers.metadata.name, seen.meta.namespace, _statefulset(seen)
        ),
        shared_listeners=shared_listeners(seen, group, load),
    )


def _settings(
    seen: BrokerObserved, group: BrokerGroup, groups: tuple[ObservedGroup, ...], *, held: bool
) -> tuple[list[RenewFiles], PlanStep | None]:
    """Settings that brokers apply while running; while a change is held, those that are there."""
    if not applies_live(_statefulset(seen)):
        return [], None
    there = live_text(seen.objects, names.broker_statefulset(seen.meta.name))
    wished = there if held else toml(broker_settings(group, live=True))
    last = seen.previous.last_change if seen.previous else None
    under_way = last is not None and last.kind == "ApplySettings" and last.finished_at is None
    told = told_by_brokers(groups)
    return renew(told, there), applying(told, seen.pods, wished, under_way=under_way)


def _knows(seen: BrokerObserved, image: str, annotation: str) -> bool:
    """Rule: a group gets its doors with the first image that an operator with doors gives it.

    One that it has had before may be older than doors: that of a group that waits for its turn, and
    one that its spec names. A door would end there again and again, and no pod would be Ready. So
    it is with fronts: an older broker that is told of a store port serves no client itself.
    """
    live = _statefulset(seen)
    if live is None or annotation in (live["metadata"].get("annotations") or {}):
        return True
    broker = container(live, names.BROKER)
    return broker is not None and broker.get("image") != image


def _statefulset(seen: BrokerObserved) -> Body | None:
    return seen.objects.get(("StatefulSet", names.broker_statefulset(seen.meta.name)))


def _next_step(
    seen: BrokerObserved,
    group: BrokerGroup,
    accepted: Acceptance,
    load: Workload | None,
    growth: Growth,
    *,
    held: bool,
) -> tuple[SwitchoverStatus | None, PlanStep | None]:
    """The disruptive rules by rank; the first that has something to do or to wait for decides.

    Premises of all of them: the controllers know each group, and the StatefulSet exists and is seen
    as it is by its own controller. Without these, nothing disruptive is even considered.
    """
    old = seen.previous.switchover if seen.previous else None
    groups = born(all_groups(seen))
    if not groups or load is None or load.revision is None or not accepted.steps:
        return old, None
    minimum = group.spec.min_in_sync
    if group.spec.hibernated:
        return old, _hibernate(seen, group, groups, load, held=held)
    moved, step = switchover(groups[0], group.spec.switchover, old)
    if step is None:
        before = homes_before(seen.previous)
        step = fence(groups, group.spec.fenced_now, before, min_in_sync=minimum)
    if step is None:
        manifest = _objects(seen, group, max(load.replicas - 1, group.spec.replicas))[-1]
        step = scale_down(
            groups,
            load,
            wished=group.spec.replicas,
            min_in_sync=minimum,
            manifest=size_of(manifest) if held else manifest,
            manager=names.REPLICAS_FIELD_MANAGER if held else names.FIELD_MANAGER,
        )
    if step is None:
        step = rolling_update(groups, load, min_in_sync=minimum)
    if step is None and growth.restart:
        waiting = with_outdated(load, growth.restart)
        step = as_growth(rolling_update(groups, waiting, min_in_sync=minimum))
    return moved, step


def _hibernate(
    seen: BrokerObserved,
    group: BrokerGroup,
    groups: tuple[ObservedGroup, ...],
    load: Workload,
    *,
    held: bool,
) -> PlanStep | None:
    manifest = _objects(seen, group, 0)[-1]
    return hibernate(
        groups,
        load,
        seen.objects[key_of(manifest)],
        min_in_sync=group.spec.min_in_sync,
        manifest=size_of(manifest) if held else manifest,
        manager=names.REPLICAS_FIELD_MANAGER if held else names.FIELD_MANAGER,
    )


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
) -> list[CheckAgain]:
    refused = step is not None and step.reason in _REFUSED_FOR_NOW
    if (step is not None and not refused) or status.drain is not None:
        return [CheckAgain(after_s=STEP_CHECK_S)]
    if is_off(seen) and not seen.pods:
        return []
    settled = all(
        condition is not None and condition.status == wanted
        for name, wanted in (("Available", "True"), ("FullyReplicated", "True"))
        for condition in [find(status.conditions, name)]
    )
    if settled and not crashing(status.conditions) and not isinstance(seen.view, Unreachable):
        if refused:
            return [CheckAgain(after_s=RETRY_S)]
        if has_tier(seen):
            return [CheckAgain(after_s=REFRESH_S)]
        return [CheckAgain(after_s=LOOK_S)] if seen.certificates else []
    return [CheckAgain(after_s=UNSETTLED_CHECK_S)]
