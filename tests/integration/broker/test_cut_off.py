"""A master that is cut off from controllers and members, as its clients see it; real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import TOPIC, eventually, send_command
from support.cut_off import CutGroup
from support.patience import PATIENCE_S


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[CutGroup]:
    made = CutGroup(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def client_of(ip: str) -> RemotingClient:
    """A client like any other: it introduces itself first."""
    client = await RemotingClient().connect(f"{ip}:10911", PATIENCE_S)
    words = {"clientID": "c", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": []}
    await client.call(request(RequestCode.HEART_BEAT, {}, json.dumps(words).encode()), PATIENCE_S)
    return client


def commit(offset: int) -> RemotingCommand:
    ext = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


async def readiness(ip: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{ip}:10913/readyz") as answer,
    ):
        return answer.status, await answer.text()


async def test_a_master_that_hears_nobody_lets_its_clients_go(group: CutGroup) -> None:
    """They write to the next master; here nothing is taken, neither a send nor a commit."""
    ip, epoch = group.master_ip, group.controller.group.master_epoch
    client = await client_of(ip)
    assert (await client.call(send_command(b"before"), PATIENCE_S)).code == 0
    group.cut(ip)
    # It is sent before anybody knows, and answered when the master does: never as a result.
    answer = await client.call(send_command(b"amid"), PATIENCE_S)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    await eventually(lambda: client.closed, "its clients are let go")
    status, reason = await readiness(ip)
    assert status == 503
    assert "cut off" in reason

    again = await client_of_nobody(ip)
    refused = await asyncio.gather(
        again.call(send_command(b"after"), PATIENCE_S), again.call(commit(1), PATIENCE_S)
    )
    assert {one.code for one in refused} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    await eventually(lambda: again.closed, "and who comes all the same")

    await eventually(lambda: group.controller.group.master_epoch > epoch, "another master")
    next_client = await client_of(group.master_ip)
    assert (await next_client.call(send_command(b"elsewhere"), PATIENCE_S)).code == 0
    group.mend(ip)
    await group.settled()
    assert (await readiness(ip))[0] == 200
    for one in (client, again, next_client):
        one.close()


async def client_of_nobody(ip: str) -> RemotingClient:
    """One that cannot introduce itself."""
    return await RemotingClient().connect(f"{ip}:10911", PATIENCE_S)
