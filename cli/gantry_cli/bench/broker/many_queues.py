"""A million queues: how long they take to make, what they cost, and whether they slow sends down.

A queue counts as made when it holds a message, since a broker may know a topic's queues by their
number alone. Sends to 10,000 queues chosen at random are then set against sends to one.
"""

from __future__ import annotations

import asyncio
import random
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError, WireError

from gantry_cli.bench.broker import frames
from gantry_cli.bench.broker.load import Load
from gantry_cli.bench.broker.target import Ours
from gantry_cli.bench.broker.throughput import SENDERS, TOPIC, window
from gantry_cli.bench.broker.work import Sends
from gantry_cli.bench.controller.target import rss_mb
from gantry_cli.bench.senders import body
from gantry_cli.client.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gantry_cli.bench.broker.frames import Reply
    from gantry_cli.bench.broker.throughput import Plan
    from gantry_cli.bench.members import Members
    from gantry_cli.client.routes import Queue
    from gantry_cli.client.session import Session

QUEUES_PER_TOPIC = 1000  # a topic has up to 1,024
LANES = 8  # topics that are made at once
CHOSEN = 10_000
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
    """

    def __init__(
        self, places: Iterator[tuple[int, int]], queue: Queue, lanes: int, content: bytes
    ) -> None:
        self.messages = 0
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
        return self.first(lane)

    def opaque(self, lane: int) -> int:
        """See `Work`."""
        return self._frames[lane].opaque


def topic(number: int) -> str:
    """The names are of one length."""
    return f"gantry-bench-{number:06d}"


async def measure(
    members: Members, client: Session, plan: Plan, count: int, say: Callable[[str], None]
) -> list[dict[str, float]]:
    """The figures of each run of sends; the queues are made once.

    Raises:
        GantryError: queues were refused, or not all of them were made in time.
    """
    begun = perf_counter()
    topics = -(-count // QUEUES_PER_TOPIC)
    await _create(client, topics)
    first = await _route(client, topic(topics - 1))
    say(f"{topics} topics made in {perf_counter() - begun:.0f} s")
    everywhere = ((number % topics, number // topics) for number in range(count))
    await _send_each(Scatter(everywhere, first, SENDERS, SMALL_BODY), first, count)
    once = {"created_s": perf_counter() - begun, "rss_mb": rss_mb(members.pid(members.master))}
    say(f"{count} queues made in {once['created_s']:.0f} s, {once['rss_mb']:.0f} MB")
    begun = perf_counter()
    await members.stop()
    stopped = perf_counter()
    await members.start()
    once["restart_s"] = perf_counter() - stopped
    say(f"ended in {stopped - begun:.0f} s, started in {once['restart_s']:.0f} s")
    target = Ours(members, client)
    queue = (await target.queues(TOPIC))[0]
    chosen = random.Random(SEED).sample(range(count), min(CHOSEN, count))  # noqa: S311 - queues
    found = []
    for _ in range(plan.runs):
        one = await _rate(target, plan, Sends(TOPIC, [queue], SENDERS), queue)
        work = Scatter(_forever(chosen, topics), queue, SENDERS, body(0))
        many = await _rate(target, plan, work, queue)
        found.append({**once, **many, "ratio": many["messages_per_s"] / one["messages_per_s"]})
        plan.advance()
    return found


def _forever(chosen: Sequence[int], topics: int) -> Iterator[tuple[int, int]]:
    while True:
        for number in chosen:
            yield number % topics, number // topics


async def _create(client: Session, count: int) -> None:
    waiting = iter(range(count))

    async def lane() -> None:
        for number in waiting:
            await create_topic(client.routes, topic(number), queues=QUEUES_PER_TOPIC, cluster=None)

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
    load = Load(work, [queue.address], SENDERS)
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
