"""`gantry_lab simulate`: seeds of the simulator."""

from __future__ import annotations

import fnmatch
import os
import time
from typing import TYPE_CHECKING

import click
from gantry_cli.options import json_option
from gantry_cli.output import print_json, print_table
from gantry_cli.progress import progress
from gantry_protocol.errors import GantryError

from gantry_lab.simulation import Simulator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_lab.simulation import SeedOutcome


@click.command(
    epilog="""\b
Examples:
  python -m gantry_lab simulate                                 50 seeds of the Raft world
  python -m gantry_lab simulate --seeds 1000 --seed 5000        a long run
  python -m gantry_lab simulate --world raft --seed 17 --trace  one seed, line by line
  python -m gantry_lab simulate --world 'product*' --seeds 4    four seeds of each such world
  python -m gantry_lab simulate --worlds                        which worlds there are"""
)
@click.option(
    "--seeds",
    "count",
    type=click.IntRange(1, 10_000_000),
    help="How many seeds of each world to run, from --seed on. [default: 50; with --trace 1]",
)
@click.option(
    "--seed",
    "first",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="The first seed. A seed is a run: the same one gives the same trace, byte by byte.",
)
@click.option(
    "--world",
    default="raft",
    show_default=True,
    metavar="NAME",
    help="What is simulated; * stands for any letters.",
)
@click.option("--worlds", is_flag=True, help="List the worlds and end.")
@click.option("--trace", is_flag=True, help="Print every line of the trace of one seed.")
@click.option(
    "--jobs",
    default=os.cpu_count() or 1,
    type=click.IntRange(1, 256),
    help="Processes that run seeds. [default: one per core]",
)
@json_option("Print one JSON object per seed, then one about all.")
def simulate(
    count: int | None,
    first: int,
    world: str,
    worlds: bool,
    trace: bool,
    jobs: int,
    as_json: bool,
) -> None:
    """Run simulated clusters under faults, by seed.

    Controllers, replicas, networks and disks live in one seeded world with a virtual clock. Safety
    is checked after every step; then the faults stop, and the world must make progress. A seed that
    breaks a rule ends this with code 1 and the command that repeats it.
    """
    simulator = Simulator()
    if worlds:
        print_table(("WORLD", "WHAT"), list(simulator.worlds.items()))
        return
    chosen = fnmatch.filter(simulator.worlds, world)
    if not chosen:
        names = ", ".join(simulator.worlds)
        raise click.BadParameter(f"there is no world {world}; there are: {names}")
    if trace:
        if count not in (None, 1) or chosen != [world]:
            raise click.UsageError("--trace is for one seed of one world: name it alone.")
        if as_json:
            raise click.UsageError("--trace prints lines: leave --json out.")
        _trace(simulator, world, first)
    else:
        _run(simulator, chosen, range(first, first + (count or 50)), jobs, as_json=as_json)


def _trace(simulator: Simulator, world: str, seed: int) -> None:
    outcome = simulator.trace(world, seed, click.echo)
    click.echo(f"trace hash {outcome.trace_hash}", err=True)
    if outcome.violation is not None:
        raise GantryError(outcome.violation)


def _run(
    simulator: Simulator, worlds: Sequence[str], seeds: range, jobs: int, *, as_json: bool
) -> None:
    began = time.monotonic()
    runs = [(world, seed) for seed in seeds for world in worlds]
    failed: list[tuple[str, int]] = []
    simulated_s = 0.0
    events = 0
    counters: dict[str, int] = {}
    with progress(len(runs)) as advance:
        for outcome in simulator.run(runs, jobs):
            simulated_s += outcome.simulated_s
            events += outcome.events
            for name, times in outcome.counters.items():
                counters[name] = counters.get(name, 0) + times
            if outcome.violation is not None:
                failed.append((outcome.world, outcome.seed))
            _report(outcome, as_json=as_json)
            advance(f"{outcome.world}, {len(failed)} failed")
    took_s = time.monotonic() - began
    if as_json:
        print_json(
            {
                "worlds": worlds,
                "first": seeds[0],
                "seeds": len(seeds),
                "failed": [{"world": world, "seed": seed} for world, seed in failed],
                "simulated_s": round(simulated_s, 1),
                "took_s": round(took_s, 1),
                "events": events,
                "counters": dict(sorted(counters.items())),
            }
        )
    else:
        print_table(("REACHED", "TIMES"), sorted(counters.items()))
        click.echo(
            f"{len(seeds)} seeds from {seeds[0]} on of {', '.join(worlds)}; {len(failed)} failed: "
            f"{simulated_s:.0f} s simulated in {took_s:.1f} s, {events} events"
        )
    if failed:
        world, seed = failed[0]
        raise GantryError(
            f"{len(failed)} of {len(runs)} runs break a rule, the first is seed {seed} of {world}; "
            f"repeat it with: python -m gantry_lab simulate --world {world} --seed {seed} --trace"
        )


def _report(outcome: SeedOutcome, *, as_json: bool) -> None:
    """A seed's line for programs; for people only what went wrong."""
    if as_json:
        print_json(outcome)
    elif outcome.violation is not None:
        click.echo(f"{outcome.violation}\n", err=True)
