"""One master with topic TopicTest (4 queues), and a client connection to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.core.transactions import Policy
from gantry_protocol.bodies import TopicConfig
from support.broker_client import Client
from support.group_view import FakeGroup

PULL: dict[str, object] = {
    "consumerGroup": "g",
    "topic": "TopicTest",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,  # it brings its subscription
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
    "expressionType": "TAG",
}
START_S = 1_700_000_000.0
WAITING_PULL: dict[str, object] = {**PULL, "sysFlag": 6, "suspendTimeoutMillis": 15_000}


class Jumping:
    """A wall clock that goes with the loop's and can be set."""

    ahead_s = 0.0

    def __call__(self) -> float:
        return START_S + self.ahead_s + asyncio.get_running_loop().time()


@pytest.fixture
def group(tmp_path: Path):
    made = FakeGroup(tmp_path)
    made.add_topic(TopicConfig(topic_name="TopicTest", read_queue_nums=4, write_queue_nums=4))
    yield made
    made.messages.log.close()


@pytest.fixture
async def processor(group: FakeGroup):
    made = ClientProcessor(group, clock=lambda: START_S)
    yield made
    made.close()


@pytest.fixture
async def client(processor: ClientProcessor) -> Client:
    return Client(processor)


@pytest.fixture
def connect(processor: ClientProcessor):
    """More clients."""
    return lambda language="JAVA": Client(processor, language)


@pytest.fixture
async def serve(group: FakeGroup):
    """Begins a mastership on what the log holds; time passes with the loop's."""
    made: list[ClientProcessor] = []

    def begin(clock: Callable[[], float] | None = None, **policy: int) -> ClientProcessor:
        while made:
            made.pop().close()
        made.append(ClientProcessor(group, clock or Jumping(), policy=Policy(**policy)))
        return made[-1]

    yield begin
    for processor in made:
        processor.close()


class FullDisk:
    """A disk that refuses messages as soon as ``said`` holds anything."""

    def __init__(self, said: list[bool]) -> None:
        self._said = said

    @property
    def refusing(self) -> bool:
        return bool(self._said)
