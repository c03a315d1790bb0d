"""`gantry groups`: list, show, create, update and delete consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec
from gantry_protocol.bodies import SubscriptionGroupConfig
from gantry_protocol.errors import GantryError
from gantry_protocol.settings.lite import BIND_TOPIC, SUB_MODEL
from gantry_protocol.settings.priority import FACTOR_MAX, PRIORITY_FACTOR, factor_of

from gantry_cli.client import groups as api
from gantry_cli.client.brokers import broker_groups, everywhere
from gantry_cli.client.session import session
from gantry_cli.commands.offsets import places_to_show, print_rows
from gantry_cli.options import agreed, asynchronous, json_option, nameserver_option, yes_option
from gantry_cli.output import print_json, print_table
from gantry_cli.target import name_servers

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_cli.client.brokers import GroupAddress
    from gantry_cli.client.session import Session

RETRIES = click.IntRange(-1, 10_000)

broker_group_option = click.option(
    "--broker-group", metavar="NAME", help="Only on this broker group. [default: all]"
)


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options for settings of a consumer group; what is not given stays as it is."""
    for option in (
        click.option(
            "--lite-exclusive/--lite-shared",
            default=None,
            help="Whether a lite topic has one client of the group, the last that subscribed. "
            "[new: --lite-shared]",
        ),
        click.option(
            "--lite-of",
            metavar="TOPIC",
            help="Let its members take lite topics of this topic.",
        ),
        click.option(
            "--in-order/--in-any-order",
            default=None,
            help="Whether clients that speak gRPC get a queue's messages one batch after the "
            "other. [new: --in-any-order]",
        ),
        click.option(
            "--notify/--no-notify",
            default=None,
            help="Tell members at once when one comes or goes; else they look every 20 s. "
            "[new: --notify]",
        ),
        click.option(
            "--retries",
            type=RETRIES,
            help="How often a failed message comes again before it is a dead letter. [new: 16]",
        ),
        click.option(
            "--priority-factor",
            type=click.IntRange(0, FACTOR_MAX),
            help="Of a hundred pops of a topic of priorities so many begin with the most urgent "
            "messages. [new: 100]",
        ),
        click.option(
            "--consume/--no-consume",
            default=None,
            help="Whether its members get messages. [new: --consume]",
        ),
    ):
        command = option(command)
    return command


@click.group(
    epilog="""\b
Examples:
  gantry groups list                             who consumes, and how far behind
  gantry groups show billing                     members, subscriptions, lag per queue
  gantry groups create billing --retries 3
  gantry groups update billing --no-consume      hold a group back; --consume lets it go on
  gantry groups delete billing --yes
  gantry offsets reset billing orders --to earliest

\b
A consumer group comes into being with its first member. Create one only to give it settings."""
)
def groups() -> None:
    """List, show, create, update and delete consumer groups."""


@groups.command("list")
@nameserver_option
@json_option("Print a JSON array.")
@asynchronous
async def list_(nameservers: str | None, as_json: bool) -> None:
    """List all consumer groups with members and lag.

    LAG counts the messages that wait, over all topics. A group with a lag and no members has
    stopped; one whose lag grows although it has members is too slow.
    """
    async with session(await name_servers(nameservers)) as client:
        places = await places_to_show(client)
        names = await api.list_groups(client, places)
        found = [await api.describe_group(client, places, name) for name in names]
    if as_json:
        print_json([_summary(item) for item in found])
        return
    print_table(
        ("GROUP", "MEMBERS", "MODEL", "TOPICS", "LAG"),
        [
            (
                item.group,
                len({member.client_id for member in item.members}),
                item.message_model.lower() or "-",
                len({row.topic for row in item.queues}),
                item.lag,
            )
            for item in found
        ],
    )


@groups.command()
@click.argument("group")
@nameserver_option
@json_option("Print one JSON object.")
@asynchronous
async def show(group: str, nameservers: str | None, as_json: bool) -> None:
    """Show GROUP: its settings, members, subscriptions, and its lag in each queue."""
    async with session(await name_servers(nameservers)) as client:
        places = await places_to_show(client)
        found = api.must_be_known(await api.describe_group(client, places, group))
    if as_json:
        print_json(found)
        return
    click.echo(_headline(found))
    if found.members:
        click.echo()
        print_table(
            ("MEMBER", "ADDRESS", "LANGUAGE"),
            [(member.client_id, member.address, member.language) for member in found.members],
        )
    if found.subscriptions:
        click.echo()
        print_table(
            ("TOPIC", "TAGS"),
            [(subscription.topic, subscription.expression) for subscription in found.subscriptions],
        )
    if found.queues:
        click.echo()
        print_rows(found.queues)


@groups.command()
@click.argument("group")
@broker_group_option
@setting_options
@nameserver_option
@json_option("Print the settings by broker group.")
@asynchronous
async def create(
    group: str, broker_group: str | None, nameservers: str | None, as_json: bool, **wanted: Any
) -> None:
    """Give GROUP settings before its first member comes.

    Refused if it has settings already; gantry groups update changes them.
    """
    async with session(await name_servers(nameservers)) as client:
        for place in await broker_groups(client.routes, only=broker_group):
            if await api.setting(client, place, group) is not None:
                raise GantryError(
                    f"Group {group!r} has settings on {place.name}; to change them: "
                    f"gantry groups update {group}"
                )
        now = await _put(client, group, broker_group, wanted)
    _print_settings(now, as_json=as_json)


@groups.command()
@click.argument("group")
@broker_group_option
@setting_options
@nameserver_option
@json_option("Print the settings by broker group.")
@asynchronous
async def update(
    group: str, broker_group: str | None, nameservers: str | None, as_json: bool, **wanted: Any
) -> None:
    """Change the settings of GROUP; what is not named stays as it is."""
    if all(value is None for value in wanted.values()):
        raise click.UsageError(
            "Say what is to change: --consume, --retries, --notify, --in-order, --priority-factor, "
            "--lite-of or --lite-exclusive."
        )
    async with session(await name_servers(nameservers)) as client:
        places = await broker_groups(client.routes)
        api.must_be_known(await api.describe_group(client, places, group))
        now = await _put(client, group, broker_group, wanted)
    _print_settings(now, as_json=as_json)


@groups.command()
@click.argument("group")
@click.option("--dead-letters", is_flag=True, help="Delete its dead letters (%DLQ%GROUP), too.")
@nameserver_option
@yes_option
@asynchronous
async def delete(group: str, dead_letters: bool, nameservers: str | None, yes: bool) -> None:
    """Delete GROUP: its settings, its offsets, and the messages it was to get again.

    Refused while it has members, since they would bring it back at once. What it gave up stays in
    %DLQ%GROUP unless --dead-letters is given.
    """
    async with session(await name_servers(nameservers)) as client:
        places = await broker_groups(client.routes)
        found = api.must_be_known(await api.describe_group(client, places, group))
        if found.members:
            raise GantryError(
                f"Group {group!r} has members ({found.members[0].client_id}); stop them first. "
                f"See gantry groups show {group}"
            )
        agreed(f"{group} will not be known any more; {found.lag} messages wait for it.", yes=yes)
        await api.delete_group(client, group, dead_letters=dead_letters)
    click.echo(f"Group {group} is deleted.")


async def _put(
    client: Session, group: str, broker_group: str | None, wanted: dict[str, Any]
) -> dict[str, SubscriptionGroupConfig]:
    """Change what is wanted on each broker group; returns the settings there."""
    named = {
        "consume_enable": wanted["consume"],
        "retry_max_times": wanted["retries"],
        "notify_consumer_ids_changed_enable": wanted["notify"],
        "consume_message_orderly": wanted["in_order"],
    }
    changes = {name: value for name, value in named.items() if value is not None}
    attributes = {}
    if wanted["lite_of"] is not None:
        attributes[BIND_TOPIC] = wanted["lite_of"]
    if wanted["lite_exclusive"] is not None:
        attributes[SUB_MODEL] = "Exclusive" if wanted["lite_exclusive"] else "Shared"
    if wanted["priority_factor"] is not None:
        attributes[PRIORITY_FACTOR] = str(wanted["priority_factor"])
    now: dict[str, SubscriptionGroupConfig] = {}

    async def put(place: GroupAddress) -> None:
        old = await api.setting(client, place, group) or SubscriptionGroupConfig(group)
        named_there = old.attributes | attributes
        now[place.name] = msgspec.structs.replace(old, attributes=named_there, **changes)
        await api.put_setting(client, place, now[place.name])

    await everywhere(lambda: broker_groups(client.routes, only=broker_group), put)
    return dict(sorted(now.items()))


def _print_settings(now: dict[str, SubscriptionGroupConfig], *, as_json: bool) -> None:
    if as_json:
        print_json(now)
        return
    print_table(
        ("BROKER GROUP", "CONSUMES", "RETRIES", "NOTIFIED", "IN ORDER", "PRIORITY"),
        [
            (
                name,
                _yes(item.consume_enable),
                item.retry_max_times,
                _yes(item.notify_consumer_ids_changed_enable),
                _yes(item.consume_message_orderly),
                factor_of(item.attributes),
            )
            for name, item in sorted(now.items())
        ],
    )


def _summary(found: api.Consumers) -> dict[str, Any]:
    return {
        "group": found.group,
        "members": len({member.client_id for member in found.members}),
        "message_model": found.message_model,
        "topics": sorted({row.topic for row in found.queues}),
        "lag": found.lag,
    }


def _headline(found: api.Consumers) -> str:
    members = len({member.client_id for member in found.members})
    who = f"{members} members, {found.message_model.lower()}" if members else "NO MEMBERS"
    held = [name for name, item in sorted(found.settings.items()) if not item.consume_enable]
    stopped = f"; HELD BACK on {', '.join(held)}" if held else ""
    return f"Group {found.group}: {who}, {found.lag} messages behind{stopped}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
