"""A million queues: how long they take to make, what they cost, and whether they slow sends down.

A queue counts as made when it holds a message, since a broker may know a topic's queues by their
number alone. The restart ends when a client has got an answer to a send and to a pull of a message
that was there before; what else the queues held is then read at random places. Sends to 10,000
queues chosen at random are then set against sends to one. Memory is the most that the broker had.
"""

from __future__ import annotations

import asyncio
import random
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_cli.client.topics import create_topic
from gantry_cli.progress import tally
from gantry_protocol.errors import GantryError, WireError

from gantry_lab.bench.broker import frames
from gantry_lab.bench.broker.load import Load
from gantry_lab.bench.broker.target import Ours
from gantry_lab.bench.broker.throughput import SENDERS, TOPIC, window
from gantry_lab.bench.broker.work import Pulls, Sends
from gantry_lab.bench.senders import body
from gantry_lab.bench.usage import peak_mb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gantry_cli.client.routes import Queue
    from gantry_cli.client.session import Session

    from gantry_lab.bench.broker.frames import Reply
    from gantry_lab.bench.figures import Runs
    from gantry_lab.bench.members import Members
    from gantry_lab.bench.suite import Plan

QUEUES_PER_TOPIC = 1000  # a topic has up to 1,024
LANES = 8  # topics that are made at once
CHOSEN = 10_000
READ_BACK = 64  # queues looked into after the restart
TOLD_EVERY = 1000
SMALL_BODY = b"x" * 16
FILL_PATIENCE_S = 1800.0
ROUTE_PATIENCE_S = 60.0
ASK_S = 0.1
SEED = 7


class Scatter:
    """One message for each of `places`, by whichever lane is free.

    Args:
        places: (topic number, queue id), in the order of sending.
        queue: any of those queues, for its address.
        lanes: how many.
        content: of every message.
        told: how many messages more were acknowledged, each thousand.
    """

    def __init__(
        self,
        places: Iterator[tuple[int, int]],
        queue: Queue,
        lanes: int,
        content: bytes,
        told: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.messages = 0
        self._told = told
        self._places = places
        self._frames = [frames.anywhere(lane, topic(0), queue, content) for lane in range(lanes)]

    def first(self, lane: int) -> bytearray | None:
        """The next place's message; None when there is none left."""
        place = next(self._places, None)
        if place is None:
            return None
        return self._frames[lane].to(topic(place[0]), place[1])

    def following(self, lane: int, _reply: Reply, _body: memoryview) -> bytearray | None:
        """See `first`."""
        self.messages += 1
        if self.messages % TOLD_EVERY == 0:
            self._told(TOLD_EVERY)
        return self.first(lane)

    def opaque(self, lane: int) -> int:
        """See `Work`."""
        return self._frames[lane].opaque


def topic(number: int) -> str:
    """The names are of one length."""
    return f"gantry-bench-{number:06d}"


async def measure(
    members: Members, client: Session, plan: Plan, count: int, say: Callable[[str], None]
) -> Runs:
    """The figures of each run of sends; the queues are made once.

    Raises:
        GantryError: queues were refused, not all were made in time, or one lost its message.
    """
    topics = -(-count // QUEUES_PER_TOPIC)
    chosen = random.Random(SEED).sample(range(count), min(CHOSEN, count))  # noqa: S311 - queues
    created_s = await _make(client, count, topics, say)
    peaks = [peak_mb(members.pid(members.master))]
    restart_s = await _restart(members, client, topics)
    await _read_back(client, chosen[:READ_BACK], topics)
    say(f"made in {created_s:.0f} s, {peaks[0]:.0f} MB, started again in {restart_s:.1f} s")
    target = Ours(members, client)
    queue = (await target.queues(TOPIC))[0]

    async def once() -> dict[str, float]:
        one = await _rate(target, plan, Sends(TOPIC, [queue], SENDERS), queue)
        work = Scatter(_forever(chosen, topics), queue, SENDERS, body(0))
        many = await _rate(target, plan, work, queue)
        return many | {"ratio": many["messages_per_s"] / one["messages_per_s"]}

    found = await plan.repeat(once)
    peaks.append(peak_mb(members.pid(members.master)))
    of_all = {"created_s": created_s, "restart_s": restart_s, "rss_mb": max(peaks)}
    return [run | of_all for run in found]


async def _make(client: Session, count: int, topics: int, say: Callable[[str], None]) -> float:
    """Make the topics, and send each queue its message; the seconds that took."""
    begun = perf_counter()
    await _create(client, topics)
    first = await _route(client, topic(topics - 1))
    everywhere = ((number % topics, number // topics) for number in range(count))
    told = tally(say, "queues made", count)
    await _send_each(Scatter(everywhere, first, SENDERS, SMALL_BODY, told), first, count)
    return perf_counter() - begun


async def _restart(members: Members, client: Session, topics: int) -> float:
    """Seconds from the start of the process until it has answered a send and a pull."""
    await members.stop()
    begun = perf_counter()
    await members.start()
    queue = await _route(client, topic(topics - 1))
    place = (topics - 1, queue.queue_id)
    await _send_each(Scatter(iter([place]), queue, 1, SMALL_BODY), queue, 1)
    await _read(topic(topics - 1), queue, 2)
    return perf_counter() - begun


async def _read_back(client: Session, numbers: Sequence[int], topics: int) -> None:
    """See that these queues still have what they were sent."""
    for number in numbers:
        name, queue_id = topic(number % topics), number // topics
        route = (await client.routes.fetch(name)).writable
        await _read(name, next(one for one in route if one.queue_id == queue_id), 1)


async def _read(name: str, queue: Queue, least: int) -> None:
    """Pull a queue from its start to its end."""
    work = Pulls(name, [queue], 1, once=True)
    load = Load(work, [queue.address], 1)
    try:
        await load.finish(ROUTE_PATIENCE_S, lambda: None)
    finally:
        load.close()
    if work.messages < least:
        raise GantryError(
            f"Queue {queue.queue_id} of {name} holds {work.messages} messages instead of {least}."
        )


def _forever(chosen: Sequence[int], topics: int) -> Iterator[tuple[int, int]]:
    while True:
        for number in chosen:
            yield number % topics, number // topics


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
    load = Load(work, [queue.address], min(SENDERS, count))
    try:
        await load.finish(FILL_PATIENCE_S, lambda: None)
    finally:
        load.close()
    if work.messages < count:
        raise GantryError(f"Only {work.messages} of {count} queues got their message.")


async def _rate(target: Ours, plan: Plan, work: Scatter | Sends, queue: Queue) -> dict[str, float]:
    load = Load(work, [queue.address], SENDERS)
    try:
        return await window(target, load, plan)
    finally:
        load.close()
