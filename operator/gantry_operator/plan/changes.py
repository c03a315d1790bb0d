"""The last change and the last failover, for the status: announced, carried out, proved.

No figure is made up. Moments are the controllers' and the brokers' own words (`MastershipView`),
and what nobody saw is absent. A gap is told only where somebody wrote right before it: between two
records of a group that nobody uses may lie a day, and nobody waited. The status changes when a
change begins and ends, and when a mastership that moved is written to first; never in between.
"""

from __future__ import annotations

import datetime as dt
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from gantry_operator.models.changes import ChangeStatus, FailoverStatus
from gantry_operator.plan.conditions import timestamp
from gantry_operator.plan.foresight import HAND_OVER_MS, foresee
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.shards import known_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gantry_protocol.admin import GroupView, MastershipView

    from gantry_operator.models import BrokerGroupStatus
    from gantry_operator.plan.broker_steps import PlanStep
    from gantry_operator.plan.foresight import Foresight, Planner
    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import BrokerObserved

Kind = Literal["RollingUpdate", "ScaleDown", "Switchover", "GrowVolumes", "ApplySettings"]
_KINDS: dict[str, Kind] = {
    Reason.ROLLING_UPDATE: "RollingUpdate",
    Reason.SCALING_DOWN: "ScaleDown",
    Reason.SWITCHOVER_IN_PROGRESS: "Switchover",
    Reason.MOVING_TO_ZONE: "Switchover",
    Reason.GROWING_VOLUMES: "GrowVolumes",
    Reason.APPLYING_SETTINGS: "ApplySettings",
}
_BY_OTHERS = ("GrowVolumes", "ApplySettings")
"""Changes that go on without a step of the operator's own."""
IN_USE_MS = 1_000
"""So shortly before its end a mastership was written to, or the gap says nothing of clients."""


def expected_gap_ms(status: BrokerGroupStatus | None) -> int:
    """The gap of a planned move: as of the last change that had one, else the stated bound."""
    last = status.last_change if status is not None else None
    measured = last.measured_gap_ms if last is not None else None
    return HAND_OVER_MS if measured is None else measured


def last_change(
    seen: BrokerObserved,
    step: PlanStep | None,
    now: dt.datetime,
    planner: Planner,
    *,
    ready: bool,
) -> ChangeStatus | None:
    """The change under way, else the last one.

    Args:
        seen: the world.
        step: what the plan does now.
        now: the time.
        planner: what is foreseen with; it must not ask for this again.
        ready: all is as wished, so that a change is over.
    """
    old = seen.previous.last_change if seen.previous else None
    kind = _KINDS.get(step.reason) if step is not None else None
    if old is not None and old.finished_at is None and kind in (None, old.kind):
        current = _measured(old, seen)
        return _finished(current, seen, now) if ready and kind is None else current
    acts = step is not None and (step.action is not None or kind in _BY_OTHERS)
    if kind is None or not acts:  # a wait is no change yet
        return None if old is None else _measured(old, seen)
    foreseen = foresee(seen, now, planner, gap_ms=expected_gap_ms(seen.previous))
    wished = seen.group.spec.switchover if seen.group is not None else None
    asked = step is not None and step.reason == Reason.SWITCHOVER_IN_PROGRESS
    return ChangeStatus(
        id=wished.id if asked and wished is not None else str(seen.meta.generation),
        kind=kind,
        started_at=timestamp(now),
        from_epoch=_epoch(seen),
        steps=_steps(kind, foreseen, seen),
        predicted_gap_ms=foreseen.gap_ms,
    )


def _steps(kind: Kind, foreseen: Foresight, seen: BrokerObserved) -> int:
    if kind == "ApplySettings":
        return len(seen.pods)
    return len(foreseen.growing if kind == "GrowVolumes" else foreseen.disruptive)


def _epoch(seen: BrokerObserved) -> int | None:
    groups = known_groups(seen)
    return groups[0].view.master_epoch if len(groups) == 1 and not groups[0].shard else None


def _finished(change: ChangeStatus, seen: BrokerObserved, now: dt.datetime) -> ChangeStatus:
    lost = [lost_bytes(group.view) for group in known_groups(seen)]
    known = [one for one in lost if one is not None]
    return change.model_copy(
        update={
            "finished_at": timestamp(now),
            "to_epoch": _epoch(seen),
            "lost_bytes": sum(known) if lost and len(known) == len(lost) else None,
        }
    )


def _measured(change: ChangeStatus, seen: BrokerObserved) -> ChangeStatus:
    """A change with the gaps of the masterships that moved in it, as far as they are known."""
    gaps = [
        gap
        for group in known_groups(seen)
        if (told := group.view.mastership) is not None
        and told.planned
        and _is_part_of(change, told)
        and (gap := gap_ms(told)) is not None
    ]
    if change.measured_gap_ms is not None:
        gaps.append(change.measured_gap_ms)
    return change.model_copy(update={"measured_gap_ms": max(gaps, default=None)})


def _is_part_of(change: ChangeStatus, told: MastershipView) -> bool:
    """By the epochs; of many shards, by the clocks, which may differ a little."""
    if change.from_epoch is not None:
        finished = change.finished_at is not None
        last = change.to_epoch if finished else told.epoch
        return change.from_epoch < told.epoch <= (last if last is not None else change.from_epoch)
    if told.elected_ms is None or told.elected_ms < _ms(change.started_at):
        return False
    return change.finished_at is None or told.elected_ms < _ms(change.finished_at) + 1000


def last_failover(seen: BrokerObserved) -> FailoverStatus | None:
    """The newest change of master that nobody asked for, of all groups of the resource."""
    old = seen.previous.last_failover if seen.previous else None
    found = list(_failovers(known_groups(seen)))
    if not found:
        return old
    elected_ms, group, told = max(found, key=itemgetter(0))
    if old is not None and elected_ms < _ms(old.elected_at):
        return old
    master = group.master()
    pod = group.pod_of(master) if master is not None else None
    known = old if old is not None and _is_same(old, group, told) else None
    return FailoverStatus(
        group=group.shard or None,
        master=pod.name if pod is not None else (known.master if known is not None else None),
        epoch=told.epoch,
        seen=told.reason,
        last_heard_at=_moment(told.heard_ms),
        noticed_at=_moment(told.noticed_ms),
        elected_at=_moment(elected_ms) or "",
        first_write_at=_moment(told.first_write_ms),
        notice_ms=_between(told.heard_ms, told.noticed_ms),
        election_ms=_between(told.noticed_ms, elected_ms),
        resume_ms=_between(elected_ms, told.first_write_ms),
        gap_ms=gap_ms(told),
        lost_bytes=lost_bytes(group.view),
    )


def _failovers(
    groups: Iterable[ObservedGroup],
) -> Iterator[tuple[int, ObservedGroup, MastershipView]]:
    for group in groups:
        told = group.view.mastership
        if told is not None and told.planned is False and told.elected_ms is not None:
            yield told.elected_ms, group, told


def _is_same(old: FailoverStatus, group: ObservedGroup, told: MastershipView) -> bool:
    return (old.group or "", old.epoch) == (group.shard, told.epoch)


def gap_ms(told: MastershipView) -> int | None:
    """The time in which nobody could write; None where it is not known, or nobody tried.

    Somebody tried if the newest record before is not older than the moment at which the old master
    was last known to be there, or gave way, but for `IN_USE_MS`.
    """
    there_ms = told.heard_ms if told.heard_ms is not None else told.elected_ms
    if told.last_write_ms is None or there_ms is None or told.last_write_ms < there_ms - IN_USE_MS:
        return None
    return _between(told.last_write_ms, told.first_write_ms)


def lost_bytes(view: GroupView) -> int | None:
    """Confirmed bytes that went with the present mastership.

    Nobody is elected who lacks what was confirmed, unless a person says so, which is on record.
    """
    loss = view.loss
    if loss is None or loss.master_epoch != view.master_epoch:
        return 0 if view.clean else None
    return None if loss.confirmed_offset < 0 else max(0, loss.confirmed_offset - loss.end)


def _between(since_ms: int | None, until_ms: int | None) -> int | None:
    """Milliseconds; None where one end is unknown, or clocks that differ turn them around."""
    if since_ms is None or until_ms is None or until_ms < since_ms:
        return None
    return until_ms - since_ms


def _moment(ms: int | None) -> str | None:
    if ms is None:
        return None
    at = dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"


def _ms(moment: str) -> int:
    try:
        return round(dt.datetime.fromisoformat(moment).timestamp() * 1000)
    except ValueError:
        return 0
