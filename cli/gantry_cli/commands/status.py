"""`gantry status`: the quorum and the broker groups, as the controllers know them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from gantry_operator import names
from gantry_protocol.errors import GantryError

from gantry_cli.admin import AdminClient
from gantry_cli.options import admin_options, asynchronous, json_option
from gantry_cli.output import print_json, print_table
from gantry_cli.target import Admin, admin_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gantry_protocol.admin import GroupView, QuorumView

WATCH_INTERVAL_S = 1.0


@click.command(
    epilog="""\b
Examples:
  gantry status                   once
  gantry status --watch           every second, until Ctrl-C
  gantry status --json | jq '.groups[].masterEpoch'"""
)
@click.option("--watch", is_flag=True, help="Repeat every second until Ctrl-C.")
@admin_options
@json_option("Print one JSON object.")
@asynchronous
async def status(
    watch: bool, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """Show who leads, epochs, in-sync sets and offsets."""
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        while True:
            try:
                groups, members = await asyncio.gather(admin.groups(), admin.members())
            except GantryError as error:
                if not watch:
                    raise
                click.echo(f"{error}", err=True)
            else:
                if watch and not as_json:
                    click.clear()
                _print(target, groups, members, as_json=as_json)
            if not watch:
                return
            await asyncio.sleep(WATCH_INTERVAL_S)


def _print(
    target: Admin,
    groups: Sequence[GroupView],
    members: Sequence[QuorumView],
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json(as_object(target, groups, members))
        return
    print_table(
        ("CONTROLLER", "NODE", "ROLE", "TERM", "COMMITTED", "APPLIED"),
        [(m.name, m.node_id, m.role, m.term, m.commit_index, m.applied_index) for m in members],
    )
    if target.name_servers:
        click.echo(f"\nName servers for clients: {';'.join(target.name_servers)}")
    for group in groups:
        click.echo(f"\n{headline(group)}")
        print_table(
            ("BROKER", "ROLE", "ADDRESS", "IN SYNC", "EPOCH", "START", "END", "CONFIRMED", "HEARD"),
            [_row(group, broker_id) for broker_id in sorted(m.broker_id for m in group.members)],
        )
        for line in remarks(group):
            click.echo(line)
    if not groups:
        click.echo("\nNo broker group yet; try: gantry local apply -f examples/brokergroup.yaml")


def as_object(
    target: Admin, groups: Sequence[GroupView], members: Sequence[QuorumView]
) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "nameServers": list(target.name_servers),
        "controllers": [member.model_dump(by_alias=True) for member in members],
        "groups": [group.model_dump(by_alias=True) for group in groups],
    }


def headline(group: GroupView) -> str:
    """One line about a group: its state first."""
    if group.retired:
        return (
            f"Group {group.name} of cluster {group.cluster}: RETIRED, {_way_back(group.name)}, or: "
            f"gantry forget {group.name}"
        )
    clean = "" if group.clean else "; NOT CLEAN: an election had to leave the in-sync set"
    return (
        f"Group {group.name} of cluster {group.cluster}: {_state(group)}, "
        f"epoch {group.master_epoch}, "
        f"clients write to {group.route_address or group.master_address or 'nobody'}{clean}"
    )


def _way_back(group: str) -> str:
    """What ended a group, and what brings it back."""
    resource = names.resource_of(group)
    if resource == group:
        return "its BrokerGroup was deleted; create it again"
    return (
        f"its BrokerGroup {resource} was deleted or has fewer shards; create it again or raise "
        "spec.shards"
    )


def remarks(group: GroupView) -> list[str]:
    """Remarks on a group for people."""
    said = []
    if group.no_master_reason:
        said.append(f"Nobody is elected: {group.no_master_reason}; see gantry elect {group.name}")
    if any(member.refused for member in group.members):
        said.append(
            "Brokers know of epochs that this quorum never decided; if it is another quorum than "
            f"before: gantry adopt {group.name}"
        )
    said += [
        f"Broker {member.broker_id} has no room: {member.disk_stuck}"
        for member in group.members
        if member.alive and member.disk_stuck
    ]
    said += [
        f"The log of broker {member.broker_id} is damaged: {member.log_damage}"
        for member in group.members
        if member.alive and member.log_damage
    ]
    if group.loss is not None:
        loss = group.loss
        when = datetime.fromtimestamp(loss.at_ms / 1000, UTC).isoformat(" ", "seconds")
        known = loss.confirmed_offset >= 0
        confirmed = f"{loss.confirmed_offset} was confirmed" if known else "nothing was known"
        said.append(
            f"A loss was accepted at {when} (epoch {loss.master_epoch}): broker {loss.broker_id} "
            f"was elected at {loss.end}, {confirmed}"
        )
    return said


def _state(group: GroupView) -> str:
    """What the group does for clients now; only who lives counts."""
    alive = {member.broker_id for member in group.members if member.alive}
    wanted = group.replicas if group.replicas is not None else len(group.members)
    in_sync = len(alive.intersection(group.sync_state_set))
    if group.master_broker_id is None:
        return "NO MASTER"
    if not alive:
        return "NOBODY LIVES"
    if group.master_broker_id not in alive:
        return "MASTER GONE"
    if in_sync < (group.min_in_sync_replicas or 1):
        return f"{in_sync} of {wanted} in sync, NOTHING IS ACKNOWLEDGED"
    return f"{in_sync} of {wanted} in sync" if in_sync < wanted else "healthy"


def _row(group: GroupView, broker_id: int) -> tuple[object, ...]:
    member = next(item for item in group.members if item.broker_id == broker_id)
    if member.refused:
        role = "REFUSED"
    elif not member.alive:
        role = "gone"
    elif member.fenced:
        role = "fenced"
    elif member.draining:
        role = "draining"
    else:
        role = "MASTER" if broker_id == group.master_broker_id else "replica"
    heard = member.last_heartbeat_age_ms
    return (
        broker_id,
        role,
        member.address,
        "yes" if member.in_sync else "no",
        _known(member.epoch),
        _known(member.log_start),
        _known(member.max_offset),
        _known(member.confirm_offset),
        "never" if heard is None else f"{heard} ms ago",
    )


def _known(number: int) -> str:
    return str(number) if number >= 0 else "?"
