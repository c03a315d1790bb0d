"""`gantry consume`: receive messages and print them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
from gantry_protocol.errors import GantryError
from gantry_protocol.records import decode_properties

from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start, check_filter
from gantry_cli.client.session import session
from gantry_cli.options import asynchronous, json_option, nameserver_option
from gantry_cli.output import print_json
from gantry_cli.progress import counted
from gantry_cli.target import name_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUEUED_MAX = 1024  # read ahead of the terminal; then the queues wait
COMMIT_INTERVAL_S = 1.0


@click.command(
    epilog="""\b
Examples:
  gantry consume orders                          from where the group left off, until Ctrl-C
  gantry consume orders --from earliest --count 1000 --json
  gantry consume orders --idle 2                 until nothing came for 2 s
  gantry consume orders --filter "amount > 500"  by SQL92 on the messages' properties""",
)
@click.argument("topic")
@click.option("--group", default="gantry", show_default=True, help="Consumer group.")
@click.option(
    "--from",
    "start",
    default=Start.COMMITTED.value,
    show_default=True,
    type=click.Choice([start.value for start in Start]),
    help="Where to begin; 'committed' falls back to the earliest message.",
)
@click.option("--filter", "sql", help="Only messages whose properties pass this SQL92.")
@click.option("--count", type=click.IntRange(1), help="End after so many messages.")
@click.option("--idle", "idle_s", type=click.FloatRange(0.1), help="End after so quiet seconds.")
@click.option(
    "--commit/--no-commit", default=True, show_default=True, help="Remember how far we got."
)
@nameserver_option
@json_option("Print each message as one JSON object.")
@asynchronous
async def consume(
    topic: str,
    group: str,
    start: str,
    sql: str | None,
    count: int | None,
    idle_s: float | None,
    commit: bool,
    nameservers: str | None,
    as_json: bool,
) -> None:
    """Receive messages.

    Their bodies are printed, one per line.

    Messages appear once the in-sync replicas have them. With --count, fewer messages within the
    time of --idle are an error.
    """
    received: asyncio.Queue[ReceivedRecord] = asyncio.Queue(maxsize=QUEUED_MAX)
    async with session(await name_servers(nameservers)) as client:
        # A topic that is not there is an error, not a long wait.
        route = await client.routes.fetch(topic)
        if sql is not None and route.readable:
            await check_filter(client.calls, route.readable[0], topic, group, sql)
        consumer = Consumer(
            client.routes,
            client.calls,
            topic,
            received.put,
            group=group,
            start=Start(start),
            sql=sql,
            commit_interval_s=COMMIT_INTERVAL_S if commit else None,
        )
        reading = asyncio.create_task(consumer.run())
        try:
            printed = 0
            with counted("received", count, printing=True) as advance:
                async for item in _arriving(received, reading, idle_s):
                    _print_one(item, as_json=as_json)
                    consumer.done(item.position)
                    printed += 1
                    advance()
                    if printed == count:
                        break
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            if commit:
                await consumer.commit()
    if count is not None and printed < count:
        raise GantryError(f"{printed} of {count} messages came, then none for {idle_s or 0:g} s.")


async def _arriving(
    received: asyncio.Queue[ReceivedRecord], reading: asyncio.Task[None], idle_s: float | None
) -> AsyncIterator[ReceivedRecord]:
    """What arrives, until nothing does for `idle_s` (None: for ever)."""
    while True:
        following = asyncio.ensure_future(received.get())
        await asyncio.wait(
            (following, reading), timeout=idle_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not following.done():
            following.cancel()
            if reading.done():
                reading.result()  # it never ends by itself, so this raises
            return
        yield following.result()


def _print_one(item: ReceivedRecord, *, as_json: bool) -> None:
    text = item.record.body.decode("utf-8", "replace")
    if not as_json:
        click.echo(text)
        return
    print_json(
        {
            "key": item.key,
            "group": item.position.broker_name,
            "queue": item.position.queue_id,
            "offset": item.position.queue_offset,
            "storedAtMs": item.record.store_timestamp,
            "properties": decode_properties(item.record.properties),
            "body": text,
        }
    )
