"""`gantry queues`: mapped topics, whose queues are in one broker group each and can move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from gantry_protocol.admin import QueuesWish, RebalanceRequest
from gantry_protocol.errors import GantryError
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX

from gantry_cli.admin import AdminClient
from gantry_cli.options import admin_options, asynchronous, json_option
from gantry_cli.output import print_json, print_table
from gantry_cli.target import CONTROLLER_GROUP, admin_of

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_protocol.admin import MovesView

cluster_option = click.option(
    "--cluster", default=CONTROLLER_GROUP, show_default=True, help="Whose topics."
)


@click.group(
    epilog="""\b
Examples:
  gantry queues map payments --queues 24         make the topic, or give it more queues
  gantry queues map payments --move 3=orders     have queue 3 move to the broker group orders
  gantry queues list
  gantry queues show payments                    where each queue is, and where its messages are
  gantry topics rebalance --dry-run              what would move to even groups out"""
)
def queues() -> None:
    """Make mapped topics, show where their queues are, and move them.

    A mapped topic has a fixed number of queues for a whole cluster. Each is in one broker group at
    a time, and keeps its order and its offsets when it moves. A plain topic (gantry topics create)
    has queues of its own in each group.
    """


@queues.command("list")
@cluster_option
@admin_options
@json_option("Print one JSON object.")
@asynchronous
async def list_(
    cluster: str, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """List mapped topics, how many queues each broker group has, and moves under way."""
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        view = await admin.queue_maps(cluster)
    if as_json:
        print_json(view.model_dump(by_alias=True))
        return
    print_table(
        ("TOPIC", "QUEUES", "MOVING", "AT"),
        [
            (
                item.topic,
                item.queues,
                item.moving,
                ", ".join(f"{group} {count}" for group, count in item.by_group.items()),
            )
            for item in view.topics
        ],
    )
    click.echo()
    print_table(("GROUP", "QUEUES"), sorted(view.load.items()))


@queues.command()
@click.argument("topic")
@cluster_option
@admin_options
@json_option("Print one JSON object.")
@asynchronous
async def show(
    topic: str, cluster: str, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """Show each queue of TOPIC: its broker group, and the groups that have its older messages.

    "orders 0, shop 840" means: offsets from 0 on are at orders, those from 840 on at shop, which
    takes new messages.
    """
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        view = await admin.queue_maps(cluster, topic)
    if not view.topics:
        raise GantryError(
            f"Topic {topic!r} has no queue map in cluster {cluster}: gantry queues list names "
            f"those that have one, gantry topics show {topic} shows a plain topic."
        )
    (found,) = view.topics
    if as_json:
        print_json(found.model_dump(by_alias=True))
        return
    print_table(
        ("QUEUE", "GROUP", "MOVES TO", "SEGMENTS"),
        [
            (
                item.number,
                item.segments[-1].group,
                item.target or "-",
                ", ".join(
                    f"{segment.group or 'nobody'} {segment.start}" for segment in item.segments
                ),
            )
            for item in found.detail
        ],
    )


@queues.command("map")
@click.argument("topic")
@click.option(
    "--queues",
    type=click.IntRange(1, MAPPED_QUEUES_MAX),
    help="Number of queues; it can grow, never shrink. [default: 8 for a new topic]",
)
@click.option(
    "--move",
    "moves",
    multiple=True,
    metavar="QUEUE=GROUP",
    help="Have a queue be at this broker group. May be given several times.",
)
@cluster_option
@admin_options
@asynchronous
async def map_(
    topic: str,
    queues: int | None,
    moves: tuple[str, ...],
    cluster: str,
    controllers: str | None,
    token_file: Path | None,
) -> None:
    """Make the mapped topic TOPIC, give it more queues, or have queues move.

    New queues go to the broker groups that have the fewest.
    """
    places = dict(map(_place, moves))
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        known = (await admin.queue_maps(cluster, topic)).topics
        count = queues or (known[0].queues if known else 8)
        view = await admin.map_queues(cluster, topic, QueuesWish(queues=count, places=places))
    (found,) = view.topics
    at = ", ".join(f"{group} {count}" for group, count in found.by_group.items())
    moving = f"; {found.moving} are about to move" if found.moving else ""
    click.echo(f"{topic} has {found.queues} queues: {at}{moving}.")


@click.command()
@click.option("--dry-run", is_flag=True, help="Print what would move, and move nothing.")
@click.option(
    "--without",
    multiple=True,
    metavar="GROUP",
    help="Leave no queue at this broker group. May be given several times.",
)
@cluster_option
@admin_options
@json_option("Print a JSON array of moves.")
@asynchronous
async def rebalance(
    dry_run: bool,
    without: tuple[str, ...],
    cluster: str,
    controllers: str | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Even out the queues of mapped topics over the broker groups, with the fewest moves.

    Each move stops sends to one queue for some milliseconds. Plain topics are left alone.
    """
    wish = RebalanceRequest(dry_run=dry_run, without=list(without))
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        view = await admin.rebalance(cluster, wish)
    if as_json:
        print_json([move.model_dump(by_alias=True) for move in view.moves])
        return
    _print_moves(view, dry_run=dry_run)


def _print_moves(view: MovesView, *, dry_run: bool) -> None:
    if not view.moves:
        click.echo("Nothing to move: no group has two queues more than another.")
        return
    print_table(
        ("TOPIC", "QUEUE", "FROM", "TO"),
        [(move.topic, move.queue, move.group, move.target) for move in view.moves],
    )
    word = "would move" if dry_run else "move now"
    click.echo(f"\n{len(view.moves)} queues {word}.")


def _place(text: str) -> tuple[int, str]:
    number, equals, group = text.partition("=")
    if not (equals and group and number.isascii() and number.isdigit()):
        raise click.BadParameter(f"{text!r} is not QUEUE=GROUP, as in 3=orders.")
    return int(number), group
