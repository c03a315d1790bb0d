"""`gantry fronts`: where clients of a cluster are led to, and the port of each group there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from gantry_protocol.admin import MAX_FRONT_PORTS, FrontsDeclaration
from gantry_protocol.errors import GantryError

from gantry_cli.admin import AdminClient
from gantry_cli.options import admin_options, asynchronous, json_option
from gantry_cli.output import print_json, print_table
from gantry_cli.target import CONTROLLER_GROUP, admin_of

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_protocol.admin import FrontsView, GroupView

FIRST_PORT = 10950
PORTS = 16
ROUTES_S = 30  # how often clients ask for routes

cluster_option = click.option(
    "--cluster", default=CONTROLLER_GROUP, show_default=True, help="Whose clients are led there."
)


@click.group(
    epilog="""\b
Examples:
  gantry fronts list
  gantry fronts declare edge --address 10.96.0.9         clients are led there from now on
  gantry fronts remove edge                              and back to the brokers

\b
The operator declares the fronts of a FrontGroup by itself."""
)
def fronts() -> None:
    """Show and change where clients of a cluster are led to.

    A front serves clients on all broker groups of a cluster. It has a port for each: the first port
    and the group's index, which is the same at every front. Groups whose index is beyond the ports
    are reached at their own addresses, as all are where no fronts are declared.
    """


@fronts.command("list")
@click.option("--cluster", help="Only this cluster. [default: all that have broker groups]")
@admin_options
@json_option("Print a JSON array, an object for each cluster.")
@asynchronous
async def list_(
    cluster: str | None, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """List the declared fronts, and each broker group with its index and master."""
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        groups = [group for group in await admin.groups() if not group.retired]
        clusters = [cluster] if cluster else sorted({group.cluster for group in groups})
        views = {name: await admin.fronts(name) for name in clusters}
    if as_json:
        print_json([_json(name, view) for name, view in views.items()])
        return
    masters = {(group.cluster, group.name): group for group in groups}
    print_table(
        ("CLUSTER", "FRONTS", "ADDRESS", "PORTS"),
        [
            (name, item.name, item.address, f"{item.first_port}-{item.first_port + item.ports - 1}")
            for name, view in views.items()
            for item in view.fronts
        ],
    )
    click.echo()
    print_table(
        ("CLUSTER", "GROUP", "INDEX", "PORT", "MASTER"),
        [row for name, view in views.items() for row in _rows(name, view, masters)],
    )


@fronts.command()
@click.argument("name")
@click.option("--address", required=True, help="Host name or IP address, without a port.")
@click.option(
    "--first-port",
    type=click.IntRange(1, 65535),
    default=FIRST_PORT,
    show_default=True,
    help="Port of the broker group with index 0.",
)
@click.option(
    "--ports",
    type=click.IntRange(1, MAX_FRONT_PORTS),
    default=PORTS,
    show_default=True,
    help="Number of ports, each for a broker group.",
)
@cluster_option
@admin_options
@asynchronous
async def declare(
    name: str,
    address: str,
    first_port: int,
    ports: int,
    cluster: str,
    controllers: str | None,
    token_file: Path | None,
) -> None:
    """Lead clients to the fronts NAME, which must be running.

    The same NAME may be declared again to change address or ports. Another one is refused until the
    first is removed: a cluster has one address of its fronts.
    """
    if not address:
        raise click.UsageError("--address is empty: give a host name or an IP address.")
    wish = FrontsDeclaration(address=address, first_port=first_port, ports=ports)
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        await admin.declare_fronts(cluster, name, wish)
        view = await admin.fronts(cluster)
    served = sum(group.served_by_fronts for group in view.groups)
    click.echo(
        f"Clients of cluster {cluster} are led to {address}, ports {first_port} to "
        f"{first_port + ports - 1}: {served} of {len(view.groups)} broker groups."
    )


@fronts.command()
@click.argument("name")
@cluster_option
@admin_options
@asynchronous
async def remove(name: str, cluster: str, controllers: str | None, token_file: Path | None) -> None:
    """Lead clients back to the brokers, no more to the fronts NAME.

    Clients ask for their routes every 30 seconds: keep the fronts running for so long.
    """
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        known = {item.name for item in (await admin.fronts(cluster)).fronts}
        if name not in known:
            there = ", ".join(sorted(known)) or "nothing"
            raise GantryError(
                f"No fronts {name} are declared for cluster {cluster}; declared is: {there}."
            )
        await admin.remove_fronts(cluster, name)
    click.echo(
        f"Clients of cluster {cluster} are led to the brokers again. Keep the fronts {name} for "
        f"{ROUTES_S} seconds more, until the last client has asked for its routes."
    )


def _rows(
    cluster: str, view: FrontsView, groups: dict[tuple[str, str], GroupView]
) -> list[tuple[object, ...]]:
    first_port = view.fronts[0].first_port if view.fronts else 0
    rows: list[tuple[object, ...]] = []
    for item in view.groups:
        known = groups.get((cluster, item.group))
        port = first_port + item.index if item.served_by_fronts else "-"
        master = (known.master_address if known else None) or "-"
        rows.append((cluster, item.group, item.index, port, master))
    return rows


def _json(cluster: str, view: FrontsView) -> dict[str, Any]:
    return {"cluster": cluster, **view.model_dump(by_alias=True)}
