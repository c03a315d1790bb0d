"""`make performance`: the figures of the last runs, put between the markers of docs/performance.md.

Reads the lines that `bench … --json` and the measurements wrote, whichever are there (`cases`),
and what the Java controllers and brokers did under the same load. Rule protected: nothing but lines
that were measured is shown, each with what was to be reached; a figure that falls short is shown
like the others, and marked.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.errors import GantryError

from gantry_lab.bench import suite
from gantry_lab.bench.results import FigureLine, Machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gantry_lab.bench.suite import Bench, Goal

SHEETS = tuple(
    map(
        suite.bench,
        ("controller", "broker", "kills", "fronts", "groups", "queues", "lites", "filters", "grpc"),
    )
)
PROFILE = suite.bench("profile")
"""Without rows of its own: parts of a process down, cases across."""

Figures = dict[tuple[str, str, str], FigureLine]
"""By benchmark, case and metric."""


def main(arguments: Sequence[str]) -> int:
    """Rewrite the page; 1 with a sentence when there is nothing to show or no place for it."""
    if len(arguments) < 2:
        print("usage: page.py docs/performance.md FIGURES.jsonl …", file=sys.stderr)
        return 2
    page, *sources = map(Path, arguments)
    try:
        figures, machines = read(
            line for source in sources for line in source.read_bytes().splitlines()
        )
        text = page.read_text("utf-8")
        sheets = (*SHEETS, PROFILE)
        for sheet in [item for item in sheets if item.name in machines] or sheets:
            text = replaced(text, sheet, figures, machines)
        page.write_text(text, "utf-8")
    except (OSError, GantryError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def read(lines: Iterable[bytes]) -> tuple[Figures, dict[str, Machine]]:
    """The figures, and the machine of each benchmark.

    Raises:
        GantryError: a line is none of ours.
    """
    figures: Figures = {}
    machines: dict[str, Machine] = {}
    for line in lines:
        try:
            fields = msgspec.json.decode(line, type=dict[str, object])
            if "machine" in fields:
                name = msgspec.convert(fields["bench"], str)
                machines[name] = msgspec.convert(fields["machine"], Machine)
            else:
                one = msgspec.convert(fields, FigureLine)
                figures[one.bench, one.case, one.metric] = one
        except (msgspec.MsgspecError, KeyError) as error:
            raise GantryError(f"This is no line of a benchmark: {line[:80]!r}.") from error
    return figures, machines


def replaced(text: str, sheet: Bench, figures: Figures, machines: Mapping[str, Machine]) -> str:
    """`text` with what is between the markers of a sheet replaced.

    Raises:
        GantryError: the markers are missing, or nothing was measured.
    """
    before, begin, rest = text.partition(sheet.begin)
    _, end, after = rest.partition(sheet.end)
    if not (begin and end):
        raise GantryError(f"The page lacks {sheet.begin} and {sheet.end}.")
    if sheet.name not in machines:
        raise GantryError(f"There are no figures of the benchmark {sheet.name!r}.")
    found = matrix(sheet, figures) if sheet is PROFILE else table(sheet, figures)
    shown = "\n".join(f"| {' | '.join(row)} |" for row in found)
    last = _sentence(machines[sheet.name], sheet.sentence)
    return f"{before}{begin}\n{shown}\n\n{last}\n{end}{after}"


def table(sheet: Bench, figures: Figures) -> list[list[str]]:
    """The rows that were measured, with what was to be reached if there are goals at all."""
    java = [name for name in sheet.others if any(label == name for label, _, _ in figures)]
    if not any(_wanted(goal) for _, goal in sheet.rows):
        found = [
            (goal.text, figures.get((sheet.name, case, goal.metric))) for case, goal in sheet.rows
        ]
        plain = [[text, _value(item)] for text, item in found if item is not None]
        return [["", "median (min … max)"], ["---", "---"], *plain]
    rows = [
        ["", "to reach", "median (min … max)", "reached", *java],
        ["---", "---", "---", "---", *("---" for _ in java)],
    ]
    for case, goal in sheet.rows:
        ours = figures.get((sheet.name, case, goal.metric))
        others = [figures.get((name, case, goal.metric)) for name in java]
        if ours is not None:
            rows.append(
                [goal.text, _wanted(goal), _value(ours), _verdict(goal, ours), *map(_value, others)]
            )
        if ours is not None and any(other is not None for other in others if goal.times):
            rows.append(_times(goal.times, ours, dict(zip(java, others, strict=True))))
    return rows


def matrix(sheet: Bench, figures: Figures) -> list[list[str]]:
    """A row for each metric of any case, most first, and a column for each case."""
    ours = {
        (case, metric): item for (name, case, metric), item in figures.items() if name == sheet.name
    }
    cases = list(dict.fromkeys(case for case, _ in ours))
    most: dict[str, float] = {}
    for (_, metric), item in ours.items():
        most[metric] = max(most.get(metric, 0.0), item.median)
    rows = [["", *(f"`{case}`" for case in cases)], ["---"] * (1 + len(cases))]
    for metric in sorted(most, key=lambda metric: -most[metric]):
        shown = [_value(ours.get((case, metric))) for case in cases]
        rows.append([metric, *shown])
    return rows


def _wanted(goal: Goal) -> str:
    parts = []
    if goal.least is not None:
        parts.append(f"≥ {goal.least:,.10g}")
    if goal.most is not None:
        parts.append(f"≤ {goal.most:,.10g}")
    if goal.worst is not None:
        parts.append(f"max ≤ {goal.worst:,.10g}")
    return ", ".join(parts)


def _verdict(goal: Goal, found: FigureLine) -> str:
    if not _wanted(goal):
        return ""
    enough = goal.least is None or found.median >= goal.least
    little = goal.most is None or found.median <= goal.most
    never = goal.worst is None or found.max <= goal.worst
    return "yes" if enough and little and never else "**no**"


def _times(
    wanted: Mapping[str, float], ours: FigureLine, others: Mapping[str, FigureLine | None]
) -> list[str]:
    """How many times each of the others' figures ours is; theirs may be none at all."""
    asked = {name: times for name, times in wanted.items() if others.get(name) is not None}
    enough = all(
        ours.median >= asked[name] * item.median
        for name, item in others.items()
        if item is not None and name in asked
    )
    shown = [
        ""
        if other is None
        else f"{ours.median / other.median:,.1f}"
        if other.median
        else "theirs is 0"
        for other in others.values()
    ]
    bounds = ", ".join(f"≥ {times:,.10g}" for times in dict.fromkeys(asked.values()))
    return ["… times theirs", bounds, "", "yes" if enough else "**no**", *shown]


def _value(found: FigureLine | None) -> str:
    if found is None:
        return ""
    if found.min == found.max:
        return f"{found.median:,.10g}"
    return f"{found.median:,.10g} ({found.min:,.10g} … {found.max:,.10g})"


def _sentence(on: Machine, shared: str) -> str:
    return (
        f"On one machine: {on.cpus} processors ({on.processor}), {on.memory_mib} MiB, "
        f"Linux {on.kernel}, Python {on.python}, load before the last run {on.load:.2f}; {shared}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
