"""`gantry bench controller`: a quorum under load, and what the loss of its leader costs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click
from gantry_protocol.errors import GantryError

from gantry_cli.bench.controller.cases import CASES, CannotRun, Stage, Wish
from gantry_cli.bench.controller.figures import BENCH
from gantry_cli.bench.controller.target import parse_address
from gantry_cli.bench.results import machine
from gantry_cli.bench.showing import print_lines, progress, scratch
from gantry_cli.options import json_option
from gantry_cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gantry_cli.bench.results import Line


@click.command(
    epilog="""\b
Cases:
"""
    + "\n".join(f"  {name:20} {case.text}" for name, case in CASES.items())
    + """

\b
Examples:
  gantry bench controller --json > controller.jsonl
  gantry bench controller --case write-64x1 --case write-64x16
  gantry bench controller --against 127.0.0.1:9878 --case write-64x1"""
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="NAME",
    type=click.Choice(list(CASES)),
    help="One of those below; may be given several times. [default: all]",
)
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1, 1000))
@click.option(
    "--seconds",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.2, 600),
    help="What is counted of each run, after a warm-up.",
)
@click.option(
    "--warmup",
    "warmup_s",
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0, 600),
    help="Before what is counted; a JVM needs more.",
)
@click.option(
    "--kills",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Leaders to lose in leader-kill and leader-stop.",
)
@click.option(
    "--against",
    metavar="HOST:PORT",
    help="A controller of a quorum that runs already, of any make, instead of a quorum of ours. "
    "Its groups named group-0000000 and on are written to.",
)
@click.option(
    "--label", default=BENCH, show_default=True, help="Name of the benchmark in its lines."
)
@json_option("Print one JSON object per line.")
def controller(
    cases: tuple[str, ...],
    runs: int,
    seconds: float,
    warmup_s: float,
    kills: int,
    against: str | None,
    label: str,
    as_json: bool,
) -> None:
    """Measure a quorum of three controllers through the remoting protocol.

    Each is a process of its own and syncs every write to disk. The load generator is this process:
    it shares the processors with them, and its own use is printed. Fails after the last case if one
    of them cannot run.
    """
    import uvloop

    given = None if against is None else parse_address(against)
    wish = Wish(runs, seconds, warmup_s, kills, given, label)
    before = machine()
    with scratch() as directory:
        run = Run(wish, cases or tuple(CASES), directory, as_json=as_json)
        uvloop.run(run.all())
        if as_json:
            print_json({"bench": label, "machine": before})
        elif run.found:
            print_lines(run.found, before, as_json=False)
        if run.failed:
            raise GantryError("\n".join(run.failed + run.refused))
    if run.refused:
        raise GantryError("\n".join(run.refused))


class Run:
    """All cases, one after another; what one of them cannot do is told in the end."""

    def __init__(self, wish: Wish, cases: Sequence[str], directory: Path, *, as_json: bool) -> None:
        self.found: list[Line] = []
        self.failed: list[str] = []  # whose logs are worth a look
        self.refused: list[str] = []
        self._wish = wish
        self._cases = cases
        self._directory = directory
        self._as_json = as_json

    async def all(self) -> None:
        """Run them."""
        estimate_s = sum(CASES[name].seconds(self._wish) for name in self._cases)
        click.echo(f"About {max(estimate_s / 60, 1):.0f} min on a quiet machine.", err=True)
        with progress(sum(CASES[name].steps(self._wish) for name in self._cases)) as advance:
            for name in self._cases:
                stage = Stage(
                    self._wish,
                    self._directory,
                    partial(advance, name),
                    lambda text, name=name: click.echo(f"{name}: {text}", err=True),  # type: ignore[misc]
                )
                await self._one(name, stage)

    async def _one(self, name: str, stage: Stage) -> None:
        try:
            found = await CASES[name].lines(name, stage)
        except CannotRun as error:
            self.refused.append(f"{name} {error}.")
            return
        except GantryError as error:
            self.failed.append(f"{name}: {error}")
            return
        self.found += found
        if self._as_json:
            for line in found:
                print_json(line)
