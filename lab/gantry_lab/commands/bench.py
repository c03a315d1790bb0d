"""`gantry_lab bench`: benchmarks on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from gantry_cli.options import asynchronous, json_option
from gantry_cli.output import print_json, print_table
from gantry_cli.progress import progress, told
from gantry_cli.trial.local import scratch_cluster
from gantry_local import manifests
from gantry_protocol.errors import GantryError

from gantry_lab.bench.failover import CASES, Account, FailoverBench
from gantry_lab.bench.results import HEADINGS, machine, rows
from gantry_lab.bench.showing import print_lines, scratch
from gantry_lab.commands.bench_broker import broker
from gantry_lab.commands.bench_controller import controller

if TYPE_CHECKING:
    from gantry_lab.bench.results import Line


@click.group(
    epilog="""\b
Examples:
  python -m gantry_lab bench failover         all cases, 5 runs each
  python -m gantry_lab bench failover --case sigkill --runs 20 --json
  python -m gantry_lab bench controller       throughput of a quorum, and lost leaders
  python -m gantry_lab bench broker           messages per second, and lost masters
  python -m gantry_lab bench tier             what uploading costs producers
  python -m gantry_lab bench pipeline         how fast packs are decoded and audited"""
)
def bench() -> None:
    """Measure Gantry on this machine."""


bench.add_command(controller)
bench.add_command(broker)


@bench.command(
    epilog="""\b
Cases:
"""
    + "\n".join(f"  {case:18} {text}" for case, text in CASES.items())
    + """

\b
Examples:
  python -m gantry_lab bench failover --runs 20
  python -m gantry_lab bench failover --case sigkill --case handover --json"""
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
        with progress(len(wanted) * runs) as advance:
            measured = FailoverBench(cluster, advance)
            await measured.prepare(manifests.example())
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
  python -m gantry_lab bench tier
  python -m gantry_lab bench tier --runs 5 --log-mib 512 --json"""
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
    from gantry_lab.bench.tier import TierBench

    before = machine()
    with scratch() as directory, told() as tell:
        measured = TierBench(directory, log_bytes=log_mib << 20, phase_s=phase_s, progress=tell)
        lines = await measured.run(runs)
    print_lines(lines, before, as_json=as_json)


@bench.command(
    epilog="""\b
Cases:
  decoder   messages per second as columns, and only judged, by two processes, with every CRC
  audit     seconds of 'gantry pipeline audit' over a small tier, by part (needs Java)

\b
Examples:
  python -m gantry_lab bench pipeline
  python -m gantry_lab bench pipeline --case decoder --json"""
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
    from gantry_lab.bench import pipeline as measured

    before = machine()
    lines: list[Line] = []
    with scratch() as directory, told() as tell:
        if not cases or "decoder" in cases:
            lines += measured.decoder(runs, tell)
        if not cases or "audit" in cases:
            lines += measured.audit(directory, runs, tell)
    print_lines(lines, before, as_json=as_json)


def _sentence(account: Account) -> str:
    return (
        f"{account.case}: {account.acknowledged} acknowledged, {account.lost} lost, "
        f"{account.duplicated} twice ({account.duplicated_after_lost_answer} after a lost answer), "
        f"{len(account.epochs_with_two_masters)} epochs with two masters"
    )


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(text, err=True)
