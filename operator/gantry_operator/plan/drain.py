"""The drain of a BrokerGroup that is deleted in a cluster where others serve on.

A finalizer holds the resource meanwhile: it is there exactly while a neighbour could take over, so
that nothing stands in the way of deleting a group that has none. The order is: the controllers lead
new messages elsewhere, the master serves what it has until nothing is left or the deadline has
come, the group is retired, the finalizer goes; the rest is as in `deletion`.

Shards are drained at the same time, and the resource waits for the last of them.

Everything is read from the world each time, so an operator may end at any step. What nobody can
finish is not waited for: the last group that takes messages, one without a quorum or whose quorum
is being deleted (as in a namespace that goes as a whole), one that never had a master, one whose
pods are taken away or kept by somebody else.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from gantry_protocol.admin import GroupView
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.models import DrainStatus
from gantry_operator.plan.actions import Action, CheckAgain, DrainGroup, SetFinalizer
from gantry_operator.plan.objects import owner_uids
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.shards import each_group
from gantry_operator.plan.steady import finalizer_action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_protocol.admin import DrainView

    from gantry_operator.models import BrokerGroup
    from gantry_operator.plan.observed import BrokerObserved

DRAIN_CHECK_S = 2.0
_ORPHANS, _FOREGROUND = "orphan", "foregroundDeletion"
"""The API server's own finalizers: of a deletion that keeps the pods, and of one that begins there.
"""


def keep_drain_finalizer(seen: BrokerObserved, group: BrokerGroup) -> list[SetFinalizer]:
    """Rule: the finalizer exists exactly while a deletion would drain the group first."""
    wanted = seen.neighbours and group.spec.drain.deadline_seconds > 0
    if wanted == (names.DRAIN_FINALIZER in seen.meta.finalizers):
        return []
    return [finalizer_action(seen, present=wanted, finalizer=names.DRAIN_FINALIZER)]


def drain_steps(seen: BrokerObserved, now: dt.datetime) -> list[Action]:
    """Actions while a group is drained; none once none is waited for any more."""
    waiting = [part for part in each_group(seen) if is_awaited(part, now)]
    if not waiting:
        return []
    steps: list[Action] = [
        DrainGroup(uid=part.uid, group=part.shard)
        for part in waiting
        if isinstance(part.view, GroupView) and part.view.drain_began_ms is None
    ]
    return [*steps, CheckAgain(after_s=DRAIN_CHECK_S)]


def is_awaited(seen: BrokerObserved, now: dt.datetime) -> bool:
    """Whether the deletion waits for the drain of this group."""
    if names.DRAIN_FINALIZER not in seen.meta.finalizers or seen.group is None:
        return False
    if _FOREGROUND in seen.meta.finalizers or are_pods_kept(seen):
        return False
    if now >= _deadline(seen, seen.group):
        return False
    quorum = seen.controllers
    if not seen.controllers_exist or quorum is None or quorum.metadata.deletion_timestamp:
        return False
    view = seen.view
    if isinstance(view, GroupView) and view.drain_began_ms is None and not view.has_others:
        return False
    return owes(seen)


def are_pods_kept(seen: BrokerObserved) -> bool:
    """Whether a deletion leaves the pods to somebody else (`kubectl delete --cascade=orphan`).

    Garbage collection cuts the reference to the resource first, then takes its own finalizer off,
    and the resource may stay for a finalizer of ours: so the cut reference tells, too.
    """
    if _ORPHANS in seen.meta.finalizers:
        return True
    found = seen.objects.get(("StatefulSet", names.broker_statefulset(seen.meta.name)))
    return found is not None and seen.meta.uid not in owner_uids(found)


def owes(seen: BrokerObserved) -> bool:
    """Whether a group of this owner holds something that is to be consumed, or nobody says no."""
    view = seen.view
    if isinstance(view, Unreachable):
        return True
    if not isinstance(view, GroupView) or view.uid != seen.uid or view.retired:
        return False
    left = left_by(view)
    return view.master_epoch > 0 and (left is None or not left.done)


def drain_status(seen: BrokerObserved, now: dt.datetime) -> DrainStatus | None:
    """The progress, for people; None while nothing is drained.

    Of several shards the numbers are sums, and the words are about the first that waits.
    """
    waiting = [part for part in each_group(seen) if is_awaited(part, now)]
    if seen.group is None or not waiting:
        return None
    return progress(waiting, _deadline(seen, seen.group))


def drain_reason(seen: BrokerObserved, now: dt.datetime) -> Reason:
    """The reason of the wait that `drain_status` tells of."""
    waiting = [part for part in each_group(seen) if is_awaited(part, now)]
    return Reason.DRAIN_REFUSED if any(map(refusal, waiting)) else Reason.DRAINING


def refusal(seen: BrokerObserved) -> str:
    """Reason of the last failed attempt to begin a drain; empty once it has begun."""
    view = seen.view
    if not isinstance(view, GroupView) or view.drain_began_ms is not None:
        return ""
    return seen.refused_drains.get(seen.shard, "")


def told_first(waiting: Sequence[BrokerObserved]) -> BrokerObserved:
    """The group that words are about: one whose drain is refused waits for people."""
    return next((part for part in waiting if refusal(part)), waiting[0])


def progress(waiting: Sequence[BrokerObserved], deadline: dt.datetime) -> DrainStatus:
    """The progress of groups that are drained, one at least, for people."""
    reports = [left_by(part.view) if isinstance(part.view, GroupView) else None for part in waiting]
    first = told_first(waiting)
    known = DrainStatus(
        progress="refused" if refusal(first) else "waiting",
        deadline=deadline.strftime("%Y-%m-%dT%H:%M:%SZ"),
        message=(f"{waits_for(first)}; it goes at {deadline:%Y-%m-%d %H:%M} UTC in any case."),
    )
    left = [report for report in reports if report is not None]
    if len(left) < len(reports):
        return known
    unread = sum(report.unread for report in left)
    parked = sum(report.parked for report in left)
    transactions = sum(report.transactions for report in left)
    return known.model_copy(
        update={
            "progress": f"{unread + parked + transactions} left",
            "unread": unread,
            "parked": parked,
            "transactions": transactions,
        }
    )


def waits_for(seen: BrokerObserved) -> str:
    """The subject of the drain of a group, for people."""
    left = left_by(seen.view) if isinstance(seen.view, GroupView) else None
    what = f"shard {seen.shard}" if seen.shard else "it"
    undrained = (
        f"It is asked for again; to let {what} go as it is, set spec.drain.deadlineSeconds to 0"
    )
    if isinstance(seen.view, Unreachable):
        return (
            "Before it goes it is drained, and the controllers do not answer: "
            f"{seen.view.reason.removesuffix('.')}. {undrained}"
        )
    if refusal(seen):
        return (
            f"Before it goes {what} is to be drained, and that failed: "
            f"{refusal(seen).removesuffix('.')}. {undrained}"
        )
    if left is None:
        return f"Before it goes {what} is drained, and no master has said yet what is left"
    return f"Before it goes {what} is drained: {left.waits_for}"


def left_by(view: GroupView) -> DrainView | None:
    """The word of the living master, once it knows of the drain."""
    for member in view.members:
        if member.broker_id == view.master_broker_id and member.alive:
            return member.drain if view.drain_began_ms is not None else None
    return None


def _deadline(seen: BrokerObserved, group: BrokerGroup) -> dt.datetime:
    since = seen.meta.deletion_timestamp
    assert since is not None, "only what is deleted is drained"
    began = dt.datetime.fromisoformat(since)
    if began.tzinfo is None:
        began = began.replace(tzinfo=dt.UTC)
    return began + dt.timedelta(seconds=group.spec.drain.deadline_seconds)
