"""Fewer shards: those that are not wished any more are drained, retired, and taken off the pods.

In this order, so that nothing is taken from anybody: the controllers lead new messages to the
other shards, the masters serve what they have until it is consumed or the deadline has come, the
shards are retired, and only then are pods told of fewer and replaced one by one. All that leave are
drained at the same time.

Everything is read from the world each time: how many the pods host from the StatefulSet, how far a
drain has come from the controllers. What was retired stays on record and on the volumes, so a shard
that is wished again is what it was.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from gantry_protocol.admin import GroupView
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.plan import drain
from gantry_operator.plan.actions import (
    Action,
    DrainGroup,
    EmitEvent,
    EndDrain,
    RetireGroup,
)
from gantry_operator.plan.broker_steps import PlanStep
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.shards import each_group, is_leaving, is_on_record

if TYPE_CHECKING:
    from gantry_operator.models import BrokerGroup, DrainStatus
    from gantry_operator.plan.observed import BrokerObserved


def hosted_now(seen: BrokerObserved, group: BrokerGroup) -> int | None:
    """The number of shards that pods are to host; None for a group without a number of them."""
    if group.spec.shards is None:
        return None
    staying = [names.shard_index(part.shard) + 1 for part in _leaving(seen)]
    return max([group.spec.shards, *staying])


def shrink_steps(seen: BrokerObserved, group: BrokerGroup, now: dt.datetime) -> list[Action]:
    """Rule: a shard that is not wished is drained, and retired once nothing is left or time is up.

    One that is wished again while the operator drains it takes messages again; a drain that
    somebody else began is somebody else's to end.
    """
    steps: list[Action] = []
    for part in _leaving(seen):
        view = part.view
        if not isinstance(view, GroupView):
            continue
        if _may_go(part, group, now):
            steps += [_told(part, view), RetireGroup(uid=part.uid, group=part.shard)]
        elif view.drain_began_ms is None:
            steps.append(DrainGroup(uid=part.uid, group=part.shard))
    drained = seen.previous.drain.shards if seen.previous and seen.previous.drain else ()
    steps += [
        EndDrain(group=part.shard)
        for part in each_group(seen)
        if part.shard in drained
        and not is_leaving(part)
        and isinstance(part.view, GroupView)
        and part.view.drain_began_ms is not None
    ]
    return steps


def shrinking(seen: BrokerObserved, group: BrokerGroup, now: dt.datetime) -> PlanStep | None:
    """The wait for a shard that leaves; none while the controllers cannot be asked."""
    left = _leaving(seen)
    if not left or isinstance(seen.view, Unreachable):
        return None
    waiting = [part for part in left if not _may_go(part, group, now)]
    if not waiting:
        return PlanStep(Reason.DRAINING, f"Shard {left[0].shard} goes: nobody is led there again.")
    first = drain.told_first(waiting)
    if drain.refusal(first):
        return PlanStep(Reason.DRAIN_REFUSED, f"{drain.waits_for(first)}.")
    view = waiting[0].view
    begun = isinstance(view, GroupView) and view.drain_began_ms is not None
    text = drain.waits_for(waiting[0]) if begun else f"Shard {waiting[0].shard} is to be drained"
    if isinstance(view, GroupView) and not begun and not view.has_others:
        text += ", and no other group of the cluster takes messages"
    return PlanStep(Reason.DRAINING, f"{text}.")


def shrink_status(seen: BrokerObserved, group: BrokerGroup) -> DrainStatus | None:
    """The progress of the shards that are drained, for people; None while none is."""
    begun = {
        part.shard: part.view.drain_began_ms
        for part in _leaving(seen)
        if isinstance(part.view, GroupView) and part.view.drain_began_ms is not None
    }
    if not begun:
        return None
    parts = [part for part in _leaving(seen) if part.shard in begun]
    ends = _deadline(max(begun.values()), group)
    owing = [part for part in parts if drain.owes(part)]
    found = drain.progress(owing or parts, ends)
    told = {} if owing else {"message": "Nothing is left to be consumed in what is drained."}
    return found.model_copy(update={"shards": tuple(part.shard for part in parts)} | told)


def _leaving(seen: BrokerObserved) -> tuple[BrokerObserved, ...]:
    """The shards that are to leave and have not."""
    return tuple(part for part in each_group(seen) if is_leaving(part) and is_on_record(part))


def _may_go(part: BrokerObserved, group: BrokerGroup, now: dt.datetime) -> bool:
    view = part.view
    if not isinstance(view, GroupView):
        return False
    if view.master_epoch == 0 or group.spec.drain.deadline_seconds == 0:
        return True
    if view.drain_began_ms is None:
        return False
    return not drain.owes(part) or now >= _deadline(view.drain_began_ms, group)


def _deadline(began_ms: int, group: BrokerGroup) -> dt.datetime:
    began = dt.datetime.fromtimestamp(began_ms / 1000, dt.UTC)
    return began + dt.timedelta(seconds=group.spec.drain.deadline_seconds)


def _told(part: BrokerObserved, view: GroupView) -> EmitEvent:
    left = drain.left_by(view)
    if view.master_epoch == 0 or (left is not None and left.done):
        note = f"Nothing is left to be consumed in {part.shard}."
        return EmitEvent(type="Normal", reason=Reason.DRAIN_ENDED, note=note)
    much = (
        "what" if left is None else f"{left.unread + left.parked + left.transactions} left, which"
    )
    note = f"{part.shard} goes with {much} nobody consumed in time."
    return EmitEvent(type="Warning", reason=Reason.DRAIN_ENDED, note=note)
