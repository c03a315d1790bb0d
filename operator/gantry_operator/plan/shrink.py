"""Fewer shards: those that are not wished any more are drained, retired, and taken off the pods.

In this order, so that nothing is taken from anybody: the controllers lead new messages to the
other shards, the masters serve what they have until it is consumed or the deadline has come, the
shards are retired, and only then are pods told of fewer and replaced one by one. All that leave are
drained at the same time.

Everything is read from the world each time: how many the pods host from the StatefulSet, how far a
drain has come from the controllers. That it is the operator who wants a drain they do not know, so
the status says it before one begins, and until one that is not wanted any more has ended. What was
retired stays on record and on the volumes, so a shard that is wished again is what it was.
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
    somebody else began is somebody else's to end. So none begins before the status names the shard:
    an operator that ends right after that, and a wish that is taken back at once, leave nothing
    behind that the next look would take for the drain of somebody else.
    """
    named = _named(seen)
    steps: list[Action] = []
    for part in _leaving(seen):
        view = part.view
        if not isinstance(view, GroupView):
            continue
        if _may_go(part, group, now):
            steps += [_told(part, view), RetireGroup(uid=part.uid, group=part.shard)]
        elif view.drain_began_ms is None and part.shard in named:
            steps.append(DrainGroup(uid=part.uid, group=part.shard))
    steps += [EndDrain(group=part.shard) for part in _wished_again(seen)]
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
    if _began_ms(first) is not None:
        return PlanStep(Reason.DRAINING, f"{drain.waits_for(first)}.")
    reason = Reason.DRAIN_REFUSED if drain.refusal(first) else Reason.DRAINING
    return PlanStep(reason, f"{_before_drain(first)}.")


def shrink_status(
    seen: BrokerObserved, group: BrokerGroup, now: dt.datetime, *, acts: bool
) -> DrainStatus | None:
    """The shards whose drain is this operator's, and its progress, for people; None without any.

    Args:
        seen: the world.
        group: the resource.
        now: the time.
        acts: whether drains may begin.
    """
    leaving = [
        part
        for part in _leaving(seen)
        if _began_ms(part) is not None or (acts and _is_to_be_drained(part, group, now))
    ]
    parts = [*leaving, *_wished_again(seen)]
    if not parts:
        return None
    begun = [part for part in leaving if _began_ms(part) is not None]
    owing = [part for part in begun if drain.owes(part)]
    found = drain.progress(owing or begun or parts, _ends(seen, begun, group, now))
    told = {} if owing else {"message": _told_of(leaving, begun, parts)}
    shards = tuple(sorted((part.shard for part in parts), key=names.shard_index))
    return found.model_copy(update={"shards": shards} | told)


def _told_of(
    leaving: list[BrokerObserved], begun: list[BrokerObserved], parts: list[BrokerObserved]
) -> str:
    """What people read of drains in which nothing is known to be left."""
    if begun:
        return "Nothing is left to be consumed in what is drained."
    if not leaving:
        return f"Shard {parts[0].shard} is wished again and is to take messages again."
    first = drain.told_first(leaving)
    return f"{_before_drain(first)}."


def _ends(
    seen: BrokerObserved, begun: list[BrokerObserved], group: BrokerGroup, now: dt.datetime
) -> dt.datetime:
    """The deadline of the last drain; of one that has not begun, as it was told first."""
    times = [began_ms for part in begun if (began_ms := _began_ms(part)) is not None]
    if times:
        return _deadline(max(times), group)
    if seen.previous and seen.previous.drain:
        return dt.datetime.fromisoformat(seen.previous.drain.deadline)
    return now + dt.timedelta(seconds=group.spec.drain.deadline_seconds)


def _named(seen: BrokerObserved) -> tuple[str, ...]:
    """The shards whose drain is this operator's, as the status says."""
    return seen.previous.drain.shards if seen.previous and seen.previous.drain else ()


def _wished_again(seen: BrokerObserved) -> list[BrokerObserved]:
    """The shards that this operator drains and that are to stay."""
    named = _named(seen)
    return [
        part
        for part in each_group(seen)
        if part.shard in named and not is_leaving(part) and _began_ms(part) is not None
    ]


def _began_ms(part: BrokerObserved) -> int | None:
    return part.view.drain_began_ms if isinstance(part.view, GroupView) else None


def _is_to_be_drained(part: BrokerObserved, group: BrokerGroup, now: dt.datetime) -> bool:
    return isinstance(part.view, GroupView) and not _may_go(part, group, now)


def _before_drain(part: BrokerObserved) -> str:
    """The subject of a drain that has not begun, for people."""
    if drain.refusal(part):
        return drain.waits_for(part)
    text = f"Shard {part.shard} is to be drained"
    if isinstance(part.view, GroupView) and not part.view.has_others:
        text += ", and no other group of the cluster takes messages"
    return text


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
