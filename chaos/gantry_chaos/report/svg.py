"""The picture of a run: lanes over one axis of time, as one SVG element. Pure.

Everything that comes from outside is escaped here, where it enters the page.
"""

from __future__ import annotations

import math
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gantry_chaos.report.series import Bar, Curve, Point, TimeBucket

WIDTH, LEFT, RIGHT = 1120, 150, 16
SCATTER_HEIGHT, RATE_HEIGHT, OFFSET_HEIGHT = 240, 70, 130
BAR_HEIGHT, GAP, AXIS_HEIGHT, HEAD_HEIGHT = 20, 26, 26, 22
TICKS = 10
LATENCY_MIN_MS = 0.5
CURVE_COLOURS = 6  # classes c0 … c5 of the page's style


class Band(msgspec.Struct, frozen=True):
    """A fault over all lanes."""

    name: str
    start_ms: int
    end_ms: int
    told: str


class Axis:
    """Time, from left to right."""

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self.start_ms = start_ms
        self.end_ms = max(end_ms, start_ms + 1)

    def x(self, at_ms: float) -> float:
        """The place of a moment; what lies outside is drawn at the edge."""
        inside = min(max(at_ms, self.start_ms), self.end_ms)
        share = (inside - self.start_ms) / (self.end_ms - self.start_ms)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Positions of whole seconds, and their labels."""
        span_s = (self.end_ms - self.start_ms) / 1000
        step_s = nice(span_s / TICKS)
        for number in range(math.floor(span_s / step_s) + 1):
            yield self.x(self.start_ms + number * step_s * 1000), f"{number * step_s:g} s"


def nice(value: float) -> float:
    """The next larger of 1, 2, 5, 10, 20, 50, … times a power of ten."""
    power = 10.0 ** math.floor(math.log10(max(value, 1e-9)))
    return next(power * item for item in (1, 2, 5, 10) if power * item >= value * (1 - 1e-9))


class Picture:
    """Lanes from top to bottom."""

    def __init__(self, axis: Axis, bands: Sequence[Band]) -> None:
        self._axis = axis
        self._bands = bands
        self._parts: list[str] = []
        self._top = float(HEAD_HEIGHT)

    def render(self, title: str) -> str:
        """The whole SVG."""
        bottom = self._top
        bands = [self._band(band, number, bottom) for number, band in enumerate(self._bands)]
        ticks = [
            f'<line class="grid" x1="{x}" y1="{HEAD_HEIGHT}" x2="{x}" y2="{bottom}"/>'
            f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">{label}</text>'
            for x, label in self._axis.ticks()
        ]
        height = bottom + AXIS_HEIGHT
        return (
            f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
            f"{''.join(bands)}{''.join(ticks)}{''.join(self._parts)}</svg>"
        )

    def scatter(self, points: Sequence[Point], steps: Sequence[TimeBucket]) -> None:
        """Latency on a logarithmic scale, with the median and the 99th percentile."""
        most_ms = max((point.took_ms for point in points), default=0)
        low, high = math.log10(LATENCY_MIN_MS), math.log10(max(most_ms, 10)) + 0.05
        top = self._lane("latency, ms", SCATTER_HEIGHT)

        def y(took_ms: float) -> float:
            share = (math.log10(max(took_ms, LATENCY_MIN_MS)) - low) / (high - low)
            return round(top + SCATTER_HEIGHT * (1 - share), 1)

        for power in range(math.ceil(low), math.floor(high) + 1):
            self._level(y(10.0**power), f"{10**power:g}")
        for point in points:
            self._parts.append(
                f'<circle class="{point.outcome.lower()}" cx="{self._axis.x(point.at_ms)}" '
                f'cy="{y(point.took_ms)}" r="2"><title>{escape(point.told)}, '
                f"{point.took_ms} ms</title></circle>"
            )
        for served, together in groupby(steps, key=lambda step: step.per_s > 0):
            if served:  # a line ends where nothing was acknowledged
                stretch = list(together)
                self._line("p50", ((step.at_ms, y(step.median_ms)) for step in stretch))
                self._line("p99", ((step.at_ms, y(step.p99_ms)) for step in stretch))

    def rate(self, steps: Sequence[TimeBucket]) -> None:
        """Acknowledgements per second."""
        most = nice(max((step.per_s for step in steps), default=1.0) or 1.0)
        top = self._lane("acknowledged / s", RATE_HEIGHT)
        self._level(top, f"{most:g}")
        self._line(
            "rate",
            ((step.at_ms, round(top + RATE_HEIGHT * (1 - step.per_s / most), 1)) for step in steps),
        )

    def bars(self, bars: Sequence[Bar]) -> None:
        """A lane per name, with what it was when."""
        for lane in sorted({bar.lane for bar in bars}):
            top = self._lane(lane, BAR_HEIGHT)
            for bar in bars:
                if bar.lane == lane:
                    self._parts.append(self._bar(bar, top))

    def curves(self, curves: Sequence[Curve]) -> None:
        """Offsets over time on one scale, from the smallest to the largest."""
        values = [value for curve in curves for _, value in curve.points]
        if not values:
            return
        low, high = min(values), max(values)
        span = max(high - low, 1)
        top = self._lane("offset, bytes", OFFSET_HEIGHT)
        self._level(top, f"{high:,}")
        self._level(top + OFFSET_HEIGHT, f"{low:,}")
        for number, curve in enumerate(curves):
            scaled = (
                (at_ms, round(top + OFFSET_HEIGHT * (1 - (value - low) / span), 1))
                for at_ms, value in curve.points
            )
            self._line(f"c{number % CURVE_COLOURS}", scaled)
            self._parts.append(
                f'<text class="name c{number % CURVE_COLOURS}" x="{LEFT + 8}" '
                f'y="{top + 14 + number * 14}">{escape(curve.name)}</text>'
            )

    def _lane(self, name: str, height: int) -> float:
        """Room for a lane; its top."""
        top = self._top + GAP / 2
        self._top = top + height + GAP / 2
        self._parts.append(
            f'<text class="lane" x="8" y="{top + min(height, BAR_HEIGHT) - 6:g}">'
            f"{escape(name)}</text>"
        )
        return top

    def _level(self, y: float, label: str) -> None:
        self._parts.append(
            f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>'
            f'<text class="tick" x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{label}</text>'
        )

    def _line(self, kind: str, values: Iterable[tuple[int, float]]) -> None:
        drawn = " ".join(f"{self._axis.x(at_ms)},{y}" for at_ms, y in values)
        if drawn:
            self._parts.append(f'<polyline class="curve {kind}" points="{drawn}"/>')

    def _bar(self, bar: Bar, top: float) -> str:
        left, right = self._axis.x(bar.start_ms), self._axis.x(bar.end_ms)
        width = max(1.0, right - left)
        label = escape(bar.label)
        fits = width > 6.5 * len(bar.label)
        text = f'<text class="label" x="{left + 4}" y="{top + 14:g}">{label}</text>' if fits else ""
        return (
            f'<rect class="bar {escape(bar.kind)}" x="{left}" y="{top:g}" width="{width:.1f}" '
            f'height="{BAR_HEIGHT}"><title>{escape(bar.lane)}: {label}</title></rect>{text}'
        )

    def _band(self, band: Band, number: int, bottom: float) -> str:
        left, right = self._axis.x(band.start_ms), self._axis.x(band.end_ms)
        row = 12 if number % 2 == 0 else HEAD_HEIGHT
        return (
            f'<rect class="band" x="{left}" y="{HEAD_HEIGHT}" width="{max(2.0, right - left):.1f}" '
            f'height="{bottom - HEAD_HEIGHT:g}"><title>{escape(band.told)}</title></rect>'
            f'<text class="fault" x="{left}" y="{row}">{escape(band.name)}</text>'
        )
