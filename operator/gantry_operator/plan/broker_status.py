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
    BrokerGroup,
    BrokerGroupStatus,
    Condition,
    MasterStatus,
    MemberStatus,
    SwitchoverStatus,
)
from gantry_operator.plan.additions import report_additions
from gantry_operator.plan.broker_steps import may_tell_crash
from gantry_operator.plan.conditions import Conditions, timestamp
from gantry_operator.plan.crashes import crash_loop
from gantry_operator.plan.minimum import minimum_now, raising
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.tier import report_tier, tier_status

if TYPE_CHECKING:
    import datetime as dt

    from gantry_protocol.admin import MemberView

    from gantry_operator.plan.acceptance import Acceptance
    from gantry_operator.plan.broker_steps import PlanStep
    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import BrokerObserved

_UNKNOWN_UNTIL_REACHED = ("Available", "InSync", "FullyReplicated")
State = Literal["InSync", "CatchingUp", "Draining", "Lost"]


def broker_status(
    seen: BrokerObserved,
    accepted: Acceptance,
    joined: ObservedGroup | None,
    step: PlanStep | None,
    switchover: SwitchoverStatus | None,
    now: dt.datetime,
) -> BrokerGroupStatus:
    """The status that follows from an observation; `joined` is None if the group is not known."""
    old = seen.previous or BrokerGroupStatus(observed_generation=0)
    ready = sum(pod.ready for pod in seen.pods)
    wished = seen.group.spec.replicas if seen.group else len(seen.pods)
    conditions = _conditions(seen, accepted, joined, step, now)
    status = old.model_copy(
        update={
            "observed_generation": seen.meta.generation,
            "replicas": len(seen.pods),
            "ready_replicas": ready,
            "ready": f"{ready}/{wished}",
            "selector": names.selector_text(names.BROKER, seen.meta.name),
            "switchover": switchover,
            "tier": tier_status(seen, joined, conditions, now),
            "conditions": conditions,
        }
    )
    if joined is None:
        return status
    in_sync = joined.in_sync()
    members = _members(joined, in_sync, old)
    ordinals = sorted(
        m.replica for m in members if m.replica is not None and m.broker_id in in_sync
    )
    return status.model_copy(
        update={
            "in_sync": f"{len(in_sync)}/{wished}",
            "in_sync_replicas": tuple(ordinals),
            "members": members,
            "master": _master(joined, old, now),
        }
    )


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
    joined: ObservedGroup, in_sync: frozenset[int], old: BrokerGroupStatus
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
                state=_state(member, in_sync),
                address=member.address,
            )
        )
    return tuple(result)


def _state(member: MemberView, in_sync: frozenset[int]) -> State:
    if not member.alive:
        return "Lost"
    if member.draining:
        return "Draining"
    return "InSync" if member.broker_id in in_sync else "CatchingUp"


def _conditions(
    seen: BrokerObserved,
    accepted: Acceptance,
    joined: ObservedGroup | None,
    step: PlanStep | None,
    now: dt.datetime,
) -> tuple[Condition, ...]:
    conditions = Conditions(
        seen.previous.conditions if seen.previous else (), seen.meta.generation, now
    )
    crashes = crash_loop(seen.pods, now)
    conditions.set(
        "Accepted", "True" if accepted.accepted else "False", accepted.reason, accepted.message
    )
    if isinstance(seen.view, Unreachable):
        for name in _UNKNOWN_UNTIL_REACHED:
            conditions.set(name, "Unknown", Reason.CONTROLLER_UNREACHABLE, seen.view.reason)
        if crashes or (step is not None and step.reason == Reason.DELETING):
            _progressing(conditions, seen, joined, step, crashes)
        else:
            conditions.set(
                "Progressing", "Unknown", Reason.CONTROLLER_UNREACHABLE, seen.view.reason
            )
    else:
        _available(conditions, joined)
        _replication(conditions, seen.group, joined)
        _progressing(conditions, seen, joined, step, crashes)
    report_tier(conditions, seen, joined)
    _told(conditions, joined)
    report_additions(conditions, seen.objects)
    paused = seen.group is not None and seen.group.spec.paused
    if paused:
        conditions.set("Paused", "True", Reason.PAUSED_BY_SPEC, "spec.paused is true.")
    else:
        conditions.set("Paused", "False", Reason.ACTIVE, "spec.paused is not set.")
    conditions.sum_up()
    return conditions.result()


def _told(conditions: Conditions, joined: ObservedGroup | None) -> None:
    """DiskFull and LogDamaged: who says so, and why; no condition while nobody does."""
    full, damaged = [], []
    for member in () if joined is None else joined.view.members:
        pod = joined.pod_of(member) if joined else None
        name = pod.name if pod else f"Broker {member.broker_id}"
        if member.alive and member.disk_stuck:
            full.append(f"{name} has no room: {member.disk_stuck}.")
        if member.alive and member.log_damage:
            damaged.append(f"The log of {name} is damaged: {member.log_damage}.")
    if full:
        conditions.set("DiskFull", "True", Reason.NOTHING_MAY_GO, " ".join(full))
    if damaged:
        conditions.set("LogDamaged", "True", Reason.NOT_REPAIRED, " ".join(damaged))


def _available(conditions: Conditions, joined: ObservedGroup | None) -> None:
    """Available: a master serves at the current epoch."""
    if joined is None:
        text = "The controllers do not know the group yet."
        conditions.set("Available", "False", Reason.WAITING_FOR_QUORUM, text)
        return
    view, master = joined.view, joined.master()
    if master is None:
        if view.master_epoch == 0:
            reason = Reason.WAITING_FOR_QUORUM
            text = f"{len(view.members)} of {view.replicas or '?'} members have registered."
        else:
            reason, text = Reason.NO_MASTER, f"There is no master since epoch {view.master_epoch}."
            if view.no_master_reason:
                reason = Reason.ELECTION_HELD_BACK
                text = f"Nobody is elected: {view.no_master_reason}."
        conditions.set("Available", "False", reason, text)
        return
    pod = joined.pod_of(master)
    name = pod.name if pod else f"Broker {master.broker_id}"
    if joined.serves():
        text = f"{name} is master at epoch {view.master_epoch}."
        conditions.set("Available", "True", Reason.MASTER_ELECTED, text)
        return
    if view.no_master_reason:
        text = f"Nobody is elected: {view.no_master_reason}."
        conditions.set("Available", "False", Reason.ELECTION_HELD_BACK, text)
        return
    why = "its pod is not Ready" if master.alive else "it gives no sign of life"
    text = f"{name} is master at epoch {view.master_epoch}, but {why}."
    conditions.set("Available", "False", Reason.NO_MASTER, text)


def _replication(
    conditions: Conditions, group: BrokerGroup | None, joined: ObservedGroup | None
) -> None:
    """InSync: enough members for acknowledgements. FullyReplicated: all that are wished."""
    if group is None:
        conditions.keep("InSync")
        conditions.keep("FullyReplicated")
        return
    wished, minimum = group.spec.replicas, group.spec.min_in_sync
    if joined is not None:
        minimum = minimum_now(joined.view, minimum)
    count = len(joined.in_sync()) if joined else 0
    text = f"{count} of {wished} replicas are in sync; at least {minimum} are needed."
    if count == 1 and wished > 1:
        reason = Reason.LAST_IN_SYNC_REPLICA
    else:
        reason = Reason.ENOUGH_IN_SYNC if count >= minimum else Reason.BELOW_MIN_IN_SYNC
    conditions.set("InSync", "True" if count >= minimum else "False", reason, text)
    if count >= wished:
        text = f"All {wished} replicas are in sync."
        conditions.set("FullyReplicated", "True", Reason.ALL_IN_SYNC, text)
    else:
        text = f"{count} of {wished} replicas are in sync."
        conditions.set("FullyReplicated", "False", Reason.REPLICA_CATCHING_UP, text)


def _progressing(
    conditions: Conditions,
    seen: BrokerObserved,
    joined: ObservedGroup | None,
    step: PlanStep | None,
    crashes: str,
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
        refused = step.reason == Reason.UNSAFE_SCALE_DOWN
        conditions.set("Progressing", "False" if refused else "True", step.reason, step.message)
        return
    ready, wished = sum(pod.ready for pod in seen.pods), seen.group.spec.replicas
    rise = "" if joined is None else raising(joined, seen.group.spec.min_in_sync)
    if rise:
        conditions.set("Progressing", "True", Reason.RAISING_MINIMUM, rise)
    elif ready < wished:
        text = f"{ready} of {wished} pods are Ready."
        conditions.set("Progressing", "True", Reason.STARTING, text)
    elif seen.image_wait is not None:
        text = seen.image_wait.describe(seen.image)
        conditions.set("Progressing", "False", Reason.WAITING_FOR_TURN, text)
    else:
        conditions.set("Progressing", "False", Reason.SETTLED, "Nothing is under way.")
