"""`gantry bench`: benchmarks on a local cluster."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from gantry_protocol.errors import GantryError

from gantry_cli.bench.failover import CASES, Account, FailoverBench
from gantry_cli.bench.results import HEADINGS, Line, rows
from gantry_cli.options import asynchronous, json_option
from gantry_cli.output import print_json, print_table
from gantry_cli.trial.local import find_manifest, scratch_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@click.group(
    epilog="""\b
Examples:
  gantry bench failover                              all cases, 5 runs each
  gantry bench failover --case sigkill --runs 20 --json"""
)
def bench() -> None:
    """Measure a cluster on this machine."""


@bench.command(
    epilog="""\b
Cases:
"""
    + "\n".join(f"  {case:18} {text}" for case, text in CASES.items())
    + """

\b
Examples:
  gantry bench failover --runs 20
  gantry bench failover --case sigkill --case handover --json"""
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    type=click.Choice(list(CASES)),
    help="What to do to the cluster; may be given several times. [default: all]",
)
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1, 1000))
@json_option("Print one JSON object per line.")
@asynchronous
async def failover(cases: tuple[str, ...], runs: int, as_json: bool) -> None:
    """Measure how long a client cannot write, by kind of failure.

    Each run is done to a settled group under load. Fails if an acknowledged message is missing, a
    duplicate has no lost answer that explains it, or an epoch had two masters.
    """
    wanted = cases or tuple(CASES)
    lines: list[Line] = []
    accounts: list[Account] = []
    async with scratch_cluster(_say) as cluster:
        with _progress(len(wanted) * runs) as advance:
            measured = FailoverBench(cluster, advance)
            await measured.prepare(find_manifest())
            for case in wanted:
                figure, account = await measured.run(case, runs)
                lines.append(figure)
                accounts.append(account)
                if as_json:
                    print_json(figure)
                    print_json(account)
    if not as_json:
        print_table(HEADINGS, rows(lines))
        for account in accounts:
            click.echo(_sentence(account))
    if not all(account.clean for account in accounts):
        raise GantryError("The account is not clean; see the lines above.")


def _sentence(account: Account) -> str:
    return (
        f"{account.case}: {account.acknowledged} acknowledged, {account.lost} lost, "
        f"{account.duplicated} twice ({account.duplicated_after_lost_answer} after a lost answer), "
        f"{len(account.epochs_with_two_masters)} epochs with two masters"
    )


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(text, err=True)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=total)
        yield lambda case: progress.update(task, advance=1, description=case)
