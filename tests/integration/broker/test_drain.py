"""Groups come and go under load, in real processes: one is drained and ended, one is added."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
import pytest
from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.ledger import Ledger
from gantry_cli.client.producer import Producer
from gantry_cli.client.session import session
from gantry_protocol.admin import GroupView, QueueMapsView
from support.loopback_controller import CLUSTER
from support.patience import STARTS_WITHIN_S
from support.two_groups import FAR, NEAR, TwoGroups

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gantry_cli.client.session import Session

pytestmark = pytest.mark.timeout(600)

TOPIC, MAPPED = "orders", "mapped"
ADDED = "g-added"
GRACE_S = 1.0


class Clients:
    """A producer and a consumer of all queues that there are when it begins."""

    def __init__(self, client: Session) -> None:
        self.ledger = Ledger()
        self.sent: dict[str, int] = {}  # by group: acknowledged
        self._client = client
        self._producer = Producer(client.routes, client.calls)
        self._consumers: list[asyncio.Task[None]] = []
        self._sending = asyncio.create_task(self._send())
        self.consume()

    def consume(self) -> None:
        async def received(item: ReceivedRecord) -> None:
            self.ledger.consume(item.key, item.position)
            consumer.done(item.position)

        client = self._client
        consumer = Consumer(
            client.routes, client.calls, TOPIC, received, group="readers", start=Start.COMMITTED
        )
        self._consumers.append(asyncio.create_task(consumer.run()))

    async def consume_anew(self) -> None:
        """As a client that reads its routes again."""
        await self._end(self._consumers.pop())
        await self._client.routes.fetch(TOPIC)
        self.consume()

    async def stop_sending(self) -> None:
        await self._end(self._sending)

    async def close(self) -> None:
        for task in (self._sending, *self._consumers):
            await self._end(task)

    async def _send(self) -> None:
        while True:
            message = self._producer.message(TOPIC, b"x")
            self.ledger.sent(message.key)
            result = await asyncio.shield(self._producer.send(message))
            self.ledger.acknowledge(message.key, result.position)
            name = result.position.broker_name
            self.sent[name] = self.sent.get(name, 0) + 1
            await asyncio.sleep(0.01)

    @staticmethod
    async def _end(task: asyncio.Task[None]) -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(holds: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(STARTS_WITHIN_S):
            while not holds():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"not so: {what}")


async def view(world: TwoGroups, name: str) -> GroupView:
    return GroupView.model_validate_json(await world.read(f"/v1/groups/{CLUSTER}/{name}"))


async def places(world: TwoGroups) -> dict[str, int]:
    """How many queues of the mapped topic each group has."""
    maps = QueueMapsView.model_validate_json(await world.read(f"/v1/clusters/{CLUSTER}/queues"))
    return maps.topics[0].by_group


async def test_one_group_is_drained_and_ends_and_another_is_added(tmp_path: Path) -> None:
    async with TwoGroups(tmp_path, GANTRY_DRAIN_GRACE_S=str(GRACE_S)) as world:
        await world.create_topic(TOPIC, {NEAR: 2, FAR: 2})
        async with session([world.name_server]) as client:
            clients = Clients(client)
            try:
                await until(lambda: len(clients.sent) == 2, "both groups take messages")
                await drained(world, clients)
                await added(world, clients, client)
            finally:
                await clients.close()


async def drained(world: TwoGroups, clients: Clients) -> None:
    """Nothing is left unread when its master says so, and nothing comes any more."""
    assert await world.admin("PUT", f"/v1/groups/{CLUSTER}/{FAR}/drain", {}) == 200
    async with asyncio.timeout(STARTS_WITHIN_S):
        while True:
            with suppress(aiohttp.ClientError):
                (member,) = (await view(world, FAR)).members
                if member.drain is not None and member.drain.done:
                    break
            await asyncio.sleep(0.1)
    before = dict(clients.sent)
    await until(lambda: clients.sent[NEAR] > before[NEAR] + 50, "sends go on")
    assert clients.sent[FAR] == before[FAR]
    retired = await world.admin("POST", f"/v1/groups/{CLUSTER}/{FAR}/retire", {"uid": FAR})
    assert retired == 200
    world.end(FAR)
    before = dict(clients.sent)
    await until(lambda: clients.sent[NEAR] > before[NEAR] + 50, "sends go on without it")


async def added(world: TwoGroups, clients: Clients, client: Session) -> None:
    """It has the topic without a word about it, gets messages, and each is read.

    So has it its share of the queues of a mapped topic.
    """
    mapped = f"/v1/clusters/{CLUSTER}/queues/{MAPPED}"
    assert await world.admin("PUT", mapped, {"queues": 6}) == 200
    await world.start(ADDED)
    async with asyncio.timeout(STARTS_WITHIN_S):
        while ADDED not in {
            item.broker_name for item in (await client.routes.fetch(TOPIC)).writable
        }:
            await asyncio.sleep(0.1)
    await until(lambda: clients.sent.get(ADDED, 0) > 20, "the new group takes messages")
    async with asyncio.timeout(STARTS_WITHIN_S):
        while await places(world) != {NEAR: 3, ADDED: 3}:
            await asyncio.sleep(0.1)
    seen = await view(world, ADDED)
    assert (seen.queues, seen.queues_wished) == (3, 3)
    await clients.consume_anew()
    await clients.stop_sending()
    await until(lambda: clients.ledger.outstanding() == 0, "all that was acknowledged is read")
    verdict = clients.ledger.verdict()
    assert (verdict.lost, verdict.misplaced) == (0, 0), verdict
