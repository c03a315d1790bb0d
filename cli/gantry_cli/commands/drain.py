"""`gantry drain`: have a broker group take no new messages, and see what is left of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from gantry_cli.admin import AdminClient
from gantry_cli.commands.forget import find_group
from gantry_cli.options import admin_options, asynchronous
from gantry_cli.target import admin_of

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_protocol.admin import DrainView, GroupView

LOOK_S = 2.0


@click.command(
    epilog="""\b
Examples:
  gantry drain orders              new messages go to other groups; waits until nothing is left
  gantry drain orders --no-wait    the same, without waiting
  gantry drain orders --end        the group takes messages again

\b
The operator drains a BrokerGroup that is deleted by itself."""
)
@click.argument("group")
@click.option("--end", is_flag=True, help="End the drain.")
@click.option("--wait/--no-wait", default=True, help="Say what is left until nothing is.")
@click.option("--cluster", help="Where groups of one name are in several clusters.")
@admin_options
@asynchronous
async def drain(
    group: str,
    end: bool,
    wait: bool,
    cluster: str | None,
    controllers: str | None,
    token_file: Path | None,
) -> None:
    """Have a broker group take no new messages, and serve those that it has.

    Routes lead producers to the other groups of the cluster, and its master refuses new messages
    once clients had time to ask for routes. Consumers go on. Nothing is left once every consumer
    group has read everything, no message is delayed and no transaction is open; then the group may
    be stopped. The last group of a cluster that takes messages is not drained.
    """
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        found = find_group(await admin.groups(), group, cluster)
        if end:
            await admin.end_drain(found)
            click.echo(f"Group {group} takes messages.")
            return
        await admin.drain(found)
        click.echo(f"Group {group} is being drained: new messages go to other groups.")
        told = ""
        while wait:
            seen = find_group(await admin.groups(), group, found.cluster)
            left = report_of(seen)
            if left is not None and left.done:
                click.echo(f"Nothing is left in group {group}.")
                return
            text = describe(seen, left)
            if text != told:
                click.echo(text)
                told = text
            if seen.drain_began_ms is None:
                return
            await asyncio.sleep(LOOK_S)


def report_of(group: GroupView) -> DrainView | None:
    """The word of the living master; None while it has said nothing."""
    for member in group.members:
        if member.broker_id == group.master_broker_id and member.alive:
            return member.drain
    return None


def describe(group: GroupView, left: DrainView | None) -> str:
    """A line on what is left, and what is waited for."""
    if group.drain_began_ms is None:
        return f"Group {group.name} is not being drained any more: somebody has ended it."
    if left is None:
        return "Its master has not said yet what is left."
    return (
        f"{left.unread} unread, {left.parked} delayed, {left.transactions} open transactions: "
        f"{left.waits_for}."
    )
