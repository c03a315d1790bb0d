"""Limits at the door of a group: a full disk, and tenants beyond their quota."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.throttle import Throttle
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.settings.quotas import Quota, Quotas
from support.group_view import FakeGroup
from support.patience import PATIENCE_S

from .conftest import PULL, Client, FullDisk

SEND = {"a": "pg", "b": "TopicTest", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 0, "h": 0}
PULL_ONE = {**PULL, "queueId": 1}


@pytest.fixture
async def limited(group: FakeGroup):
    """A client of a group with a disk that `full` says is full, and with quotas."""
    full: list[bool] = []
    quotas = Quotas(Quota(sends_per_second=2, read_bytes_per_second=100))
    made = ClientProcessor(group, throttle=Throttle(quotas), disk=FullDisk(full))
    yield Client(made), full
    made.close()


async def test_a_full_disk_refuses_messages_and_serves_everything_else(limited) -> None:
    client, full = limited
    assert client.call(RequestCode.SEND_MESSAGE_V2, SEND, b"kept").code == 0
    full.append(True)
    refused = client.call(RequestCode.SEND_MESSAGE_V2, SEND, b"more")
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "nearly full" in refused.remark
    pulled = client.call(RequestCode.PULL_MESSAGE, PULL_ONE)
    assert (pulled.code, b"kept" in pulled.body) == (0, True)
    commit = {"consumerGroup": "g", "topic": "TopicTest", "queueId": 1, "commitOffset": 1}
    assert (await client.answer(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
    full.clear()
    assert client.call(RequestCode.SEND_MESSAGE_V2, SEND, b"again").code == 0


async def test_what_pulls_return_is_charged_to_their_tenant(limited, group: FakeGroup) -> None:
    client, _ = limited
    assert client.call(RequestCode.SEND_MESSAGE_V2, SEND, b"." * 1000).code == 0
    assert client.call(RequestCode.PULL_MESSAGE, PULL_ONE).code == 0
    _, answer = client.ask(RequestCode.PULL_MESSAGE, PULL_ONE)
    assert answer is None, "the next one waits"
    assert len(client.processor.throttle) == 1
    other = {**PULL_ONE, "topic": "elsewhere%TopicTest"}
    assert client.call(RequestCode.PULL_MESSAGE, other).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_held_send_is_stored_and_answered_in_the_end(limited, group: FakeGroup) -> None:
    client, _ = limited
    for _ in range(3):
        assert client.call(RequestCode.SEND_MESSAGE_V2, SEND, b"x").code == 0
    asked, answer = client.ask(RequestCode.SEND_MESSAGE_V2, SEND, b"later")
    assert answer is None
    assert len(group.appended) == 3
    async with asyncio.timeout(PATIENCE_S):
        while not client.conn.replies or client.conn.replies[-1][0] is not asked:
            await asyncio.sleep(0.01)
    assert client.conn.answer_to(asked).code == 0
