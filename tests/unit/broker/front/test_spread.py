"""Reads of a front that go to replicas, and those that the master has to answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gantry_broker.front.core.shares import Shares
from gantry_broker.front.spread import SpreadStore
from gantry_broker.remote.reader import Had
from gantry_broker.store.contract import GetResult, GetStatus, QueueRead, ReadLimits, Refusal
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.records import MessageRecord, decode_records
from support.remote_group import RemoteGroup

WANTED = ReadLimits(32, 1 << 20)
MASTERS, REPLICAS = b"at the master", b"at the replica"


class Replica:
    """A link to a replica that has something, or nothing."""

    def __init__(self, result: GetResult | None = None) -> None:
        self.is_open = True
        self.topics_version = 1_000
        self.result = result
        self.asked = 0

    def read(self, wanted: QueueRead, had: Had) -> None:
        self.asked += 1
        had(self.result)


def result(status: GetStatus, next_offset: int, end: int, body: bytes = b"") -> GetResult:
    return GetResult(status, next_offset, 0, end, body, int(bool(body)))


FOUND = result(GetStatus.FOUND, 1, 1, REPLICAS)


class World:
    """A master with one record in queue 0 of a topic, and one replica."""

    def __init__(self, directory: Path, readers: str = "3") -> None:
        self.group = RemoteGroup(directory)
        config = TopicConfig("orders", 2, 2, attributes={"gantry.readers": readers})
        self.group.create_topic(config, lambda _: None, if_absent=False)
        self.group.store.append([MessageRecord(topic="orders", body=MASTERS)], lambda _: None)
        self.replica = Replica(FOUND)
        self.shares = Shares()
        replicas: Any = {2: self.replica}
        self.store = SpreadStore(self.group.remote, replicas, self.shares)

    def read(self, queue_id: int = 0, offset: int = 0) -> bytes:
        told: list[GetResult | Refusal] = []
        self.store.read(QueueRead("orders", queue_id, offset, WANTED), told.append)
        (answer,) = told
        assert isinstance(answer, GetResult)
        if answer.body == REPLICAS or not answer.body:
            return answer.body
        return decode_records(answer.body)[0].body


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_reads_go_to_whom_least_was_read_from(world: World) -> None:
    assert [world.read() for _ in range(2)] == [REPLICAS, MASTERS]
    assert set(world.shares.read_bytes) == {0, 2}


@pytest.mark.parametrize(
    "has",
    [
        pytest.param(None, id="it leaves it to the master"),
        pytest.param(result(GetStatus.OFFSET_OVERFLOW_ONE, 0, 0), id="it has nothing yet"),
        pytest.param(result(GetStatus.OFFSET_TOO_SMALL, 9, 9), id="it would move the offset"),
        pytest.param(result(GetStatus.OFFSET_IN_TIER, 0, 9), id="it is in its tier"),
        pytest.param(result(GetStatus.NO_MATCHED_MESSAGE, 1, 1), id="it has looked at all it has"),
    ],
)
async def test_that_there_is_nothing_is_the_masters_to_say(
    world: World, has: GetResult | None
) -> None:
    world.replica.result = has
    assert world.read() == MASTERS
    assert world.replica.asked == 1
    assert set(world.shares.read_bytes) == {0}


async def test_what_a_replica_has_looked_at_in_vain_need_not_be_looked_at_again(
    world: World,
) -> None:
    world.replica.result = result(GetStatus.NO_MATCHED_MESSAGE, 800, 900)
    assert world.read() == b""


async def test_a_replica_that_is_shut_is_not_asked(world: World) -> None:
    world.replica.is_open = False
    assert world.read() == MASTERS
    assert world.replica.asked == 0


async def test_nor_one_that_may_have_a_former_topic(world: World) -> None:
    world.replica.topics_version = world.store.topics.version - 1
    assert world.read() == MASTERS
    assert world.replica.asked == 0
    world.replica.topics_version += 1
    assert world.read() == REPLICAS


@pytest.mark.parametrize("readers", ["1", "1;1=3"])
async def test_queues_without_readers_are_read_at_the_master(tmp_path: Path, readers: str) -> None:
    world = World(tmp_path, readers)
    assert world.read() == MASTERS
    assert world.replica.asked == 0


async def test_one_queue_of_a_topic_may_have_readers(tmp_path: Path) -> None:
    assert World(tmp_path, "1;1=3").read(queue_id=1) == REPLICAS
