"""`gantry elect`: why a group has no master, and the way out when what is missing cannot return."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from gantry_protocol.errors import GantryError

from gantry_cli.admin import AdminClient
from gantry_cli.commands.forget import find_group
from gantry_cli.commands.status import headline
from gantry_cli.options import admin_options, asynchronous, typed_back, yes_option
from gantry_cli.output import print_table
from gantry_cli.target import admin_of

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_protocol.admin import GroupView, MemberView


@click.command(
    epilog="""\b
Examples:
  gantry elect orders                 why nobody is elected, and what each member holds
  gantry elect orders --accept-loss   the members that hold the rest cannot return"""
)
@click.argument("group")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Elect the furthest member that lives. What it lacks of the confirmed log is given up.",
)
@click.option("--cluster", help="Where groups of one name are in several clusters.")
@admin_options
@yes_option
@asynchronous
async def elect(
    group: str,
    accept_loss: bool,
    cluster: str | None,
    controllers: str | None,
    token_file: Path | None,
    yes: bool,
) -> None:
    """Show why GROUP has no master; with --accept-loss end the wait.

    Nobody is elected who lacks what the group has confirmed, for as long as that takes: a member
    that holds it may return. Only a person can know that none will. What was confirmed beyond the
    end of the elected member is gone then: messages that producers were told are stored, and
    consumers' positions. Should a complete member turn up after all, it stops and keeps its volume.
    """
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        found = find_group(await admin.groups(), group, cluster)
        chosen = furthest(found)
        _show(found)
        if not accept_loss:
            if found.no_master_reason and chosen is not None:
                click.echo(
                    f"\nNothing was changed. If they cannot return: "
                    f"gantry elect {group} --accept-loss"
                )
            return
        if chosen is None:
            raise GantryError(f"No member of group {group} is alive; nobody can be elected.")
        typed_back(found.name, _consequence(found, chosen), yes=yes)
        await admin.accept_loss(found, chosen.broker_id)
    click.echo(
        f"Broker {chosen.broker_id} is master of group {group}; its log ended at "
        f"{chosen.max_offset} of epoch {chosen.epoch}. The loss is on record (gantry status)."
    )


def furthest(group: GroupView) -> MemberView | None:
    """Of the members that live and have said how far their logs go."""
    living = [member for member in group.members if member.alive and member.max_offset >= 0]
    return max(
        living, key=lambda item: (item.epoch, item.max_offset, -item.broker_id), default=None
    )


def _show(group: GroupView) -> None:
    click.echo(headline(group))
    known = group.confirmed_offset >= 0
    end = f"up to {group.confirmed_offset} of epoch {group.confirmed_epoch}"
    click.echo(f"Confirmed: {end if known else 'nothing is known'}\n")
    print_table(
        ("BROKER", "ALIVE", "IN SYNC", "EPOCH", "END", "LACKS"),
        [
            (
                member.broker_id,
                "yes" if member.alive else "no",
                "yes" if member.in_sync else "no",
                member.epoch if member.epoch >= 0 else "?",
                member.max_offset if member.max_offset >= 0 else "?",
                _lacks(group, member) if member.alive else "?",
            )
            for member in group.members
        ],
    )


def _lacks(group: GroupView, member: MemberView) -> str:
    if group.confirmed_offset < 0 or member.max_offset < 0:
        return "?"
    if member.epoch < group.confirmed_epoch:
        return f"what was written since epoch {member.epoch}"
    missing = group.confirmed_offset - member.max_offset
    return f"{missing} bytes" if missing > 0 else "nothing"


def _consequence(group: GroupView, chosen: MemberView) -> str:
    lacks = _lacks(group, chosen)
    what = "what it lacks, if anything," if lacks == "?" else lacks
    return (
        f"Broker {chosen.broker_id}, whose log ends at {chosen.max_offset} of epoch "
        f"{chosen.epoch}, will be master, and {what} of the confirmed log will be lost."
    )
