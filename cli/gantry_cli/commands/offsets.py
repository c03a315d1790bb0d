"""`gantry offsets`: how far consumer groups have come, and moving them."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import click

from gantry_cli.client import progress as api
from gantry_cli.client.brokers import answering, broker_groups
from gantry_cli.client.groups import describe_group, must_be_known
from gantry_cli.client.session import session
from gantry_cli.options import agreed, asynchronous, json_option, nameserver_option, yes_option
from gantry_cli.output import print_json, print_table
from gantry_cli.target import name_servers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_cli.client.brokers import GroupAddress
    from gantry_cli.client.session import Session


def target(ctx: click.Context, param: click.Parameter, value: str) -> api.Target:
    """The target behind `--to`; refuses nonsense, and times that have not come."""
    if value in (api.EARLIEST, api.LATEST):
        return api.Target(end=value)
    if value.isdecimal():
        return api.Target(offset=int(value))
    try:
        moment = dt.datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither earliest, latest, an offset nor a time such as "
            "2026-11-22T10:30:00"
        ) from None
    time_ms = int(moment.astimezone().timestamp() * 1000)
    if time_ms > time.time() * 1000:
        raise click.BadParameter(f"{value} has not come yet; write latest")
    return api.Target(time_ms=time_ms)


@click.group(
    epilog="""\b
Examples:
  gantry offsets show billing
  gantry offsets show billing --topic orders --json | jq '[.[].lag] | add'
  gantry offsets reset billing orders --to earliest --dry-run
  gantry offsets reset billing orders --to 2026-11-22T10:30:00     this machine's time zone
  gantry offsets reset billing orders --to latest --yes            skip what waits
  gantry offsets reset billing orders --to 1200 --queue 0 --broker-group orders"""
)
def offsets() -> None:
    """Show how far consumer groups have come, and move them."""


@offsets.command()
@click.argument("group")
@click.option("--topic", metavar="NAME", help="Only this topic. [default: all it consumes]")
@nameserver_option
@json_option("Print a JSON array of queues.")
@asynchronous
async def show(group: str, topic: str | None, nameservers: str | None, as_json: bool) -> None:
    """Show how far GROUP has come in each queue.

    NEXT is the first offset it has not consumed, END one past the last message, LAG the messages
    between them. Broadcasting consumers keep offsets to themselves, so none is shown of them.
    """
    async with session(await name_servers(nameservers)) as client:
        places = await places_to_show(client)
        found = must_be_known(await describe_group(client, places, group))
    rows = [row for row in found.queues if topic in (None, row.topic)]
    if as_json:
        print_json(rows)
    elif rows:
        print_rows(rows)
    else:
        click.echo(f"Group {group} has no offsets{f' in {topic}' if topic else ''} yet.")


@offsets.command()
@click.argument("group")
@click.argument("topic")
@click.option(
    "--to",
    "where",
    metavar="WHERE",
    callback=target,
    required=True,
    help="earliest, latest, an offset, or a time: the first message stored at or after it.",
)
@click.option("--queue", type=click.IntRange(0), help="Only this queue. [default: all]")
@click.option("--broker-group", metavar="NAME", help="Only on this broker group. [default: all]")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@nameserver_option
@yes_option
@json_option("Print the moves, old and new; needs --yes or --dry-run.")
@asynchronous
async def reset(
    group: str,
    topic: str,
    where: api.Target,
    queue: int | None,
    broker_group: str | None,
    dry_run: bool,
    nameservers: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Let GROUP go on elsewhere in TOPIC.

    Shows old and new offsets, asks, then moves queue by queue; each move is a record in the log of
    its broker group, so it outlives a failover. Members that run are moved with their next pull and
    need no restart; what they commit until then does not count. Going back means that messages are
    consumed again, going forward that some are never consumed.
    """
    if as_json and not (yes or dry_run):
        raise click.UsageError("With --json nobody is asked: give --yes, or --dry-run.")
    async with session(await name_servers(nameservers)) as client:
        places = await broker_groups(client.routes)
        must_be_known(await describe_group(client, places, group))
        moves = await api.plan_reset(
            client, group, topic, where, queue=queue, broker_group=broker_group
        )
        if not as_json:
            _print_moves(moves)
        if dry_run:
            if as_json:
                print_json(moves)
            return
        agreed(_consequence(group, moves), yes=yes)
        await api.reset(client, group, moves)
    if as_json:
        print_json(moves)
    else:
        click.echo(f"Group {group} goes on there in {len(moves)} queues.")


async def places_to_show(client: Session) -> list[GroupAddress]:
    """The broker groups that answer; those that do not are named on standard error."""
    living, silent = await answering(client, await broker_groups(client.routes))
    for group in silent:
        click.echo(f"Left out: {group.name} at {group.address} does not answer.", err=True)
    return living


def print_rows(rows: Sequence[api.QueueProgress]) -> None:
    """One line for each queue, and their sum."""
    print_table(
        ("TOPIC", "BROKER GROUP", "QUEUE", "NEXT", "END", "LAG", "LAST CONSUMED WAS STORED"),
        [
            (
                row.topic,
                row.broker_group,
                row.queue,
                row.next,
                row.end,
                row.lag,
                _moment(row.consumed_at_ms),
            )
            for row in rows
        ],
    )
    click.echo(f"{sum(row.lag for row in rows)} messages wait.")


def _print_moves(moves: Sequence[api.Move]) -> None:
    print_table(
        ("TOPIC", "BROKER GROUP", "QUEUE", "OLD", "NEW", "EFFECT"),
        [
            (
                move.topic,
                move.broker_group,
                move.queue,
                "-" if move.before is None else move.before,
                move.after,
                _effect(move),
            )
            for move in moves
        ],
    )


def _effect(move: api.Move) -> str:
    if move.before is None or not move.again:
        return "begins there" if move.before is None else "stays"
    return f"{move.again} again" if move.again > 0 else f"{-move.again} skipped"


def _consequence(group: str, moves: Sequence[api.Move]) -> str:
    again = sum(max(0, move.again) for move in moves)
    skipped = sum(max(0, -move.again) for move in moves)
    return f"{group} will consume {again} messages again and skip {skipped}."


def _moment(time_ms: int) -> str:
    if not time_ms:
        return "-"
    return dt.datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(" ", "seconds")
