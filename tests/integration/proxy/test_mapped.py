"""A proxy before two broker groups between which the queues of a mapped topic move."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from support.grpc_client import GrpcClient, code
from support.loopback_controller import CLUSTER
from support.patience import PATIENCE_S
from support.proxies import served_proxy
from support.two_groups import FAR, NEAR, TwoGroups, answered

TOPIC, GROUP, QUEUES = "mapped", "billing", 2
CUSTOMERS = ("anna", "bert", "carl")
EACH = 40  # messages of each customer

pytestmark = pytest.mark.timeout(300)


async def move(cluster: TwoGroups, group: str) -> None:
    """Have all queues move to ``group``, or be made there, and wait until they are."""
    places = {str(number): group for number in range(QUEUES)}
    path = f"/v1/clusters/{CLUSTER}/queues/{TOPIC}"
    assert await cluster.admin("PUT", path, {"queues": QUEUES, "places": places}) == 200
    command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    async with asyncio.timeout(PATIENCE_S):
        while True:
            route = json.loads((await answered(cluster.name_server, command)).body)
            found = route.get("topicQueueMappingByBroker", {})
            if len(found.get(group, {}).get("currIdMap", {})) == QUEUES:
                return
            await asyncio.sleep(0.05)


async def send_all(client: GrpcClient, customer: str) -> None:
    for number in range(EACH):
        body = f"{customer}/{number}".encode()
        while code(await client.send(TOPIC, body, kind="FIFO", message_group=customer)) != "OK":
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)


async def take_all(client: GrpcClient, place: str, queue: int, came: list[str]) -> None:
    """Take what stands in one group of one queue, batch after batch."""
    while True:
        found, taken = await client.receive(TOPIC, GROUP, place, queue_id=queue, poll_ms=500)
        for message in taken:
            came.append(message.body.decode())
            handle = message.system_properties.receipt_handle
            assert await client.ack(TOPIC, GROUP, handle) == ["OK"]
        if found != "OK":
            await asyncio.sleep(0.05)


@asynccontextmanager
async def taking(client: GrpcClient, came: list[str]) -> AsyncIterator[None]:
    """Everything is taken meanwhile."""
    places = [(place, queue) for place in (NEAR, FAR) for queue in range(QUEUES)]
    tasks = [asyncio.create_task(take_all(client, *place, came)) for place in places]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends


async def test_message_groups_keep_their_order_while_their_queues_move(tmp_path: Path) -> None:
    async with TwoGroups(tmp_path) as cluster:
        await move(cluster, NEAR)
        setting = json.dumps({"groupName": GROUP, "consumeMessageOrderly": True}).encode()
        for address in cluster.masters.values():
            await answered(address, request(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC}))
            code_200 = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await answered(address, request(code_200, {}, setting))
        came: list[str] = []
        names = SimpleNamespace(name_servers=cluster.name_server)
        async with (
            served_proxy(names) as server,  # type: ignore[arg-type]  # all that it asks
            GrpcClient(f"127.0.0.1:{server.grpc_port}") as client,
            asyncio.timeout(PATIENCE_S * 4),
        ):
            senders = [asyncio.create_task(send_all(client, customer)) for customer in CUSTOMERS]
            async with taking(client, came):  # so the group is known where the queues are
                while {body.split("/")[0] for body in came} != set(CUSTOMERS):
                    await asyncio.sleep(0.1)
            for group in (FAR, NEAR):
                await asyncio.sleep(1.0)
                await move(cluster, group)
            async with taking(client, came):
                await move(cluster, FAR)
                await asyncio.gather(*senders)
                while len(set(came)) < len(CUSTOMERS) * EACH:
                    await asyncio.sleep(0.1)
    for customer in CUSTOMERS:
        first = dict.fromkeys(came)  # a taker may have ended before its acknowledgement
        own = [int(body.split("/")[1]) for body in first if body.startswith(customer)]
        assert own == list(range(EACH)), customer
