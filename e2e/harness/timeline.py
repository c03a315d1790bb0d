"""Values over time in one picture, as an SVG that stands by itself. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gantry_pipeline.jobs.page import plots

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = 26  # above each panel, for its title
STYLE = (
    "svg{background:#fff} text{font:13px sans-serif;fill:#333} .grid{stroke:#ddd}"
    " .line{fill:none;stroke:#2563c9;stroke-width:1.5} .dot{fill:#2563c9}"
    " .title{font-weight:bold}"
)


class Panel(NamedTuple):
    """One of the plots.

    Attributes:
        title: above it.
        unit: of its values.
        points: (ms since 1970, value ≥ 0), by rising time.
    """

    title: str
    unit: str
    points: Sequence[tuple[float, float]]


def picture(panels: Sequence[Panel]) -> str:
    """The panels below each other."""
    height = plots.HEIGHT + HEAD
    size = f'width="{plots.WIDTH}" height="{height * len(panels)}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>']
    for number, panel in enumerate(panels):
        top = number * height
        plot = plots.line(panel.points, unit=panel.unit, label=panel.title)
        parts.append(f'<text class="title" x="8" y="{top + 18}">{panel.title}</text>')
        parts.append(f'<g transform="translate(0 {top + HEAD})">{plot}</g>')
    return "\n".join([*parts, "</svg>\n"])


def rate(times_s: Sequence[float], step_s: float) -> list[tuple[float, float]]:
    """(start of the step, events per second) for each step from the first time to the last."""
    if not times_s:
        return []
    begun_s = min(times_s)
    counts = [0] * (int((max(times_s) - begun_s) / step_s) + 1)
    for at_s in times_s:
        counts[int((at_s - begun_s) / step_s)] += 1
    return [(begun_s + step_s * step, count / step_s) for step, count in enumerate(counts)]


def longest_gaps(
    lanes: Sequence[Sequence[float]], begun_s: float, step_s: float
) -> list[tuple[float, float]]:
    """(start of the step, the longest time in ms between two events of one lane that ended in it).

    Args:
        lanes: times of events, each rising.
        begun_s: of the first step.
        step_s: length of each.
    """
    found: dict[int, float] = {}
    for lane in lanes:
        for at_s, later_s in pairwise(lane):
            step = int((later_s - begun_s) / step_s)
            found[step] = max(found.get(step, 0.0), (later_s - at_s) * 1000)
    return [(begun_s + step_s * step, gap_ms) for step, gap_ms in sorted(found.items())]
