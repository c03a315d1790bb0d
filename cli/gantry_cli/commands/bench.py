"""`gantry bench`: benchmarks on this machine."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from gantry_protocol.errors import GantryError

from gantry_cli.bench.failover import CASES, Account, FailoverBench
from gantry_cli.bench.results import HEADINGS, Line, machine, rows
from gantry_cli.options import asynchronous, json_option
from gantry_cli.output import print_json, print_table
from gantry_cli.trial.local import find_manifest, scratch_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gantry_cli.bench.results import Machine


@click.group(
    epilog="""\b
Examples:
  gantry bench failover                              all cases, 5 runs each
  gantry bench failover --case sigkill --runs 20 --json
  gantry bench tier                                  what uploading costs producers
  gantry bench pipeline                              how fast packs are decoded and audited"""
)
def bench() -> None:
    """Measure Gantry on this machine."""


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


@bench.command(
    epilog="""\b
Figures:
  upload                    MB of the log per second into a directory, while producers run
  producers-off             p99 of a message of 1 KiB without a tier
  producers-uploading       the same while the log is uploaded at full speed
  producers-resting         the same with a tier that is up to date
  promotion-to-claim        from an election after SIGKILL to the new master's manifest version

\b
Examples:
  gantry bench tier
  gantry bench tier --runs 5 --log-mib 512 --json"""
)
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option(
    "--log-mib",
    default=512,
    show_default=True,
    type=click.IntRange(192, 16 * 1024),
    help="Length of the log that each run uploads. Four times as much disk is needed.",
)
@click.option(
    "--phase",
    "phase_s",
    default=10.0,
    show_default=True,
    type=click.FloatRange(3, 600),
    metavar="SECONDS",
    help="How long producers are timed before and after the upload.",
)
@json_option("Print one JSON object per line.")
@asynchronous
async def tier(runs: int, log_mib: int, phase_s: float, as_json: bool) -> None:
    """Measure uploads to a directory, and what producers notice of them.

    Three brokers and a controller run as processes of their own. Each run compares producers
    without a tier, during an upload at full speed, and with a tier that is up to date.
    """
    from gantry_cli.bench.tier import TierBench

    before = machine()
    with _scratch() as directory, _told() as told:
        measured = TierBench(directory, log_bytes=log_mib << 20, phase_s=phase_s, progress=told)
        lines = await measured.run(runs)
    _print(lines, before, as_json=as_json)


@bench.command(
    epilog="""\b
Cases:
  decoder   messages per second as columns, and only judged, by two processes, with every CRC
  audit     seconds of 'gantry pipeline audit' over a small tier, by part (needs Java)

\b
Examples:
  gantry bench pipeline
  gantry bench pipeline --case decoder --json"""
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    type=click.Choice(["decoder", "audit"]),
    help="May be given several times. [default: all]",
)
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1, 100))
@json_option("Print one JSON object per line.")
def pipeline(cases: tuple[str, ...], runs: int, as_json: bool) -> None:
    """Measure how fast packs are read: the decoder alone, and an audit as a person runs it."""
    from gantry_cli.bench import pipeline as measured

    before = machine()
    lines: list[Line] = []
    with _scratch() as directory, _told() as told:
        if not cases or "decoder" in cases:
            lines += measured.decoder(runs, told)
        if not cases or "audit" in cases:
            lines += measured.audit(directory, runs, told)
    _print(lines, before, as_json=as_json)


def _print(lines: Sequence[Line], on: Machine, *, as_json: bool) -> None:
    """The figures, and what they were measured on."""
    if as_json:
        for one in lines:
            print_json(one)
        print_json({"bench": lines[0].bench, "machine": on})
        return
    print_table(HEADINGS, rows(lines))
    click.echo(
        f"{on.cpus} processors ({on.processor}), {on.memory_mib} MiB, Linux {on.kernel}, "
        f"Python {on.python}; load before: {on.load:.2f}"
    )


@contextmanager
def _scratch() -> Iterator[Path]:
    """A directory that ends with the measurement; after a failure it stays, for its logs."""
    path = Path(tempfile.mkdtemp(prefix="gantry-bench-"))
    try:
        yield path
    except Exception:
        click.echo(f"What was measured on is left in {path}", err=True)
        raise
    shutil.rmtree(path, ignore_errors=True)


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


@contextmanager
def _told() -> Iterator[Callable[..., None]]:
    """Shows what is being done, and the share that is done if known, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _text, _share=None: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def told(text: str, share: float | None = None) -> None:
            progress.update(
                task,
                description=text,
                total=None if share is None else 1.0,
                completed=share or 0.0,
            )

        yield told
