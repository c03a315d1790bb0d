"""`gantry topics`: list, create, describe and delete topics."""

from __future__ import annotations

import click

from gantry_cli.client import topics as api
from gantry_cli.client.session import session
from gantry_cli.options import asynchronous, json_option, nameserver_option
from gantry_cli.output import print_json, print_table
from gantry_cli.target import name_servers


@click.group(
    epilog="""\b
Examples:
  gantry topics create orders --queues 8
  gantry topics list
  gantry topics describe orders
  gantry topics delete orders""",
)
def topics() -> None:
    """List, create, describe and delete topics."""


@topics.command("list")
@nameserver_option
@json_option("Print a JSON array of names.")
@asynchronous
async def list_(nameservers: str | None, as_json: bool) -> None:
    """List the names of all topics."""
    async with session(await name_servers(nameservers)) as client:
        names = await api.list_topics(client.routes)
    if as_json:
        print_json(names)
    else:
        for name in names:
            click.echo(name)


@topics.command()
@click.argument("topic")
@click.option("--queues", default=4, show_default=True, type=click.IntRange(1, 1024))
@click.option("--cluster", metavar="NAME", help="Only on this cluster. [default: the only one]")
@click.option("--group", metavar="NAME", help="Only on this broker group. [default: all]")
@nameserver_option
@asynchronous
async def create(
    topic: str, queues: int, cluster: str | None, group: str | None, nameservers: str | None
) -> None:
    """Create TOPIC, or change its number of queues."""
    async with session(await name_servers(nameservers)) as client:
        await api.create_topic(
            client.routes, topic, queues=queues, cluster=cluster, broker_name=group
        )
    click.echo(f"Topic {topic} has {queues} queues per broker group.")


@topics.command()
@click.argument("topic")
@nameserver_option
@json_option("Print one JSON object.")
@asynchronous
async def describe(topic: str, nameservers: str | None, as_json: bool) -> None:
    """Show where TOPIC lives: its broker groups, addresses, queues and offsets."""
    async with session(await name_servers(nameservers)) as client:
        rows = await api.describe_topic(client.routes, client.calls, topic)
    if as_json:
        print_json({"topic": topic, "queues": rows})
        return
    print_table(
        ("GROUP", "QUEUE", "ADDRESS", "ACCESS", "FIRST", "NEXT"),
        [
            (row.group, row.queue, row.address, row.access, _known(row.first), _known(row.next))
            for row in rows
        ],
    )


@topics.command()
@click.argument("topic")
@nameserver_option
@asynchronous
async def delete(topic: str, nameservers: str | None) -> None:
    """Delete TOPIC and its messages on every broker group."""
    async with session(await name_servers(nameservers)) as client:
        await api.delete_topic(client.routes, topic)
    click.echo(f"Topic {topic} is deleted.")


def _known(offset: int | None) -> str:
    return "?" if offset is None else str(offset)
