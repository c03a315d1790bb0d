"""A million queues: how long they take to make, what they cost, and whether they slow sends down.

A queue counts as made when it holds a message, since a broker may know a topic's queues by their
number alone. The restart ends when a client has got an answer to a send and to a pull of a message
that was there before; what else the queues held is then read at random places. Sends to 10,000
queues chosen at random are then set against sends to one. Memory is the most that the broker had.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import closing
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_cli.client.topics import create_topic
from gantry_cli.progress import tally
from gantry_protocol.errors import GantryError, WireError

from gantry_lab.bench.broker.target import ProcessGroup
from gantry_lab.bench.broker.throughput import FILL_PATIENCE_S, SENDERS, TOPIC, load_of
from gantry_lab.bench.broker.work import Pulls, Scatter, Sends, Work
from gantry_lab.bench.senders import body
from gantry_lab.bench.usage import peak_mb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_cli.client.routes import Queue
    from gantry_cli.client.session import Session

    from gantry_lab.bench.members import Members
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

QUEUES_PER_TOPIC = 1000  # a topic has up to 1,024
LANES = 8  # topics that are made at once
CHOSEN = 10_000
READ_BACK = 64  # queues looked into after the restart
SMALL_BODY = b"x" * 16
ROUTE_PATIENCE_S = 60.0
ASK_S = 0.1
SEED = 7


def topic(number: int) -> str:
    """The names are of one length."""
    return f"gantry-bench-{number:06d}"


async def measure(stage: BenchStage) -> Runs:
    """The figures of each run of sends; the queues are made once.

    Raises:
        GantryError: queues were refused, not all were made in time, or one lost its message.
    """
    count, say = stage.wish.queues, stage.say
    topics = -(-count // QUEUES_PER_TOPIC)
    chosen = random.Random(SEED).sample(range(count), min(CHOSEN, count))  # noqa: S311 - queues
    async with stage.group(1) as (members, client):
        created_s = await _make(client, count, topics, say)
        peaks = [peak_mb(members.pid(members.master))]
        restart_s = await _restart(members, client, topics)
        await _read_back(client, chosen[:READ_BACK], topics)
        say(f"made in {created_s:.0f} s, {peaks[0]:.0f} MB, started again in {restart_s:.1f} s")
        target = ProcessGroup(members, client)
        queue = (await target.queues(TOPIC))[0]

        async def rate(work: Work) -> dict[str, float]:
            with closing(load_of(work, [queue], SENDERS)) as load:
                return await stage.window(target, load)

        async def once() -> dict[str, float]:
            one = await rate(Sends(TOPIC, [queue], SENDERS))
            places = (_place(number, topics) for number in itertools.cycle(chosen))
            many = await rate(Scatter(places, topic(0), queue, SENDERS, body(0)))
            return many | {"ratio": many["messages_per_s"] / one["messages_per_s"]}

        found = await stage.repeat(once)
        peaks.append(peak_mb(members.pid(members.master)))
    of_all = {"created_s": created_s, "restart_s": restart_s, "rss_mb": max(peaks)}
    return [run | of_all for run in found]


def _place(number: int, topics: int) -> tuple[str, int]:
    return topic(number % topics), number // topics


async def _make(client: Session, count: int, topics: int, say: Callable[[str], None]) -> float:
    """Make the topics, and send each queue its message; the seconds that took."""
    begun = perf_counter()
    await _create(client, topics)
    first = await _route(client, topic(topics - 1))
    places = (_place(number, topics) for number in range(count))
    told = tally(say, "queues made", count)
    await _send_each(Scatter(places, topic(0), first, SENDERS, SMALL_BODY, told), first, count)
    return perf_counter() - begun


async def _restart(members: Members, client: Session, topics: int) -> float:
    """Seconds from the start of the process until it has answered a send and a pull."""
    await members.stop()
    begun = perf_counter()
    await members.start()
    name = topic(topics - 1)
    queue = await _route(client, name)
    await _send_each(Scatter(iter([(name, queue.queue_id)]), name, queue, 1, SMALL_BODY), queue, 1)
    await _read(name, queue, 2)
    return perf_counter() - begun


async def _read_back(client: Session, numbers: Sequence[int], topics: int) -> None:
    """See that these queues still have what they were sent."""
    for name, queue_id in (_place(number, topics) for number in numbers):
        route = (await client.routes.fetch(name)).writable
        await _read(name, next(item for item in route if item.queue_id == queue_id), 1)


async def _read(name: str, queue: Queue, least: int) -> None:
    """Pull a queue from its start to its end."""
    work = Pulls(name, [queue], 1, once=True)
    with closing(load_of(work, [queue], 1)) as load:
        await load.finish(ROUTE_PATIENCE_S)
    if work.messages < least:
        raise GantryError(
            f"Queue {queue.queue_id} of {name} holds {work.messages} messages instead of {least}."
        )


async def _create(client: Session, count: int) -> None:
    waiting = iter(range(count))

    async def lane() -> None:
        for number in waiting:
            await create_topic(client, topic(number), queues=QUEUES_PER_TOPIC, cluster=None)

    async with asyncio.TaskGroup() as lanes:
        for _ in range(LANES):
            lanes.create_task(lane())


async def _route(client: Session, name: str) -> Queue:
    """A queue of the topic made last, once its route is there."""
    deadline = perf_counter() + ROUTE_PATIENCE_S
    while True:
        try:
            return (await client.routes.fetch(name)).writable[0]
        except (GantryError, WireError, IndexError) as error:
            if perf_counter() > deadline:
                raise GantryError(f"The topic {name} has no route: {error}") from error
        await asyncio.sleep(ASK_S)


async def _send_each(work: Scatter, queue: Queue, count: int) -> None:
    with closing(load_of(work, [queue], min(SENDERS, count))) as load:
        await load.finish(FILL_PATIENCE_S)
    if work.messages < count:
        raise GantryError(f"Only {work.messages} of {count} queues got their message.")
