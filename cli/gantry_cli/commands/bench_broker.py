"""`gantry bench broker`: a broker group under the load of RocketMQ clients."""

from __future__ import annotations

import click
from gantry_protocol.errors import GantryError

from gantry_cli.bench.broker.cases import CASES, Stage, Wish
from gantry_cli.bench.broker.figures import BENCH
from gantry_cli.bench.controller.target import parse_address
from gantry_cli.bench.results import machine
from gantry_cli.bench.running import Run
from gantry_cli.bench.showing import scratch
from gantry_cli.options import json_option


@click.command(
    epilog="""\b
Cases:
"""
    + "\n".join(f"  {name:12} {case.text}" for name, case in CASES.items())
    + """

\b
Examples:
  gantry bench broker --json > broker.jsonl
  gantry bench broker --case send-64-1r --case send-64-3r
  gantry bench broker --case kills-1000 --kills 20
  gantry bench broker --against 127.0.0.1:9876 --case send-64-1r"""
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="NAME",
    type=click.Choice(list(CASES)),
    help="One of those below; may be given several times. [default: all]",
)
@click.option("--list", "only_list", is_flag=True, help="List the cases, and how long they take.")
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 1000))
@click.option(
    "--seconds",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.2, 600),
    help="What is counted of each run, after a warm-up.",
)
@click.option(
    "--warmup",
    "warmup_s",
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0, 600),
    help="Before what is counted; a JVM needs more.",
)
@click.option(
    "--kills",
    type=click.IntRange(1, 100_000),
    help="Masters to lose in the cases that lose them. [default: 50, in kills-1000 1000]",
)
@click.option(
    "--log-mib",
    default=2048,
    show_default=True,
    type=click.IntRange(16, 64 * 1024),
    help="Length of the log in pull-cold and catch-up. Four times as much disk is needed.",
)
@click.option(
    "--queues",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1_000, 10_000_000),
    help="How many queues queues-1m makes.",
)
@click.option(
    "--against",
    metavar="HOST:PORT",
    help="A name server or a broker that runs already, of any make, instead of a group of ours. "
    "Its topic gantry-bench is written to.",
)
@click.option(
    "--label", default=BENCH, show_default=True, help="Name of the benchmark in its lines."
)
@json_option("Print one JSON object per line.")
def broker(
    cases: tuple[str, ...],
    only_list: bool,
    runs: int,
    seconds: float,
    warmup_s: float,
    kills: int | None,
    log_mib: int,
    queues: int,
    against: str | None,
    label: str,
    as_json: bool,
) -> None:
    """Measure a broker group through the remoting protocol, as Java clients speak it.

    Brokers and controller are processes of their own; every acknowledged message is on the disks of
    all replicas in sync. The load generator is this process: it shares the processors with them,
    and what it costs per message is printed. Fails after the last case if one of them cannot run.
    """
    import uvloop

    given = None if against is None else parse_address(against, "a name server or a broker")
    wish = Wish(runs, seconds, warmup_s, kills, log_mib << 20, queues, given, label)
    if only_list:
        for name, case in CASES.items():
            click.echo(f"{name:12} {case.seconds(wish) / 60:5.0f} min  {case.text}")
        return
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
