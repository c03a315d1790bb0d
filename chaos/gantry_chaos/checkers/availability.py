"""Availability for clients: gaps, shares and OpenChaos's RTO. Pure.

The *write gap* of a fault is the longest time without a successful acknowledgement of one client
that touches the time from the fault's beginning to its heal and `settle`, less the longest gap that
is usual without a fault (the 99th percentile before the first one). It is taken per client, since
one lucky client ends OpenChaos's clock for all; the worst and the median client are told.

OpenChaos's RTO stands beside it for comparison: from the first request of a fault that did not
succeed to the first success of any client after that.

What it refuses: to call a run valid whose clients were not served already before the fault.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from gantry_chaos.checkers.verdicts import Verdict, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_chaos.history.operations import Operation, Window

NAME = "availability"
SETTLE_MS = 20_000
BEFORE_MS = 5_000  # right before a fault, at most, and not before the heal of another
SUCCESS_FLOOR = 0.99  # of the requests before a fault
BASELINE_QUANTILE = 0.99


class Outage(msgspec.Struct, frozen=True):
    """The cost of one fault, in milliseconds.

    Attributes:
        worst_ms: the write gap of the worst client; None: a client was never served again.
        median_ms: of the median client, of those that were.
        rto_ms: as OpenChaos counts; None: nothing failed, or nothing succeeded after.
        before: share of requests that succeeded, of those that ended before the fault; None: there
            were none.
        during, after: shares of those that began meanwhile.
    """

    fault: str
    worst_ms: float | None
    median_ms: float | None
    baseline_ms: float
    rto_ms: int | None
    before: float | None
    during: float | None
    after: float | None


def outages(
    operations: Sequence[Operation],
    faults: Sequence[Window],
    *,
    op: str = "enqueue",
    settle_ms: int = SETTLE_MS,
) -> list[Outage]:
    """The cost of each fault.

    Args:
        operations: the history, in the order of calls.
        faults: in the order of their beginnings.
        op: whose acknowledgements are looked at.
        settle_ms: how long after the heal a gap still counts as the fault's, unless the next
            fault begins before.
    """
    ours = [operation for operation in operations if operation.op == op]
    last_ms = max((our.returned_ms or our.called_ms for our in ours), default=0)
    found: list[Outage] = []
    acks = _acks(ours)
    baseline_ms = _usual_gap(acks, min((fault.start_ms for fault in faults), default=0))
    for number, fault in enumerate(faults):
        end_ms = last_ms if fault.end_ms is None else fault.end_ms
        later = [other.start_ms for other in faults[number + 1 :] if other.start_ms >= end_ms]
        next_ms = min(later, default=math.inf)
        until_ms = min(end_ms + settle_ms, next_ms)
        healed = [other.end_ms for other in faults if other.end_ms is not None]
        quiet = [at_ms for at_ms in healed if at_ms <= fault.start_ms]
        since_ms = max([fault.start_ms - BEFORE_MS, *quiet])
        gaps = [
            max(0.0, gap - baseline_ms) if gap is not None else None
            for gap in (_gap(times, fault.start_ms, until_ms, next_ms) for times in acks.values())
        ]
        known = [gap for gap in gaps if gap is not None]
        found.append(
            Outage(
                fault=fault.name,
                worst_ms=max(known) if known and len(known) == len(gaps) else None,
                median_ms=median(known) if known else None,
                baseline_ms=baseline_ms,
                rto_ms=_rto(ours, fault.start_ms, until_ms),
                before=_share(_over(ours, fault.start_ms), since_ms, fault.start_ms),
                during=_share(ours, fault.start_ms, end_ms),
                after=_share(ours, end_ms, until_ms),
            )
        )
    return found


def check(
    found: Sequence[Outage],
    *,
    limit_ms: float | None = None,
    floor: float = SUCCESS_FLOOR,
    name: str = NAME,
) -> Verdict:
    """Whether clients were served before each fault, and again after it, and soon enough.

    Args:
        found: what the faults cost.
        limit_ms: for the gap of the worst client; None: it is only told.
        floor: the share of requests before a fault that must have succeeded.
        name: of the verdict.
    """
    violations: list[str] = []
    for item in found:
        if item.before is None or item.before < floor:
            share = "none" if item.before is None else f"{item.before:.1%}"
            violations.append(
                f"{item.fault}: {share} of the requests before it succeeded: it says nothing."
            )
        if item.worst_ms is None:
            violations.append(f"{item.fault}: a client was never served again.")
        elif limit_ms is not None and item.worst_ms > limit_ms:
            violations.append(
                f"{item.fault}: a client could not write for {item.worst_ms:.0f} ms, "
                f"{limit_ms:.0f} ms are allowed."
            )
    known = [item.worst_ms for item in found if item.worst_ms is not None]
    medians = [item.median_ms for item in found if item.median_ms is not None]
    figures: dict[str, int | float | str | bool | None] = {
        "faults": len(found),
        "worstGapMs": round(max(known), 1) if known else None,
        "medianGapMs": round(median(medians), 1) if medians else None,
        "limitMs": limit_ms,
    }
    return verdict(name, figures, violations)


def _acks(ours: Sequence[Operation]) -> dict[str, list[int]]:
    """When each client was acknowledged something."""
    acks: dict[str, list[int]] = {}
    for our in ours:
        times = acks.setdefault(our.client, [])
        if our.outcome == "SUCCESS" and our.returned_ms is not None:
            times.append(our.returned_ms)
    for times in acks.values():
        times.sort()
    return acks


def _usual_gap(acks: dict[str, list[int]], until_ms: int) -> float:
    gaps = [b - a for times in acks.values() for a, b in pairwise(times) if b < until_ms]
    return quantile(gaps, BASELINE_QUANTILE) if gaps else 0.0


def _gap(times: Sequence[int], start_ms: int, until_ms: float, next_ms: float) -> float | None:
    """The longest gap of one client that ends after `start_ms` and begins before `until_ms`.

    What of it lies beyond `next_ms`, where another fault began, is that fault's.
    """
    if not times or times[-1] <= start_ms:
        return None
    touching = [(a, b) for a, b in pairwise(times) if b > start_ms and a < until_ms]
    gaps = [min(b, next_ms) - a for a, b in touching]
    return float(max(gaps)) if gaps else 0.0


def _rto(ours: Sequence[Operation], start_ms: int, until_ms: float) -> int | None:
    failed = [
        our.called_ms
        for our in ours
        if our.outcome != "SUCCESS" and start_ms <= our.called_ms <= until_ms
    ]
    if not failed:
        return None
    first_ms = min(failed)
    served = [
        our.returned_ms
        for our in ours
        if our.outcome == "SUCCESS" and our.returned_ms is not None and our.returned_ms > first_ms
    ]
    return min(served) - first_ms if served else None


def _over(ours: Sequence[Operation], at_ms: float) -> list[Operation]:
    """Those with an outcome by then: a fault may be why one that was under way has failed."""
    return [our for our in ours if our.returned_ms is not None and our.returned_ms < at_ms]


def _share(ours: Sequence[Operation], start_ms: float, end_ms: float) -> float | None:
    inside = [our for our in ours if start_ms <= our.called_ms < end_ms]
    if not inside:
        return None
    return sum(1 for item in inside if item.outcome == "SUCCESS") / len(inside)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all are not above."""
    ranked = sorted(values)
    return float(ranked[max(0, math.ceil(share * len(ranked)) - 1)])
