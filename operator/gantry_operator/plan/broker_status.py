"""The status of a BrokerGroup: what is observed, in words that do not change without a reason.

Nothing volatile goes in (offsets, lags, ages): every status write is an event that starts the next
reconcile, so a status that is never the same twice would keep the operator busy for ever. The
offset of the tier goes in now and then (`tier`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.models import (
    BrokerGroupStatus,
    Condition,
    ConditionStatus,
    MasterStatus,
    MemberStatus,
    SwitchoverStatus,
)
from gantry_operator.plan.additions import report_additions
from gantry_operator.plan.approval import running_image
from gantry_operator.plan.broker_steps import may_tell_crash
from gantry_operator.plan.conditions import Conditions, timestamp
from gantry_operator.plan.crashes import crash_loop, crash_words
from gantry_operator.plan.fencing import homes_before, report_fenced
from gantry_operator.plan.group_report import report_group
from gantry_operator.plan.headline import headline
from gantry_operator.plan.hibernation import is_off, report_hibernation, report_off
from gantry_operator.plan.listeners import broker_status_of, report_listeners
from gantry_operator.plan.minimum import raising
from gantry_operator.plan.reasons import GROWTH, Reason
from gantry_operator.plan.shard_status import report_shards, summed_up
from gantry_operator.plan.shards import known_groups
from gantry_operator.plan.tier import report_tier, tier_status
from gantry_operator.plan.workload import starting, workload

if TYPE_CHECKING:
    import datetime as dt

    from gantry_protocol.admin import MemberView

    from gantry_operator.models import PendingChangeStatus
    from gantry_operator.models.listeners import ListenerStatus
    from gantry_operator.plan.acceptance import Acceptance
    from gantry_operator.plan.approval import HeldChange
    from gantry_operator.plan.broker_steps import PlanStep
    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import BrokerObserved

_ENDING = (Reason.DELETING, Reason.DRAINING, Reason.DRAIN_REFUSED)
_REFUSED = (
    Reason.UNSAFE_SCALE_DOWN,
    Reason.UNSAFE_HIBERNATION,
    Reason.UNSAFE_FENCE,
    Reason.DRAIN_REFUSED,
    Reason.VOLUME_EXPANSION_REFUSED,
    Reason.SETTINGS_REFUSED,
)
_UNKNOWN_UNTIL_REACHED = ("Available", "InSync", "FullyReplicated")
_DAMAGED_MAX = 10
State = Literal["InSync", "CatchingUp", "Draining", "Lost", "Hibernated", "Fenced"]


def broker_status(
    seen: BrokerObserved,
    accepted: Acceptance,
    step: PlanStep | None,
    switchover: SwitchoverStatus | None,
    now: dt.datetime,
    held: tuple[HeldChange, PendingChangeStatus] | None = None,
    *,
    grown: str = "",
) -> BrokerGroupStatus:
    """The status that follows from an observation.

    ``held``: a change that waits, and what it is; ``grown``: how many volumes are as wished.
    """
    groups = known_groups(seen)
    joined = None if seen.shards or not groups else groups[0]
    old = seen.previous or BrokerGroupStatus(observed_generation=0)
    ready = sum(pod.ready for pod in seen.pods)
    wished = seen.group.spec.replicas if seen.group else len(seen.pods)
    conditions = _conditions(seen, accepted, groups, step, now, held)
    status = old.model_copy(
        update={
            "observed_generation": seen.meta.generation,
            "image": running_image(seen),
            "pending_change": held[1] if held is not None else None,
            "replicas": len(seen.pods),
            "ready_replicas": ready,
            "ready": f"{ready}/{wished}",
            "selector": names.selector_text(names.BROKER, seen.meta.name),
            "switchover": switchover,
            "tier": tier_status(seen, conditions, now),
            "listeners": _listeners(seen, old),
            "queues": _queue_count(groups, old),
            "conditions": conditions,
        }
    )
    if seen.shards:
        status = status.model_copy(update=summed_up(seen, now))
    elif joined is not None:
        status = status.model_copy(update=_picture(joined, old, wished, now, off=is_off(seen)))
    line = headline(
        conditions,
        extents=_extents(seen, status) | dict.fromkeys(GROWTH, grown),
        ending=step.short if step is not None else "",
        crash=crash_words(seen.pods, now),
    )
    return status.model_copy(update={"summary": line})


def _extents(seen: BrokerObserved, status: BrokerGroupStatus) -> dict[str, str]:
    """How far pods and members have come."""
    statefulset = seen.objects.get(("StatefulSet", names.broker_statefulset(seen.meta.name)))
    load = workload(statefulset, seen.pods, seen.group.spec.fenced_now if seen.group else ())
    in_sync = status.in_sync
    pending = status.pending_change
    return {
        Reason.WAITING_FOR_APPROVAL: f"of {pending.id}" if pending is not None else "",
        Reason.ROLLING_UPDATE: load.replaced() if load is not None else "",
        Reason.STARTING: status.ready,
        Reason.REPLICA_CATCHING_UP: in_sync,
        Reason.LAST_IN_SYNC_REPLICA: in_sync,
        Reason.BELOW_MIN_IN_SYNC: in_sync,
    }


def _picture(
    joined: ObservedGroup, old: BrokerGroupStatus, wished: int, now: dt.datetime, *, off: bool
) -> dict[str, object]:
    """Master and members of a single group; `off`: it is hibernated."""
    in_sync = joined.in_sync()
    members = _members(joined, in_sync, old, off=off)
    ordinals = sorted(
        m.replica for m in members if m.replica is not None and m.broker_id in in_sync
    )
    return {
        "in_sync": f"{len(in_sync)}/{wished}",
        "in_sync_replicas": tuple(ordinals),
        "members": members,
        "master": _master(joined, old, now),
    }


def _master(joined: ObservedGroup, old: BrokerGroupStatus, now: dt.datetime) -> MasterStatus | None:
    master = joined.master()
    if master is None:
        return None
    pod, epoch, before = joined.pod_of(master), joined.view.master_epoch, old.master
    return MasterStatus(
        replica=pod.ordinal if pod else None,
        pod=pod.name if pod else None,
        broker_id=master.broker_id,
        epoch=epoch,
        since=before.since if before and before.epoch == epoch else timestamp(now),
    )


def _members(
    joined: ObservedGroup, in_sync: frozenset[int], old: BrokerGroupStatus, *, off: bool
) -> tuple[MemberStatus, ...]:
    before = {member.broker_id: member.replica for member in old.members}
    taken = {pod.ordinal for m in joined.view.members if (pod := joined.pod_of(m))}
    result = []
    for member in sorted(joined.view.members, key=lambda m: m.broker_id):
        pod = joined.pod_of(member)
        # While a pod is being replaced its member has no pod; it keeps the ordinal it had, unless
        # somebody else lives there now.
        kept = before.get(member.broker_id)
        ordinal = pod.ordinal if pod else (kept if kept not in taken else None)
        result.append(
            MemberStatus(
                broker_id=member.broker_id,
                replica=ordinal,
                role="Master" if member.broker_id == joined.view.master_broker_id else "Replica",
                state="Hibernated" if off and not member.alive else _state(member, in_sync),
                address=member.address,
            )
        )
    return tuple(result)


def _state(member: MemberView, in_sync: frozenset[int]) -> State:
    if member.fenced:
        return "Fenced"
    if not member.alive:
        return "Lost"
    if member.draining:
        return "Draining"
    return "InSync" if member.broker_id in in_sync else "CatchingUp"


def _conditions(
    seen: BrokerObserved,
    accepted: Acceptance,
    groups: tuple[ObservedGroup, ...],
    step: PlanStep | None,
    now: dt.datetime,
    held: tuple[HeldChange, PendingChangeStatus] | None,
) -> tuple[Condition, ...]:
    conditions = Conditions(
        seen.previous.conditions if seen.previous else (), seen.meta.generation, now
    )
    crashes = crash_loop(seen.pods, now)
    conditions.set(
        "Accepted", "True" if accepted.accepted else "False", accepted.reason, accepted.message
    )
    if is_off(seen):
        report_off(conditions, seen)
        _progressing(conditions, seen, groups, step, crashes, held)
    elif isinstance(seen.view, Unreachable):
        for name in _UNKNOWN_UNTIL_REACHED:
            conditions.set(name, "Unknown", Reason.CONTROLLER_UNREACHABLE, seen.view.reason)
        if crashes or (step is not None and step.reason in _ENDING):
            _progressing(conditions, seen, groups, step, crashes, held)
        else:
            conditions.set(
                "Progressing", "Unknown", Reason.CONTROLLER_UNREACHABLE, seen.view.reason
            )
    else:
        if seen.shards:
            report_shards(conditions, seen, now)
        else:
            report_group(conditions, seen.group, groups[0] if groups else None)
        _progressing(conditions, seen, groups, step, crashes, held)
    report_tier(conditions, seen)
    report_listeners(conditions, seen, now)
    _told(conditions, groups)
    _queues(conditions, groups)
    report_fenced(conditions, groups, homes_before(seen.previous))
    report_additions(conditions, seen.objects)
    report_hibernation(conditions, seen)
    paused = seen.group is not None and seen.group.spec.paused
    if paused:
        conditions.set("Paused", "True", Reason.PAUSED_BY_SPEC, "spec.paused is true.")
    else:
        conditions.set("Paused", "False", Reason.ACTIVE, "spec.paused is not set.")
    conditions.sum_up()
    return conditions.result()


def _told(conditions: Conditions, groups: tuple[ObservedGroup, ...]) -> None:
    """DiskFull and LogDamaged: who says so, and why; no condition while nobody does.

    The disk is a pod's, so all shards there say the same of it.
    """
    full: dict[str, str] = {}
    damaged = []
    for group in groups:
        for member in group.view.members:
            pod = group.pod_of(member)
            name = pod.name if pod else f"Broker {member.broker_id}"
            if member.alive and member.disk_stuck:
                full.setdefault(name, f"{name} has no room: {member.disk_stuck}.")
            if member.alive and member.log_damage:
                damaged.append(
                    f"The log of {name}{group.named and f' in {group.shard}'} is damaged: "
                    f"{member.log_damage}."
                )
    if full:
        conditions.set("DiskFull", "True", Reason.NOTHING_MAY_GO, " ".join(full.values()))
    if damaged:
        told = damaged[:_DAMAGED_MAX] if groups[0].shard else damaged
        conditions.set("LogDamaged", "True", Reason.NOT_REPAIRED, " ".join(told))


def _listeners(seen: BrokerObserved, old: BrokerGroupStatus) -> tuple[ListenerStatus, ...] | None:
    """Addresses of the listeners, as before while the controllers cannot be asked."""
    return old.listeners if isinstance(seen.view, Unreachable) else broker_status_of(seen)


def _queue_count(groups: tuple[ObservedGroup, ...], old: BrokerGroupStatus) -> int | None:
    """The queues of mapped topics; None before the first, and as before while nobody can say."""
    if not groups:
        return old.queues
    count = sum(group.view.queues for group in groups)
    return count if count or old.queues is not None else None


def _queues(conditions: Conditions, groups: tuple[ObservedGroup, ...]) -> None:
    """QueuesMoving: no condition while all queues of mapped topics are where they are to be.

    Of several shards it names the first that gets or gives queues: sums would hide what moves from
    one shard to another.
    """
    moving = [group for group in groups if group.view.queues != group.view.queues_wished]
    if not moving:
        return
    view, shard = moving[0].view, moving[0].shard
    text = f"It has {view.queues} queues of mapped topics, and is to have {view.queues_wished}."
    if shard:
        more = (
            f" So {len(moving) - 1} more have others than they are to have." if moving[1:] else ""
        )
        text = f"{shard}: {text}{more}"
    conditions.set("QueuesMoving", "True", Reason.QUEUES_MOVING, text)


def _progressing(
    conditions: Conditions,
    seen: BrokerObserved,
    groups: tuple[ObservedGroup, ...],
    step: PlanStep | None,
    crashes: str,
    held: tuple[HeldChange, PendingChangeStatus] | None,
) -> None:
    """Progressing: pods start, the minimum is to rise, or a disruptive step is under way.

    A roll-out that waits for pods that crash waits for ever, so these are told instead of it.
    """
    if seen.group is None:
        conditions.keep("Progressing")
        return
    if crashes and may_tell_crash(step):
        conditions.set("Progressing", "True", Reason.POD_CRASHING, crashes)
        return
    if step is not None:
        refused = step.reason in _REFUSED
        conditions.set("Progressing", "False" if refused else "True", step.reason, step.message)
        return
    if is_off(seen) and held is None:
        conditions.set("Progressing", "False", Reason.HIBERNATED, "No pod runs.")
        return
    fenced = seen.group.spec.fenced_now
    ready = sum(pod.ready for pod in seen.pods if pod.ordinal not in fenced)
    wished = seen.group.spec.replicas - len(fenced)
    rises = [(group.shard, raising(group, seen.group.spec.min_in_sync)) for group in groups]
    rise = next((f"{name}: {text}" if name else text for name, text in rises if text), "")
    if rise:
        conditions.set("Progressing", "True", Reason.RAISING_MINIMUM, rise)
    elif ready < wished and not is_off(seen):
        name = names.broker_statefulset(seen.meta.name)
        load = workload(seen.objects.get(("StatefulSet", name)), seen.pods, fenced)
        text = starting(load, name, ready, wished)
        conditions.set("Progressing", "True", Reason.STARTING, text)
    elif held is not None:
        change, pending = held
        moves: ConditionStatus = "True" if change.approved else "False"
        conditions.set("Progressing", moves, change.reason, change.describe(pending))
    elif seen.image_wait is not None:
        text = seen.image_wait.describe(seen.image)
        conditions.set("Progressing", "False", Reason.WAITING_FOR_TURN, text)
    else:
        conditions.set("Progressing", "False", Reason.SETTLED, "Nothing is under way.")
