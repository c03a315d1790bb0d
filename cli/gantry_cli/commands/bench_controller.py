"""`gantry bench controller`: a quorum under load, and what the loss of its leader costs."""

from __future__ import annotations

import click
from gantry_protocol.errors import GantryError

from gantry_cli.bench.controller.cases import CASES, Stage, Wish
from gantry_cli.bench.controller.figures import BENCH
from gantry_cli.bench.controller.target import parse_address
from gantry_cli.bench.results import machine
from gantry_cli.bench.running import Run
from gantry_cli.bench.showing import scratch
from gantry_cli.options import json_option


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
        run: Run[Wish, Stage] = Run(
            CASES,
            cases or tuple(CASES),
            wish,
            lambda advance, say: Stage(wish, directory, advance, say),
            as_json=as_json,
        )
        uvloop.run(run.all())
        run.show(label, before)
        if run.failed:
            raise GantryError("\n".join(run.failed + run.refused))
    if run.refused:
        raise GantryError("\n".join(run.refused))
