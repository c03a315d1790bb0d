"""`gantry produce`: send messages and say what became of them."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec
from gantry_protocol.errors import GantryError

from gantry_cli.client.producer import Message, Producer, SendFailedError
from gantry_cli.client.routes import TopicNotFoundError
from gantry_cli.client.session import Session, session
from gantry_cli.client.topics import create_topic
from gantry_cli.options import asynchronous, json_option, nameserver_option
from gantry_cli.output import print_json
from gantry_cli.progress import counted
from gantry_cli.target import name_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NEW_TOPIC_PATIENCE_S = 5.0
DEFAULT_QUEUES = 4


class Summary(msgspec.Struct):
    """The fate of the messages of one run."""

    acknowledged: int = 0
    failed: int = 0
    lost_answers: int = 0
    longest_gap_ms: float = 0.0
    seconds: float = 0.0
    last_error: str | None = None


@click.command(
    epilog="""\b
Examples:
  gantry produce orders --count 1000 --rate 200
  gantry produce orders --body 'hello' --tag TagA
  tail -f app.log | gantry produce logs --stdin""",
)
@click.argument("topic")
@click.option("--count", type=click.IntRange(1), help="How many messages. [default: 1]")
@click.option("--body", help="Text of every message. [default: message N]")
@click.option("--stdin", "from_stdin", is_flag=True, help="One message per line of standard input.")
@click.option("--tag", help="Tag of every message.")
@click.option("--key", help="Index key of every message.")
@click.option("--rate", type=click.FloatRange(0.1), help="Messages per second. [default: no limit]")
@click.option(
    "--in-flight",
    default=16,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="Messages under way at once; use 1 to keep their order.",
)
@click.option(
    "--patience",
    "patience_s",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0.1),
    help="Seconds to retry one message before giving up.",
)
@nameserver_option
@json_option("Print the summary as one JSON object.")
@asynchronous
async def produce(
    topic: str,
    count: int | None,
    body: str | None,
    from_stdin: bool,
    tag: str | None,
    key: str | None,
    rate: float | None,
    in_flight: int,
    patience_s: float,
    nameservers: str | None,
    as_json: bool,
) -> None:
    """Send messages.

    TOPIC is created if need be.

    A message counts as acknowledged when enough in-sync replicas have it. Until then it is sent
    again under the same unique key, across failovers.
    """
    if from_stdin and (body is not None or count is not None):
        raise click.UsageError("--stdin brings its own messages; leave out --body and --count.")
    bodies = _lines() if from_stdin else _numbered(count or 1, body)
    async with session(await name_servers(nameservers)) as client:
        await ensure_topic(client, topic)
        producer = Producer(client.routes, client.calls, give_up_after_s=patience_s)
        messages = (producer.message(topic, text, tags=tag, keys=key) async for text in bodies)
        total = None if from_stdin else count or 1
        with counted("sent", total) as advance:
            summary = await _send_all(producer, messages, in_flight, rate, advance)
    if as_json:
        print_json(summary)
    else:
        click.echo(_sentence(summary))
    if summary.failed:
        raise GantryError(f"{summary.failed} messages were not acknowledged: {summary.last_error}")


async def ensure_topic(client: Session, topic: str) -> None:
    """Create `topic` if the name service does not know it, and wait until it has a route."""
    try:
        await client.routes.fetch(topic)
    except TopicNotFoundError:
        await create_topic(client, topic, queues=DEFAULT_QUEUES, cluster=None)
    else:
        return
    deadline = time.monotonic() + NEW_TOPIC_PATIENCE_S
    while True:
        try:
            await client.routes.fetch(topic)
        except TopicNotFoundError:
            if time.monotonic() > deadline:
                raise GantryError(
                    f"Topic {topic!r} was created, but no broker group has a master to serve it; "
                    "see gantry status."
                ) from None
            await asyncio.sleep(0.1)
        else:
            return


async def _send_all(
    producer: Producer,
    messages: AsyncIterator[Message],
    in_flight: int,
    rate: float | None,
    advance: Callable[[], None],
) -> Summary:
    """Send all of `messages`, at most `in_flight` at once and `rate` per second.

    `advance` is called as soon as it is known what became of one.
    """
    summary = Summary()
    began_s = last_ack_s = time.monotonic()
    started = 0
    reading = asyncio.Lock()

    async def following() -> Message | None:
        """The next message, when it is due."""
        nonlocal started
        async with reading:
            message = await anext(messages, None)
            if rate is not None:
                await asyncio.sleep(max(0.0, began_s + started / rate - time.monotonic()))
            started += 1
        return message

    async def lane() -> None:
        nonlocal last_ack_s
        while (message := await following()) is not None:
            try:
                result = await producer.send(message)
            except SendFailedError as error:
                summary.failed += 1
                summary.lost_answers += error.lost_answers
                summary.last_error = str(error)
                advance()
                continue
            advance()
            summary.acknowledged += 1
            summary.lost_answers += result.lost_answers
            now_s = time.monotonic()
            summary.longest_gap_ms = max(summary.longest_gap_ms, (now_s - last_ack_s) * 1000)
            last_ack_s = now_s

    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(lane())
    summary.seconds = time.monotonic() - began_s
    return summary


def _sentence(summary: Summary) -> str:
    per_s = summary.acknowledged / summary.seconds if summary.seconds else 0.0
    return (
        f"{summary.acknowledged} messages acknowledged in {summary.seconds:.2f} s "
        f"({per_s:.0f}/s), {summary.lost_answers} answers lost on the way, "
        f"longest gap {summary.longest_gap_ms:.0f} ms."
    )


async def _numbered(count: int, body: str | None) -> AsyncIterator[bytes]:
    for number in range(1, count + 1):
        yield (body if body is not None else f"message {number}").encode()


async def _lines() -> AsyncIterator[bytes]:
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        yield line.rstrip(b"\r\n")
