"""`gantry adopt`: have a quorum take over a group whose brokers served under another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from gantry_protocol.errors import GantryError

from gantry_cli.admin import AdminClient
from gantry_cli.commands.forget import find_group
from gantry_cli.options import admin_options, asynchronous, typed_back, yes_option
from gantry_cli.output import print_table
from gantry_cli.target import admin_of

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    epilog="""\b
Examples:
  gantry adopt orders                    all copies are there
  gantry adopt orders --accept-missing   some of them are lost for good"""
)
@click.argument("group")
@click.option(
    "--accept-missing", is_flag=True, help="Go on although fewer copies are there than declared."
)
@click.option("--cluster", help="Where groups of one name are in several clusters.")
@admin_options
@yes_option
@asynchronous
async def adopt(
    group: str,
    accept_missing: bool,
    cluster: str | None,
    controllers: str | None,
    token_file: Path | None,
    yes: bool,
) -> None:
    """Take over the copies of GROUP from a quorum that is gone.

    Controllers that lost their volumes, or a new quorum, refuse brokers that know of epochs which
    they never decided (ControllerBehind), as it may be the quorum that is wrong. This lets them in,
    from the newest of these epochs on. The furthest copy is elected once all are there; the others
    follow it. Topics and positions are in its log, and routes come back with its mastership;
    settings of consumer groups and key-values of the name service must be made again.
    """
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        found = find_group(await admin.groups(), group, cluster)
        copies = [member for member in found.members if member.refused]
        if not copies:
            raise GantryError(f"No copy of group {group} is refused here; see gantry status.")
        print_table(
            ("BROKER", "ADDRESS", "EPOCH", "END"),
            [(copy.broker_id, copy.address, copy.epoch, copy.max_offset) for copy in copies],
        )
        wanted = found.replicas or len(copies)
        if len(copies) < wanted and not accept_missing:
            raise GantryError(
                f"{len(copies)} of {wanted} copies of group {group} are there: start the others, "
                "or give --accept-missing if they are lost; what only they hold is lost then."
            )
        epoch = max(copy.epoch for copy in copies)
        consequence = f"This quorum will decide about group {group} from epoch {epoch} on."
        typed_back(found.name, consequence, yes=yes)
        await admin.adopt(found, [copy.broker_id for copy in copies], accept_missing=accept_missing)
    click.echo(
        f"Group {group} is adopted at epoch {epoch}; the furthest of brokers "
        f"{', '.join(str(copy.broker_id) for copy in copies)} becomes its master."
    )
