"""The mutation gate, ``make mutants``: every planted bug must be found by what is named for it.

``python -m sim.mutants.gate [--jobs N] [--shares N [--turn K]] [NAME …]`` with tests/ on the path.
One line per mutant as it ends, then a table: mutant, killed by, seed, CPU seconds until it was
found. Exit code 1 if a mutant lives, or does not fit the code any more. Mutants that the tests of
one file must find share a collection of these tests. Continuous integration plants one share of
them, drawn by the commit.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from sim.mutants.catalogue import MUTANTS
from sim.mutants.mutant import Alive, Death, Mutant, UnitTests, kill_all
from sim.mutants.planting import StaleMutant

TIME_LIMIT_S = 240  # of a mutant that seeds or a script must find
BATCH_MAX = 24
BATCHES_EACH = 8  # of one process, which takes as long to begin as a batch does

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


def judge(names: list[str]) -> list[Verdict]:
    """Plant mutants in this process: one, or those of one file of tests."""
    mutants = [BY_NAME[name] for name in names]
    bugs = {
        mutant.name: (mutant.edits, mutant.killer)
        for mutant in mutants
        if isinstance(mutant.killer, UnitTests)
    }
    if bugs:
        (file,) = {killer.file for _, killer in bugs.values()}
        return [_verdict(name, death) for name, death in kill_all(file, bugs).items()]
    (mutant,) = mutants
    logging.getLogger("gantry").setLevel("CRITICAL")  # it would speak of faults, between the lines
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(TIME_LIMIT_S)
    try:
        return [_verdict(mutant.name, mutant.kill)]
    finally:
        signal.alarm(0)
        logging.getLogger("gantry").setLevel(logging.NOTSET)


def _verdict(name: str, kill: Callable[[], Death]) -> Verdict:
    began_s = time.process_time()
    try:
        death = kill()
    except (Alive, StaleMutant, OutOfTime) as alive:
        return Verdict(name, "", None, str(alive), time.process_time() - began_s)
    return Verdict(name, death.by, death.seed, death.words, death.cpu_s)


def _out_of_time(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTime(f"nothing found it within {TIME_LIMIT_S} s")


def run(mutants: list[Mutant], jobs: int) -> list[Verdict]:
    """All of them; prints a line as each ends."""
    context = multiprocessing.get_context("spawn")
    verdicts: list[Verdict] = []
    with context.Pool(jobs, maxtasksperchild=BATCHES_EACH) as pool:
        for judged in pool.imap_unordered(judge, batches(mutants)):
            for verdict in judged:
                verdicts.append(verdict)
                print(f"{len(verdicts):4}/{len(mutants)}  {_line(verdict)}", flush=True)
    order = {mutant.name: position for position, mutant in enumerate(mutants)}
    return sorted(verdicts, key=lambda verdict: order[verdict.name])


def batches(mutants: list[Mutant]) -> list[list[str]]:
    """Names of mutants that are judged together; those first that may take long.

    So no core waits for the last one at the end. A long batch is cut, since each of its bugs may
    have the tests wait.
    """
    alone: list[list[str]] = []
    files: dict[str, list[str]] = {}
    for mutant in mutants:
        if isinstance(mutant.killer, UnitTests):
            files.setdefault(mutant.killer.file, []).append(mutant.name)
        else:
            alone.append([mutant.name])
    cut = [
        names[begin : begin + BATCH_MAX]
        for names in files.values()
        for begin in range(0, len(names), BATCH_MAX)
    ]
    return alone + sorted(cut, key=len, reverse=True)


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
    """The mutants named, or all.

    Raises:
        SystemExit: there is no such mutant.
    """
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise SystemExit(f"There is no mutant {unknown[0]}; there are: {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in names] if names else list(MUTANTS)


def share(mutants: list[Mutant], shares: int, turn: int) -> list[Mutant]:
    """One of as many shares, which turns go through; mutants of one file of tests stay together."""
    return [
        mutant
        for mutant in mutants
        if zlib.crc32(_kept_together(mutant).encode()) % shares == turn % shares
    ]


def _kept_together(mutant: Mutant) -> str:
    return mutant.killer.file if isinstance(mutant.killer, UnitTests) else mutant.name


def main() -> int:
    """Exit code 0 if all are dead."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants; all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shares", type=int, default=1, metavar="N", help="plant an N-th of them")
    parser.add_argument("--turn", type=int, default=0, metavar="K", help="which of these shares")
    arguments = parser.parse_args()
    if arguments.shares < 1:
        parser.error("--shares: at least 1")
    began = time.monotonic()
    mutants = share(chosen(arguments.names), arguments.shares, arguments.turn)
    verdicts = run(mutants, arguments.jobs)
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
