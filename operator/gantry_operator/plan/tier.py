"""The state of a group's tier by its master's last report: a condition, and a quiet status.

Only the master's word counts, and only if it is of the epoch that the controllers are in: what a
deposed master says of itself is true of itself alone. A store that fails now and then is no news;
what is news is an upload that nobody holds, or that has not committed anything for a minute.

Offsets and lags change all the time, and every write of a status is an event that starts the next
reconcile. So they are written with a change of uploader, epoch or health, else every half minute.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator.models import BrokerGroupStatus, ConditionStatus, TierStatus
from gantry_operator.plan.conditions import find, timestamp
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.shards import joined, known_groups, wished_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_protocol.admin import TierView

    from gantry_operator.models import Condition
    from gantry_operator.plan.conditions import Conditions
    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import BrokerObserved

CONDITION = "TierHealthy"
REFRESH_S = 30
"""How old the offsets in the status may become while nothing else changes."""

_CHANGING = re.compile(r"[0-9a-f]{32}|[0-9]+")
"""Nonces and numbers in what a store's failed attempts are told with; each attempt has new ones."""
_HALTED = "halted"
_STOPPED = {
    "fenced": (Reason.FENCED, "found the tier held by another master"),
    "stalled": (Reason.STALLED, "has not been able to upload for a minute"),
    "unreadable": (Reason.UNREADABLE, "uploads, and cannot read all that the tier should hold"),
    "shortened": (Reason.HISTORY_REMOVED, "uploads, and finds the beginning of the tier removed"),
}


_REPEATED = (Reason.STALLED, Reason.UNREADABLE, Reason.HISTORY_REMOVED)


_BAD_FIRST = ("False", "Unknown", "True")


class Health(msgspec.Struct, frozen=True):
    """The condition, before it is one."""

    status: ConditionStatus
    reason: Reason
    message: str


def report_tier(conditions: Conditions, seen: BrokerObserved) -> None:
    """Sets the condition of a group that has a tier; the others have none."""
    if seen.group is None:
        conditions.keep(CONDITION)
        return
    if seen.group.spec.tier is None:
        return
    found = _of_all(seen)
    before = find(seen.previous.conditions, CONDITION) if seen.previous else None
    conditions.set(CONDITION, found.status, found.reason, _calm(before, found))


def _of_all(seen: BrokerObserved) -> Health:
    """The judgement on the group, or on the shard that is furthest from well, with its name."""
    judged = [(part.shard, tier_health(part, _known(part))) for part in wished_groups(seen)]
    shard, worst = min(judged, key=lambda item: _BAD_FIRST.index(item[1].status))
    if not shard:
        return worst
    if worst.status == "True":
        text = f"The master of each of {len(judged)} shards uploads."
        return Health("True", Reason.UPLOADING, text)
    return Health(worst.status, worst.reason, f"{shard}: {worst.message}")


def _known(part: BrokerObserved) -> ObservedGroup | None:
    return next(iter(joined((part,))), None)


def tier_health(seen: BrokerObserved, group: ObservedGroup | None) -> Health:
    """The judgement on the master's report."""
    if isinstance(seen.view, Unreachable):
        return Health("Unknown", Reason.CONTROLLER_UNREACHABLE, seen.view.reason)
    master = group.master() if group is not None else None
    if group is None or master is None or not master.alive:
        return Health("Unknown", Reason.NO_MASTER, "There is no master that could upload.")
    pod = group.pod_of(master)
    name = pod.name if pod else f"Broker {master.broker_id}"
    if master.tier is None:
        text = f"{name} has not spoken of a tier yet; it does once it was restarted with one."
        return Health("Unknown", Reason.NOT_REPORTED, text)
    return _told(name, master.tier, group.view.master_epoch)


def _told(name: str, tier: TierView, epoch: int) -> Health:
    if tier.state == _HALTED:  # for good, whatever epochs follow
        text = f"{name} stopped its uploads, and a person has to look"
        return Health("False", Reason.HALTED, _sentence(text, tier.reason))
    if tier.epoch == epoch and tier.state in _STOPPED:
        reason, words = _STOPPED[tier.state]
        return Health("False", reason, _sentence(f"{name} {words}", tier.reason))
    if tier.epoch == epoch and tier.committed_offset is not None:
        return Health("True", Reason.UPLOADING, f"{name} uploads at epoch {epoch}.")
    if tier.epoch == epoch and tier.reason:
        text = _sentence(f"{name} cannot take the upload over", tier.reason)
        return Health("False", Reason.STALLED, text)
    return Health("Unknown", Reason.CLAIMING, f"{name} takes the upload over at epoch {epoch}.")


def _sentence(start: str, cause: str) -> str:
    return f"{start}: {cause.rstrip('.')}." if cause else f"{start}."


def _calm(before: Condition | None, found: Health) -> str:
    """The old words as long as they say the same of another attempt."""
    if before is None or (before.status, before.reason) != (found.status, found.reason):
        return found.message
    repeated = found.reason in _REPEATED and _CHANGING.sub("#", before.message) == (
        _CHANGING.sub("#", found.message)
    )
    return before.message if repeated else found.message


def tier_status(
    seen: BrokerObserved, conditions: Iterable[Condition], now: dt.datetime
) -> TierStatus | None:
    """The uploader and its progress; the former ones while nobody holds the tier."""
    old = seen.previous or BrokerGroupStatus(observed_generation=0)
    if seen.group is not None and seen.group.spec.tier is None:
        return None
    if seen.group is None:
        return old.tier
    fresh = _sum(seen, old.tier, now) if seen.shards else _held(_known(seen), old.tier, now)
    if fresh is None or (old.tier is not None and not _is_due(old, fresh, conditions, now)):
        return old.tier
    return fresh


def _held(
    group: ObservedGroup | None, old: TierStatus | None, now: dt.datetime
) -> TierStatus | None:
    """The status by a master that holds the tier; None if it does not, or is of another epoch."""
    master = None if group is None else group.master()
    if group is None or master is None:
        return None
    tier = master.tier
    if tier is None or tier.version is None or tier.epoch != group.view.master_epoch:
        return None
    pod = group.pod_of(master)
    kept = old if old is not None and old.epoch == tier.epoch else None
    end = old.committed_offset if old and tier.committed_offset is None else tier.committed_offset
    return TierStatus(
        uploader=pod.ordinal if pod else kept.uploader if kept else None,
        epoch=tier.epoch,
        committed_offset=end,
        lag_seconds=None if tier.lag_ms is None else tier.lag_ms // 1000,
        observed_at=timestamp(now),
    )


def _sum(seen: BrokerObserved, old: TierStatus | None, now: dt.datetime) -> TierStatus | None:
    """The same of all shards; the former sum while some do not say how far they are."""
    groups = known_groups(seen)
    held = [one for group in groups if (one := _held(group, None, now)) is not None]
    if not held:
        return None
    lags = [one.lag_seconds for one in held if one.lag_seconds is not None]
    ends = [one.committed_offset for one in held if one.committed_offset is not None]
    before = None if old is None else old.committed_offset
    return TierStatus(
        epoch=0,
        committed_offset=sum(ends) if len(ends) == len(groups) else before,
        lag_seconds=max(lags, default=None),
        observed_at=timestamp(now),
    )


def _is_due(
    old: BrokerGroupStatus, fresh: TierStatus, conditions: Iterable[Condition], now: dt.datetime
) -> bool:
    assert old.tier is not None, "checked by the caller"
    if (old.tier.uploader, old.tier.epoch) != (fresh.uploader, fresh.epoch):
        return True
    was, is_now = find(old.conditions, CONDITION), find(conditions, CONDITION)
    if was is None or is_now is None or (was.status, was.reason) != (is_now.status, is_now.reason):
        return True
    try:
        age = now - dt.datetime.fromisoformat(old.tier.observed_at)
    except (TypeError, ValueError):
        return True  # written by somebody else
    return abs(age.total_seconds()) >= REFRESH_S


def has_tier(seen: BrokerObserved) -> bool:
    """Whether there is a tier to look at from time to time."""
    wanted = seen.group is not None and seen.group.spec.tier is not None
    return wanted and bool(known_groups(seen))
