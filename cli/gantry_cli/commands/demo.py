"""`gantry demo`: the demonstration, from nothing to the account."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from gantry_local import manifests
from gantry_protocol.errors import GantryError

from gantry_cli.demo.script import Play
from gantry_cli.demo.stage import DemoStage
from gantry_cli.demo.view import LiveScreen, print_event
from gantry_cli.options import asynchronous
from gantry_cli.trial.local import scratch_cluster

if TYPE_CHECKING:
    from gantry_cli.demo.report import DemoAccount

FRAMES_PER_S = 5


@click.command(
    epilog="""\b
Examples:
  gantry demo                  live on a terminal
  gantry demo --plain          one line per event
  gantry demo | tail -1        the account only: DEMO {...}"""
)
@click.option("--plain", is_flag=True, help="Print lines even on a terminal.")
@click.option(
    "--manifest",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Apply this BrokerGroup named 'orders', with a tier of the demonstration's own. "
    "[default: examples/brokergroup.yaml]",
)
@click.option("--keep", is_flag=True, help="Keep state and logs of all processes afterwards.")
@asynchronous
async def demo(plain: bool, manifest: Path | None, keep: bool) -> None:
    """Start a cluster, take its master away three times under load, show what a client saw.

    The master is killed, stopped gracefully, and frozen in the middle of an upload to the tier. The
    cluster is made of processes on this machine and is gone afterwards. Takes about 45 seconds.
    Ends with one line, DEMO and a JSON object, and with exit code 0 only if nothing acknowledged
    was lost, every gap was measured, and the tier is sound.
    """
    live = sys.stdout.isatty() and not plain
    stage = DemoStage(None if live else print_event)
    account = await (_live if live else _perform)(stage, manifest or manifests.example(), keep)
    click.echo(account.line())
    if failures := account.failures():
        raise GantryError(f"The demonstration failed: {'; '.join(failures)}.")


async def _perform(stage: DemoStage, manifest: Path, keep: bool) -> DemoAccount:
    """Play on a cluster of its own."""
    async with scratch_cluster(stage.did, keep=keep) as cluster:
        account = await Play(cluster, stage, cluster.directory).perform(manifest)
        cluster.keep = bool(account.failures())
        return account


async def _live(stage: DemoStage, manifest: Path, keep: bool) -> DemoAccount:
    """Play while the screen is drawn anew several times a second."""
    from rich.live import Live

    screen = LiveScreen(stage)
    with Live(screen, auto_refresh=False) as live:
        performing = asyncio.create_task(_perform(stage, manifest, keep))
        try:
            while not performing.done():
                await asyncio.wait((performing,), timeout=1 / FRAMES_PER_S)
                live.refresh()
        finally:
            performing.cancel()
            await asyncio.gather(performing, return_exceptions=True)
            live.refresh()
        return performing.result()
