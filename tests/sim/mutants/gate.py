"""The mutation gate, ``make mutants``: every planted bug must be found by what is named for it.

``python -m sim.mutants.gate [--jobs N] [NAME …]`` with tests/ on the path. One line per mutant as
it ends, then a table: mutant, killed by, seed, CPU seconds until it was found. Exit code 1 if a
mutant lives, or does not fit the code any more. Each mutant has a process of its own and an end to
its time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from types import FrameType

from sim.mutants.catalogue import MUTANTS
from sim.mutants.mutant import Alive, Mutant
from sim.mutants.planting import StaleMutant

TIME_LIMIT_S = 240

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


class OutOfTime(BaseException):
    """Not an Exception: no world may take it for what its seed found."""


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant; ``killed_by`` is empty if it lives.

    Attributes:
        cpu_s: until it was found; of one that lives, all that its killer took.
    """

    name: str
    killed_by: str
    seed: int | None
    words: str
    cpu_s: float


def judge(name: str) -> Verdict:
    """Plant one mutant in this process."""
    began_s = time.process_time()
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(TIME_LIMIT_S)
    try:
        death = BY_NAME[name].kill()
    except (Alive, StaleMutant, OutOfTime) as alive:
        return Verdict(name, "", None, str(alive), time.process_time() - began_s)
    finally:
        signal.alarm(0)
    return Verdict(name, death.by, death.seed, death.words, death.cpu_s)


def _out_of_time(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTime(f"nothing found it within {TIME_LIMIT_S} s")


def run(names: list[str], jobs: int) -> list[Verdict]:
    """All of them, each in a process of its own; prints a line as each ends."""
    context = multiprocessing.get_context("spawn")
    verdicts: list[Verdict] = []
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        for verdict in pool.imap_unordered(judge, names):
            verdicts.append(verdict)
            print(f"{len(verdicts):3}/{len(names)}  {_line(verdict)}", flush=True)
    order = {name: position for position, name in enumerate(names)}
    return sorted(verdicts, key=lambda verdict: order[verdict.name])


def _line(verdict: Verdict) -> str:
    if not verdict.killed_by:
        return f"LIVES   {verdict.name}: {verdict.words}"
    where = "" if verdict.seed is None else f", seed {verdict.seed}"
    return f"killed  {verdict.name} by {verdict.killed_by}{where} in {verdict.cpu_s:.1f} s of CPU"


def table(verdicts: list[Verdict]) -> str:
    """For people and for reports."""
    rows = [("mutant", "area", "killed by", "seed", "CPU s", "breaks")]
    rows += [
        (
            verdict.name,
            BY_NAME[verdict.name].area,
            verdict.killed_by or "LIVES",
            "" if verdict.seed is None else str(verdict.seed),
            f"{verdict.cpu_s:.1f}",
            BY_NAME[verdict.name].breaks,
        )
        for verdict in verdicts
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def chosen(names: list[str]) -> list[Mutant]:
    """The mutants named, or all; the ones that take long first, so that no core waits at the end.

    Raises:
        SystemExit: there is no such mutant.
    """
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise SystemExit(f"There is no mutant {unknown[0]}; there are: {', '.join(BY_NAME)}")
    mutants = [BY_NAME[name] for name in names] if names else list(MUTANTS)
    return sorted(mutants, key=lambda mutant: mutant.quick)


def main() -> int:
    """Exit code 0 if all are dead."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants; all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    began = time.monotonic()
    verdicts = run([mutant.name for mutant in chosen(arguments.names)], arguments.jobs)
    alive = [verdict for verdict in verdicts if not verdict.killed_by]
    print(f"\n{table(verdicts)}\n")
    print(
        f"{len(verdicts) - len(alive)} of {len(verdicts)} mutants are dead, "
        f"after {time.monotonic() - began:.0f} s."
    )
    for verdict in alive:
        print(f"LIVES: {verdict.name}: {verdict.words}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
