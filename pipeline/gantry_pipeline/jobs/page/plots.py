"""Plots as SVG text: a line over time, and bars. Pure; the same numbers give the same bytes.

Axes begin at zero and say their unit; every mark carries a ``title``, which browsers show as a hint
and screen readers read. Text from the data is escaped: a topic's name is a stranger's.
"""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 860, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 16, 14, 34
BAR_HEIGHT, BAR_LEFT = 26, 250
POINTS_MAX = 2000  # a line of more is thinned: nobody sees them, and the page stays small
TICKS = 4
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float, unit: str = "") -> str:
    """A number for people: ``12.3 M``, ``950 B``; decimal prefixes."""
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    text = f"{value:.0f}" if value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def when(ms: float) -> str:
    """UTC, to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def line(points: Sequence[tuple[float, float]], *, unit: str, label: str) -> str:
    """Values over time.

    Args:
        points: (ms since 1970, value ≥ 0), by rising time.
        unit: of the values, with no prefix.
        label: what the plot shows, for who cannot see it.
    """
    if not points:
        return '<p class="none">Nothing to plot.</p>'
    shown = points[:: -(-len(points) // POINTS_MAX)]
    if shown[-1] != points[-1]:
        shown = [*shown, points[-1]]
    first, last = shown[0][0], shown[-1][0]
    top = _ceiling(max(value for _, value in shown))
    span = (last - first) or 1.0

    def place(at: float, value: float) -> tuple[float, float]:
        x = _LEFT + (at - first) / span * (WIDTH - _LEFT - _RIGHT)
        return x, HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)

    parts = [_open(WIDTH, HEIGHT, label)]
    for tick in range(TICKS + 1):
        _, y = place(first, top * tick / TICKS)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_text(_LEFT - 8, y + 4, amount(top * tick / TICKS, unit), "end"))
    parts.append(_text(_LEFT, HEIGHT - 10, when(first), "start"))
    parts.append(_text(WIDTH - _RIGHT, HEIGHT - 10, f"{when(last)} UTC", "end"))
    placed = [place(*point) for point in shown]
    parts.append(
        f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in placed)}"/>'
    )
    for (x, y), (at, value) in zip(placed, shown, strict=True):
        hint = f"{when(at)} UTC: {amount(value, unit)}"
        parts.append(
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{hint}</title></circle>'
        )
    return "".join((*parts, "</svg>"))


def bars(values: Sequence[tuple[str, float]], *, unit: str, label: str) -> str:
    """One horizontal bar per (name, value ≥ 0), in the given order."""
    if not values:
        return '<p class="none">Nothing to plot.</p>'
    top = max(value for _, value in values) or 1.0
    height = BAR_HEIGHT * len(values) + 8
    parts = [_open(WIDTH, height, label)]
    for at, (name, value) in enumerate(values):
        y = 4 + at * BAR_HEIGHT
        wide = value / top * (WIDTH - BAR_LEFT - 110)
        parts.append(_text(BAR_LEFT - 8, y + 17, _short(name), "end"))
        parts.append(
            f'<rect class="bar" x="{BAR_LEFT}" y="{y + 3}" width="{max(wide, 1):.1f}" '
            f'height="{BAR_HEIGHT - 8}"><title>{escape(name)}: {amount(value, unit)}</title></rect>'
        )
        parts.append(_text(BAR_LEFT + wide + 8, y + 17, amount(value, unit), "start"))
    return "".join((*parts, "</svg>"))


def _open(width: int, height: int, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}" '
        'xmlns="http://www.w3.org/2000/svg">'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(name: str, letters: int = 34) -> str:
    return name if len(name) <= letters else f"{name[: letters - 12]}…{name[-11:]}"


def _ceiling(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten: an axis ends at a number people can read."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(str(int(value))) - 1)
    return next((step * power for step in (1, 2, 5) if step * power >= value), 10 * power)
