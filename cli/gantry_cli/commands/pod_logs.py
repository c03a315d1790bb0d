"""`gantry kube logs`: the logs of a group's pods in one order of time."""

from __future__ import annotations

import re

import click
from gantry_operator.preview.client import inspecting, named_file, namespace_of
from gantry_operator.support.group_logs import LogFollower, LogsWanted, show

from gantry_cli.kube_view import kube_options
from gantry_cli.options import asynchronous

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _seconds(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """A time as kubectl takes it, in seconds: 90s, 5m, 2h30m, 1d."""
    if value is None:
        return None
    parts = re.findall(r"(\d{1,6})([smhd])", value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise click.BadParameter(
            f"{value} is no time: give for example 90s, 5m or 2h.", context, option
        )
    return max(1, sum(int(number) * _UNITS[unit] for number, unit in parts))


@click.command(
    epilog="""\b
Examples:
  kubectl gantry logs orders                      the last 200 lines of each replica
  kubectl gantry logs orders --since 10m --all    with its controllers and fronts: a failover
  kubectl gantry logs orders -f
  kubectl gantry logs cg/gantry --previous        what controllers said before they restarted

\b
A star marks the pod that leads now:
  *orders-broker-0 master  | time=2026-11-29T12:00:00.512Z level=info …
   orders-broker-1 replica | time=2026-11-29T12:00:00.514Z level=info …"""
)
@click.argument("group")
@click.option(
    "--since",
    callback=_seconds,
    metavar="TIME",
    help="Not older than this, for example 10m or 2h.",
)
@click.option(
    "--tail",
    type=click.IntRange(0, 20_000),
    default=200,
    show_default=True,
    help="Without --since: so many of the last lines of each log.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on, also with pods that come later.")
@click.option(
    "--all",
    "all_of_it",
    is_flag=True,
    help="Also its controllers and fronts; of controllers, all groups of the cluster.",
)
@click.option(
    "--all-containers", "containers", is_flag=True, help="Also sidecars and init containers."
)
@click.option("-p", "--previous", is_flag=True, help="Of the runs before the last restarts.")
@kube_options
@asynchronous
async def logs(
    group: str,
    since: int | None,
    tail: int,
    follow: bool,
    all_of_it: bool,
    containers: bool,
    previous: bool,
    kubeconfig: str | None,
    namespace: str | None,
) -> None:
    """Show the logs of all pods of GROUP as one, in the order of time.

    GROUP is the name of a BrokerGroup, a ControllerGroup or a FrontGroup; where two have the same
    name, bg/NAME, cg/NAME or fg/NAME. Before each line stands who said it, and its role now. Times
    are those of the machines; lines of two machines are in order as far as their clocks agree.
    """
    if follow and previous:
        raise click.UsageError("A run that has ended says no more: give -f or --previous.")
    file = named_file(kubeconfig)
    home = namespace or namespace_of(file)
    wanted = LogsWanted(group, all_of_it, containers, previous, since, tail)
    async with inspecting(file) as api:
        if follow:
            await LogFollower(api, home, wanted, _tell).run(click.echo)
        else:
            await show(api, home, wanted, click.echo, _tell)


def _tell(text: str) -> None:
    click.echo(text, err=True)
