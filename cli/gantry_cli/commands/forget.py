"""`gantry forget`: take off the record what will not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from gantry_protocol.errors import GantryError

from gantry_cli.admin import AdminClient
from gantry_cli.options import admin_options, agreed, asynchronous, yes_option
from gantry_cli.target import admin_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gantry_protocol.admin import GroupView


@click.command(
    epilog="""\b
Examples:
  gantry forget orders --member 3     a member whose machine or volume is gone
  gantry forget orders                a group whose BrokerGroup was deleted, for good"""
)
@click.argument("group")
@click.option("--member", type=click.IntRange(1), help="Only the member with this broker id.")
@click.option("--cluster", help="Where groups of one name are in several clusters.")
@admin_options
@yes_option
@asynchronous
async def forget(
    group: str,
    member: int | None,
    cluster: str | None,
    controllers: str | None,
    token_file: Path | None,
    yes: bool,
) -> None:
    """Take a member that is gone, or a retired group, off the record.

    A member is forgotten only if it is proved to be gone, is outside the in-sync set, and somebody
    in the set lives, so nothing that was acknowledged goes with it. Should its volume turn up, it
    joins as a new member and is filled.

    A group is retired when its BrokerGroup is deleted: nobody is sent there, and a BrokerGroup of
    the same name brings it back as it was. Forgotten, its topics, ids and sync-state set are gone;
    its volumes are not touched.
    """
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        found = find_group(await admin.groups(), group, cluster)
        if member is not None:
            if all(item.broker_id != member for item in found.members):
                known = ", ".join(str(item.broker_id) for item in found.members) or "nobody"
                raise GantryError(f"Group {group} has no member {member}; it has: {known}.")
            await admin.forget(found, member)
            click.echo(f"Broker {member} of group {group} is forgotten.")
            return
        if not found.retired:
            raise GantryError(
                f"Group {group} is not retired: delete its BrokerGroup first, or name a --member."
            )
        agreed(f"Topics, ids and sync-state set of group {group} will be gone.", yes=yes)
        await admin.forget(found)
    click.echo(f"Group {group} is forgotten.")


def find_group(groups: Sequence[GroupView], name: str, cluster: str | None) -> GroupView:
    """The group that is meant.

    Raises:
        GantryError: there is none, or more than one.
    """
    found = [group for group in groups if group.name == name and cluster in (None, group.cluster)]
    if not found:
        raise GantryError(f"The controllers know no group {name}; see gantry status.")
    if len(found) > 1:
        clusters = ", ".join(item.cluster for item in found)
        raise GantryError(f"Group {name} is in several clusters ({clusters}): give --cluster.")
    return found[0]
