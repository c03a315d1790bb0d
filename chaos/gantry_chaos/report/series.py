"""Series that a report draws, from a history and its observations. Pure and bounded.

The rule protected here: thinning keeps what matters. Of many successes some are drawn; everything
that did not succeed is kept as long as it fits, and the slowest success of every step is kept too,
so no spike vanishes from the picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gantry_chaos.checkers.availability import quantile
from gantry_chaos.history.observations import LeaderSeen, OffsetSeen, RoleSeen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gantry_chaos.history.observations import Observation
    from gantry_chaos.history.operations import Operation

POINTS_MAX = 4000
STEPS_MAX = 300
OFFSETS_MAX = 1000  # points of one line
BARS_MAX = 2000


class Point(msgspec.Struct, frozen=True):
    """One request: when it was sent, how long it took, and its outcome."""

    at_ms: int
    took_ms: int
    outcome: str
    told: str


class TimeBucket(msgspec.Struct, frozen=True):
    """Requests that were sent within one step of time."""

    at_ms: int
    median_ms: float
    p99_ms: float
    per_s: float


class Bar(msgspec.Struct, frozen=True):
    """A stretch of a lane: what somebody was, from when to when."""

    lane: str
    start_ms: int
    end_ms: int
    kind: str
    label: str


class Curve(msgspec.Struct, frozen=True):
    """An offset over time."""

    name: str
    points: tuple[tuple[int, int], ...]


def points(operations: Iterable[Operation], op: str, *, most: int = POINTS_MAX) -> list[Point]:
    """Requests to draw, at most `most`."""
    everything = [
        Point(
            operation.called_ms,
            (operation.returned_ms or operation.called_ms) - operation.called_ms,
            operation.outcome,
            f"{operation.client} {operation.value} {operation.outcome}",
        )
        for operation in operations
        if operation.op == op
    ]
    bad = [point for point in everything if point.outcome != "SUCCESS"][:most]
    good = [point for point in everything if point.outcome == "SUCCESS"]
    room = most - len(bad)
    if len(good) > room:
        size = -(-len(good) // room) if room else len(good)
        chunks = [good[n : n + size] for n in range(0, len(good), size)] if room else []
        good = [max(chunk, key=lambda point: point.took_ms) for chunk in chunks]
    return sorted(bad + good, key=lambda point: point.at_ms)


def steps(operations: Iterable[Operation], op: str, start_ms: int, end_ms: int) -> list[TimeBucket]:
    """Quantiles and rates of acknowledged requests in equal steps; empty steps have rate 0."""
    width_ms = max(100, -(-(end_ms - start_ms) // STEPS_MAX))
    took: dict[int, list[float]] = {}
    for operation in operations:
        if (
            operation.op == op
            and operation.outcome == "SUCCESS"
            and operation.returned_ms is not None
        ):
            number = (operation.called_ms - start_ms) // width_ms
            took.setdefault(number, []).append(operation.returned_ms - operation.called_ms)
    last = (end_ms - start_ms) // width_ms
    return [
        TimeBucket(
            start_ms + number * width_ms,
            quantile(took[number], 0.5) if number in took else 0.0,
            quantile(took[number], 0.99) if number in took else 0.0,
            len(took.get(number, ())) * 1000 / width_ms,
        )
        for number in range(last + 1)
    ]


def bars(observations: Iterable[Observation], end_ms: int) -> list[Bar]:
    """Roles over time: a lane per broker, and one for the leader; the longest `BARS_MAX` bars."""
    open_bars: dict[str, Bar] = {}
    done: list[Bar] = []
    ordered = sorted(
        (
            observation
            for observation in observations
            if isinstance(observation, RoleSeen | LeaderSeen)
        ),
        key=lambda item: item.at_ms,
    )
    for seen in ordered:
        match seen:
            case RoleSeen(broker=lane, role=kind, epoch=epoch):
                label = f"epoch {epoch}" if kind == "master" else kind
            case LeaderSeen(controller=leader, term=term):
                lane, kind = "controllers", "leader" if leader else "gone"
                label = f"{leader}, term {term}" if leader else "no leader"
        before = open_bars.get(lane)
        if before is not None and (before.kind, before.label) == (kind, label):
            continue
        if before is not None:
            done.append(msgspec.structs.replace(before, end_ms=seen.at_ms))
        open_bars[lane] = Bar(lane, seen.at_ms, end_ms, kind, label)
    longest = sorted([*done, *open_bars.values()], key=lambda bar: bar.start_ms - bar.end_ms)
    return sorted(longest[:BARS_MAX], key=lambda bar: (bar.lane, bar.start_ms))


def curves(observations: Iterable[Observation]) -> list[Curve]:
    """Every offset of every group, thinned to `OFFSETS_MAX` points each."""
    found: dict[str, list[tuple[int, int]]] = {}
    for observation in observations:
        if isinstance(observation, OffsetSeen):
            found.setdefault(f"{observation.group} {observation.name}", []).append(
                (observation.at_ms, observation.value)
            )
    return [Curve(name, tuple(_thin(sorted(item)))) for name, item in sorted(found.items())]


def _thin(values: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    size = -(-len(values) // OFFSETS_MAX)
    kept = list(values[::size]) if size > 1 else list(values)
    if values and kept[-1] != values[-1]:
        kept.append(values[-1])
    return kept
