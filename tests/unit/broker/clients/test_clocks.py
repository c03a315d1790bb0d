"""A wall clock that is set by an hour: who is there, who holds a lock and who waits stays so."""

from __future__ import annotations

import inspect
import time

import pytest
from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.locks import QueueLocks
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.throttle import Throttle
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.client import ConsumerData, HeartbeatData
from gantry_protocol.codes import RequestCode
from gantry_protocol.settings.quotas import Quota, Quotas
from support.group_view import FakeGroup

from .conftest import WAITING_PULL, Client

SEND = {"a": "pg", "b": "TopicTest", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 0, "h": 0}


@pytest.mark.parametrize("jump_s", [3600, -3600], ids=["forward", "back"])
async def test_a_wall_clock_that_jumps_ends_nothing(group: FakeGroup, jump_s: int) -> None:
    wall_s = [1_700_000_000.0]
    throttle = Throttle(Quotas(Quota(sends_per_second=1)))
    client = Client(ClientProcessor(group, lambda: wall_s[0], throttle=throttle))
    beat = HeartbeatData(client_id="c1", consumer_data_set=[ConsumerData("g")])
    assert client.call(RequestCode.HEART_BEAT, None, encode_body(beat)).code == 0
    assert client.ask(RequestCode.PULL_MESSAGE, WAITING_PULL)[1] is None
    for _ in range(2):
        assert client.call(RequestCode.SEND_MESSAGE_V2, SEND, b"x").code == 0

    wall_s[0] += jump_s
    client.processor._sessions.expire()
    members = client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert b"c1" in members.body
    assert client.processor.parked_pulls == 1
    assert client.ask(RequestCode.SEND_MESSAGE_V2, SEND, b"x")[1] is None, "held, not refused"
    client.processor.close()


@pytest.mark.parametrize("timed", [QueueLocks, Sessions], ids=lambda one: one.__name__)
def test_what_expires_does_so_by_the_steady_clock(timed: type) -> None:
    assert inspect.signature(timed).parameters["clock"].default is time.monotonic
