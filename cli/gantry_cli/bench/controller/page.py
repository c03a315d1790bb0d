"""`make performance`: the figures of one run, put into docs/performance.md between its markers.

Reads what `gantry bench controller --json` wrote, and, if it is there, what the Java controllers
did under the same load. Rule protected: nothing but lines that were measured is shown, each with
what was to be reached; a figure that falls short is shown like the others, and marked.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from gantry_protocol.errors import GantryError

from gantry_cli.bench.controller.figures import BENCH
from gantry_cli.bench.results import Line, Machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BEGIN, END = "<!-- controller figures: begin -->", "<!-- controller figures: end -->"
JAVA = ("java-dledger", "java-jraft")

Figures = dict[tuple[str, str, str], Line]
"""By benchmark, case and metric."""


class Goal(NamedTuple):
    """One row.

    Attributes:
        case: the case.
        metric: its figure.
        text: what it is, in the table.
        least: what the median must reach; None if there is no such bound.
        most: what it may not exceed.
        worst: what no run may exceed.
        times: how many times that of each Java controller it must be.
    """

    case: str
    metric: str
    text: str
    least: float | None = None
    most: float | None = None
    worst: float | None = None
    times: float | None = None


GOALS = (
    Goal("write-64x1", "ops_per_s", "writes/s, 64 clients × 1 outstanding", least=20_000),
    Goal("write-64x1", "p99_ms", "… their p99, ms", most=10),
    Goal("write-64x1", "leader_cpu_us", "… leader's CPU per write, µs"),
    Goal("write-64x1", "followers_cpu_us", "… both followers' CPU per write, µs"),
    Goal("write-64x1", "generator_cpu_percent", "… generator's share of one core, %"),
    Goal("write-64x16", "ops_per_s", "writes/s, 64 × 16", least=60_000),
    Goal("write-64x16", "p99_ms", "… their p99, ms"),
    Goal("write-64x16", "leader_cpu_us", "… leader's CPU per write, µs"),
    Goal("write-64x16", "followers_cpu_us", "… both followers' CPU per write, µs"),
    Goal("write-64x16", "generator_cpu_percent", "… generator's share of one core, %"),
    Goal("readindex-64x16", "ops_per_s", "linearizable reads/s, 64 × 16", least=60_000),
    Goal("readindex-64x16", "leader_cpu_us", "… leader's CPU per read, µs"),
    Goal("lease-64x16", "ops_per_s", "… by lease"),
    Goal("follower-64x16", "ops_per_s", "… at the followers"),
    Goal("follower-64x16", "spared_percent", "… leader's CPU per read taken away, %", least=60),
    Goal("follower-64x16", "writes_kept_percent", "writes kept under that storm, %", least=90),
    Goal("serial-64x1", "ops_per_s", "writes/s, 64 × 1, old design (serial)"),
    Goal("new-over-serial-64x1", "ratio", "new ÷ serial, 64 clients", least=10),
    Goal("leader-kill", "gap_ms", "SIGKILL of the leader → next write, ms", most=400, worst=1000),
    Goal("leader-stop", "gap_ms", "SIGSTOP of the leader → next write, ms", most=1500, worst=2500),
    Goal("restart-100k", "seconds", "restart with 100,000 groups, s", most=5),
    Goal("restart-100k", "rss_mb", "… memory, MB", most=600),
    Goal("restart-100k", "pause_p99_ms", "… pauses for the snapshot, p99 below, ms", most=5),
    Goal("heartbeat-10k", "leader_cpu_percent", "10,000 heartbeats/s: leader, % of core", most=25),
    Goal("heartbeat-10k", "ratio", "… p99 of writes to without", most=2),
    Goal("groups-1k", "ratio", "throughput with 1,000 groups ÷ with 1", least=0.8),
    Goal("groups-100k", "ratio", "throughput with 100,000 groups ÷ with 1", least=0.8),
    Goal("groups-capacity", "groups", "most groups at p99 of writes up to 50 ms", times=10),
    Goal("groups-capacity", "time_limit_reached", "… 1: the time limit ended the search"),
    Goal("mass-failover", "seconds", "1,000 masters die → last group has a new one, s", most=2),
)


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
        page.write_text(replaced(page.read_text("utf-8"), figures, machines), "utf-8")
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
                one = msgspec.convert(fields, Line)
                figures[one.bench, one.case, one.metric] = one
        except (msgspec.MsgspecError, KeyError) as error:
            raise GantryError(f"This is no line of a benchmark: {line[:80]!r}.") from error
    return figures, machines


def replaced(text: str, figures: Figures, machines: Mapping[str, Machine]) -> str:
    """`text` with what is between the markers replaced.

    Raises:
        GantryError: the markers are missing, or nothing was measured.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise GantryError(f"The page lacks {BEGIN} and {END}.")
    if BENCH not in machines:
        raise GantryError(f"There are no figures of the benchmark {BENCH!r}.")
    shown = "\n".join(table(figures))
    return f"{before}{BEGIN}\n{shown}\n\n{_sentence(machines[BENCH])}\n{END}{after}"


def table(figures: Figures) -> list[str]:
    """The rows that were measured, as Markdown."""
    java = [name for name in JAVA if any(bench == name for bench, _, _ in figures)]
    rows = [
        ["", "to reach", "median (min … max)", "reached", *java],
        ["---", "---", "---", "---", *("---" for _ in java)],
    ]
    for goal in GOALS:
        ours = figures.get((BENCH, goal.case, goal.metric))
        others = [figures.get((name, goal.case, goal.metric)) for name in java]
        if ours is not None:
            rows.append(
                [goal.text, _wanted(goal), _value(ours), _verdict(goal, ours), *map(_value, others)]
            )
        if ours is not None and goal.times is not None and any(others):
            rows.append(_times(goal.times, ours, others))
    return [f"| {' | '.join(row)} |" for row in rows]


def _wanted(goal: Goal) -> str:
    parts = []
    if goal.least is not None:
        parts.append(f"≥ {goal.least:,.10g}")
    if goal.most is not None:
        parts.append(f"≤ {goal.most:,.10g}")
    if goal.worst is not None:
        parts.append(f"max ≤ {goal.worst:,.10g}")
    return ", ".join(parts)


def _verdict(goal: Goal, found: Line) -> str:
    if not _wanted(goal):
        return ""
    enough = goal.least is None or found.median >= goal.least
    little = goal.most is None or found.median <= goal.most
    never = goal.worst is None or found.max <= goal.worst
    return "yes" if enough and little and never else "**no**"


def _times(wanted: float, ours: Line, others: Sequence[Line | None]) -> list[str]:
    """How many times each of the others' figures ours is; theirs may be none at all."""
    enough = all(ours.median >= wanted * one.median for one in others if one is not None)
    shown = [
        "" if one is None else f"{ours.median / one.median:,.1f}" if one.median else "theirs is 0"
        for one in others
    ]
    return ["… times theirs", f"≥ {wanted:,.10g}", "", "yes" if enough else "**no**", *shown]


def _value(found: Line | None) -> str:
    if found is None:
        return ""
    if found.min == found.max:
        return f"{found.median:,.10g}"
    return f"{found.median:,.10g} ({found.min:,.10g} … {found.max:,.10g})"


def _sentence(on: Machine) -> str:
    return (
        f"One run on one machine: {on.cpus} processors ({on.processor}), {on.memory_mib} MiB, "
        f"Linux {on.kernel}, Python {on.python}, load before {on.load:.2f}; three controllers, "
        "with every write synced to disk, and the generator share them."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
