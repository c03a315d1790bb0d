"""`gantry_lab bench controller`: a quorum under load, and what the loss of its leader costs."""

from __future__ import annotations

from typing import Any

import click

from gantry_lab.bench.controller.cases import BENCH
from gantry_lab.bench.suite import Wish
from gantry_lab.commands.bench_cases import case_options, epilog, run_cases

EXAMPLES = (
    "--json > controller.jsonl",
    "--case write-64x1 --case write-64x16",
    "--against 127.0.0.1:9878 --case write-64x1",
)


@click.command(epilog=epilog(BENCH, EXAMPLES))
@case_options(
    BENCH,
    runs=5,
    seconds=2.0,
    warmup_s=0.5,
    kills="Leaders to lose in leader-kill and leader-stop. [default: 50]",
    against="A controller of a quorum that runs already, of any make, instead of a quorum of ours. "
    "Its groups named group-0000000 and on are written to.",
)
def controller(cases: tuple[str, ...], only_list: bool, as_json: bool, **wish: Any) -> None:
    """Measure a quorum of three controllers through the remoting protocol.

    Each is a process of its own and syncs every write to disk. The load generator is this process:
    it shares the processors with them, and its own use is printed. Fails after the last case if one
    of them cannot run.
    """
    run_cases(BENCH, Wish(**wish), cases=cases, only_list=only_list, as_json=as_json)
