"""`gantry_lab bench broker`: a broker group under the load of RocketMQ clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gantry_lab.bench.broker.cases import BENCH
from gantry_lab.bench.broker.stage import Wish
from gantry_lab.commands.bench_cases import case_options, epilog, run_cases

EXAMPLES = (
    "--json > broker.jsonl",
    "--case send-64-1r --case send-64-3r",
    "--case kills-1000 --kills 20",
    "--against 127.0.0.1:9876 --case send-64-1r",
)


@click.command(epilog=epilog(BENCH, EXAMPLES))
@case_options(
    BENCH,
    runs=3,
    seconds=5.0,
    warmup_s=1.0,
    kills="Masters to lose in the cases that lose them. [default: 50, in kills-1000 1000]",
    against="A name server or a broker that runs already, of any make, instead of a group of ours. "
    "Its topic gantry-bench is written to.",
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
    "--rounds",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the finished rounds of kills-1000 in this file, and go on after those in it. It is "
    "removed when all are done.",
)
def broker(
    cases: tuple[str, ...], only_list: bool, as_json: bool, log_mib: int, **wish: Any
) -> None:
    """Measure a broker group through the remoting protocol, as Java clients speak it.

    Brokers and controller are processes of their own; every acknowledged message is on the disks of
    all replicas in sync. The load generator is this process: it shares the processors with them,
    and what it costs per message is printed. Fails after the last case if one of them cannot run.
    """
    asked = Wish(log_bytes=log_mib << 20, **wish)
    run_cases(BENCH, asked, cases=cases, only_list=only_list, as_json=as_json)
