"""`gantry topics`: list, show, create, update and delete topics."""

from __future__ import annotations

import click
from gantry_protocol.bodies.route import PERM_READ, PERM_WRITE
from gantry_protocol.errors import GantryError
from gantry_protocol.lite import LITE_TYPE
from gantry_protocol.settings.lite import EXPIRATION, EXPIRATION_MAX
from gantry_protocol.settings.priority import MESSAGE_TYPE, MESSAGE_TYPES
from gantry_protocol.settings.readers import READERS, parse_readers

from gantry_cli.client import topics as api
from gantry_cli.client.session import session
from gantry_cli.commands.queues import rebalance
from gantry_cli.options import agreed, asynchronous, json_option, nameserver_option, yes_option
from gantry_cli.output import print_json, print_table
from gantry_cli.target import name_servers

ACCESS = {"read-write": PERM_READ | PERM_WRITE, "read": PERM_READ, "write": PERM_WRITE}
QUEUES = click.IntRange(1, 1024)


def _readers(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """The text of the option, if it reads."""
    try:
        parse_readers(value or "")
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not {error}") from error
    return value


readers_option = click.option(
    "--readers",
    callback=_readers,
    metavar="K",
    help="How many members of a group serve its reads, the master included; '1;7=3': three serve "
    "queue 7. [default: as it is, at first the master alone]",
)
type_option = click.option(
    "--type",
    "kind",
    type=click.Choice([name.lower() for name in MESSAGE_TYPES]),
    help="What its messages are; priority: POP hands out the most urgent ones first; lite: it has "
    "lite topics. [default: as it is, at first none]",
)


@click.group(
    epilog="""\b
Examples:
  gantry topics create orders --queues 8
  gantry topics create sessions --type lite      a topic with lite topics
  gantry topics create calls --type priority     queue 7 of 8 holds the most urgent ones
  gantry topics list
  gantry topics show orders                      where it lives, its first and next offsets
  gantry topics update orders --access read      let consumers finish, take no new messages
  gantry topics update orders --readers 3        let two replicas serve its reads, too
  gantry topics delete orders --yes

\b
Each broker group is asked, has the controllers commit the topic, and writes it into its own log.
Producers may also create one by sending to it, as with RocketMQ's own brokers.""",
)
def topics() -> None:
    """List, show, create, update and delete topics."""


topics.add_command(rebalance)


@topics.command("list")
@nameserver_option
@json_option("Print a JSON array of names.")
@asynchronous
async def list_(nameservers: str | None, as_json: bool) -> None:
    """List the names of all topics.

    %RETRY%G holds what consumer group G failed at, %DLQ%G what it gave up; TBW102 is the template
    by which producers create topics.
    """
    async with session(await name_servers(nameservers)) as client:
        names = await api.list_topics(client.routes)
    if as_json:
        print_json(names)
    else:
        for name in names:
            click.echo(name)


@topics.command()
@click.argument("topic")
@nameserver_option
@json_option("Print one JSON object.")
@asynchronous
async def show(topic: str, nameservers: str | None, as_json: bool) -> None:
    """Show where TOPIC lives: its broker groups, addresses, queues and offsets.

    FIRST is the first offset that can be read, NEXT the one that the next message will get; "?"
    means that the group did not answer.
    """
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
@click.option("--queues", default=4, show_default=True, type=QUEUES)
@click.option("--cluster", metavar="NAME", help="Only on this cluster. [default: all]")
@click.option("--group", metavar="NAME", help="Only on this broker group. [default: all]")
@readers_option
@type_option
@click.option(
    "--lite-expires",
    type=click.IntRange(1, EXPIRATION_MAX),
    metavar="MINUTES",
    help="Let each lite topic end so long after its last message. [default: never]",
)
@nameserver_option
@json_option("Print, for each broker group, how the topic stands there now.")
@asynchronous
async def create(
    topic: str,
    queues: int,
    readers: str | None,
    kind: str | None,
    lite_expires: int | None,
    cluster: str | None,
    group: str | None,
    nameservers: str | None,
    as_json: bool,
) -> None:
    """Create TOPIC, with so many queues on each broker group.

    Consumers of one group divide the queues, so there should be at least as many as consumers.
    Creating what exists just so is harmless; gantry topics update changes one.
    """
    async with session(await name_servers(nameservers)) as client:
        other = [
            item
            for item in await api.shapes(client.routes, topic)
            if item.queues != queues and group in (None, item.broker_group)
        ]
        if other:
            raise GantryError(
                f"Topic {topic!r} exists, with {other[0].queues} queues on "
                f"{other[0].broker_group}; to change it: gantry topics update {topic} "
                f"--queues {queues}"
            )
        await api.create_topic(
            client,
            topic,
            queues=queues,
            cluster=cluster,
            broker_name=group,
            attributes=_attributes(readers, kind, lite_expires),
        )
        found = await api.shapes(client.routes, topic)
    if as_json:
        print_json(found)
    else:
        click.echo(f"Topic {topic} has {queues} queues per broker group.")


@topics.command()
@click.argument("topic")
@click.option("--queues", type=QUEUES, help="Queues on each broker group. [default: as they are]")
@click.option(
    "--access", type=click.Choice(list(ACCESS)), help="Who may use it. [default: as it is]"
)
@click.option("--group", metavar="NAME", help="Only on this broker group. [default: all]")
@readers_option
@type_option
@nameserver_option
@yes_option
@json_option("Print, for each broker group, how the topic stands there now.")
@asynchronous
async def update(
    topic: str,
    queues: int | None,
    access: str | None,
    readers: str | None,
    kind: str | None,
    group: str | None,
    nameservers: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Change how many queues TOPIC has, who may use it, its type, or how many serve its reads.

    With fewer queues, messages in those above the new number cannot be read until there are as many
    again; that must be confirmed. To empty a topic first: --access read, wait until gantry offsets
    show tells no lag, then change it.
    """
    if queues is None and access is None and readers is None and kind is None:
        raise click.UsageError("Say what is to change: --queues, --access, --readers, --type.")
    async with session(await name_servers(nameservers)) as client:
        found = [
            item
            for item in await api.shapes(client.routes, topic)
            if group in (None, item.broker_group)
        ]
        if not found:
            raise GantryError(f"There is no topic {topic!r} there; see gantry topics list.")
        shrinking = [item for item in found if queues is not None and queues < item.queues]
        if shrinking:
            agreed(
                f"{topic} has {shrinking[0].queues} queues on {shrinking[0].broker_group}; what is "
                f"in those from {queues} on could not be read any more.",
                yes=yes,
            )
        for item in found:
            await api.create_topic(
                client,
                topic,
                queues=item.queues if queues is None else queues,
                perm=item.perm if access is None else ACCESS[access],
                cluster=item.cluster,
                broker_name=item.broker_group,
                attributes=_attributes(readers, kind),
            )
        now = await api.shapes(client.routes, topic)
    if as_json:
        print_json(now)
        return
    print_table(
        ("GROUP", "QUEUES", "ACCESS"),
        [(item.broker_group, item.queues, item.access) for item in now],
    )


@topics.command()
@click.argument("topic")
@nameserver_option
@yes_option
@asynchronous
async def delete(topic: str, nameservers: str | None, yes: bool) -> None:
    """Delete TOPIC on every broker group: its messages, and where its consumers are.

    Consumers find no queues of it any more. A topic of the same name begins empty; nobody sees old
    messages in it.
    """
    async with session(await name_servers(nameservers)) as client:
        if topic not in await api.list_topics(client.routes):
            raise GantryError(f"There is no topic {topic!r}; see gantry topics list.")
        agreed(f"All messages of {topic} will be gone.", yes=yes)
        await api.delete_topic(client, topic)
    click.echo(f"Topic {topic} is deleted.")


def _attributes(
    readers: str | None, kind: str | None, lite_expires: int | None = None
) -> dict[str, str | None]:
    """Those that options name; None for the others."""
    if lite_expires is not None and (kind or "").upper() != LITE_TYPE:
        raise click.UsageError("--lite-expires is about lite topics: say --type lite, too.")
    return {
        READERS: readers,
        MESSAGE_TYPE: None if kind is None else kind.upper(),
        EXPIRATION: None if lite_expires is None else str(lite_expires),
    }


def _known(offset: int | None) -> str:
    return "?" if offset is None else str(offset)
