"""Fronts at three real controllers: routes lead to them and back, and they hear of a new master."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
from gantry_protocol.admin import FrontsDeclaration, FrontsView
from gantry_protocol.bodies.fronts import FrontGroups
from support.controller_quorum import CLUSTER, NAME, PATIENCE_S, Quorum, WireBroker

GET_FRONT_GROUPS = 31010
OWN = "10.96.0.7:10911"


async def routes(quorum: Quorum) -> set[str]:
    """The address of broker 0 in the route of a topic, as a client asks each controller for it."""
    found = set()
    for node in quorum.running.values():
        async with quorum.client(node) as caller:
            answer = await caller.call(105, {"topic": "TBW102"})
        assert answer.code == 0, answer
        (broker,) = json.loads(answer.body)["brokerDatas"]
        assert broker["brokerName"] == NAME
        found.add(broker["brokerAddrs"]["0"])
    return found


async def ask(quorum: Quorum, method: str, name: str = "", body: object = None) -> Any:
    path = f"/v1/clusters/{CLUSTER}/fronts" + (f"/{name}" if name else "")
    async with (
        quorum.http(await quorum.led()) as session,
        session.request(method, path, json=body) as response,
    ):
        assert response.status in (200, 204), await response.text()
        text = await response.text()
        return FrontsView.model_validate_json(text) if text else None


async def elected(quorum: Quorum) -> int:
    async with asyncio.timeout(PATIENCE_S):
        while (view := await quorum.view())["masterBrokerId"] is None:
            await asyncio.sleep(0.02)
    return int(view["masterBrokerId"])


async def groups(quorum: Quorum, number: int, digest: str = "", wait_ms: int = 0) -> FrontGroups:
    async with quorum.client(quorum.running[number]) as caller:
        ext = {"clusterName": CLUSTER, "digest": digest, "waitMs": str(wait_ms)}
        answer = await caller.call(GET_FRONT_GROUPS, ext)
    assert answer.code == 0, answer
    return msgspec.json.decode(answer.body, type=FrontGroups)


async def test_routes_lead_to_the_fronts_and_back(quorum: Quorum) -> None:
    await quorum.declare(1, routeAddress=OWN)
    broker = WireBroker(quorum)
    try:
        await broker.start()
        await elected(quorum)
        assert await routes(quorum) == {OWN}
        wish = FrontsDeclaration(address="10.96.0.9", first_port=10950, ports=4)
        view = await ask(quorum, "PUT", "f", json.loads(wish.to_json()))
        assert [(group.group, group.index, group.served_by_fronts) for group in view.groups] == [
            (NAME, 0, True)
        ]
        assert await routes(quorum) == {"10.96.0.9:10950"}
        # Who restarts from a snapshot leads clients to the same port.
        restarted = quorum.followers()[0]
        await restarted.node.snapshots.take()
        await quorum.stop(restarted.node.node_id)
        await quorum.start(restarted.node.node_id)
        await quorum.led()
        assert await routes(quorum) == {"10.96.0.9:10950"}
        await ask(quorum, "DELETE", "f")
        assert await routes(quorum) == {OWN}
    finally:
        await broker.kill()


async def test_a_new_master_is_told_to_fronts_that_wait_at_any_controller(quorum: Quorum) -> None:
    await quorum.declare(2)
    brokers = [WireBroker(quorum), WireBroker(quorum)]
    try:
        for broker in brokers:
            await broker.start()
        master_id = await elected(quorum)
        brokers.sort(key=lambda broker: broker.broker_id != master_id)  # the master first
        assert (await brokers[0].alter([1, 2])).code == 0
        first = {number: await groups(quorum, number) for number in quorum.running}
        (held,) = {known.digest for known in first.values()}
        waiting = {
            number: asyncio.create_task(groups(quorum, number, held, 5000))
            for number in quorum.running
        }
        fronts = [node.polls["front_requests"] for node in quorum.running.values()]
        while not all(node.waiting for node in fronts):
            await asyncio.sleep(0.005)
        await brokers[0].kill()
        async with asyncio.timeout(PATIENCE_S):
            told = {number: await task for number, task in waiting.items()}
        assert len({known.digest for known in told.values()}) == 1
        (group,) = told[1].groups
        (before,) = first[1].groups
        assert group.epoch == before.epoch + 1
        assert group.master_address == brokers[1].address != before.master_address
    finally:
        for broker in brokers:
            await broker.kill()
