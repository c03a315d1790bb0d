"""Pulls that a replica answers, those that it leaves to the master, and whom it sends there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gantry_broker.clients.core.readers import (
    CONTROLLERS_SILENT_MS,
    LEASE_S,
    MASTER_SILENT_MS,
)
from gantry_broker.member import replica_reads as module
from gantry_broker.member.replica_reads import GRACE_S, ReplicaReads
from gantry_broker.store.contract import GetResult, QueueRead, ReadLimits, Refusal
from gantry_broker.store.tables.offsets import rows_record
from gantry_broker.store.tables.resets import put_reset
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.frame import encode
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.glance import FrameCutter
from gantry_protocol.settings.readers import READERS
from support import stores
from support.group_view import FakeConnection, FakeGroup

ME = 2
PULL = {
    "consumerGroup": "g",
    "topic": "TopicTest",
    "queueId": "1",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}
WAITS = "6"


class EntrustedConnection(FakeConnection):
    def entrust(self, command: RemotingCommand) -> None:
        """It is answered here."""


class Replica:
    """A replica with six messages, in touch with everybody, and one client of it."""

    def __init__(self, directory: Path) -> None:
        self.now_s = 1000.0
        self.silent_ms = self.controllers_silent_ms = 0
        self.group = FakeGroup(directory)
        self.set_readers("3")
        for number in range(6):
            stores.put(self.group.messages, stores.message("TopicTest", 1, b"%d" % number))
        stores.confirm(self.group.messages)
        self.following = SimpleNamespace(in_sync=True, silent_ms=lambda _: self.silent_ms)
        self.core = SimpleNamespace(
            me=ME,
            streaming=True,
            following=self.following,
            controllers_silent_ms=lambda _: self.controllers_silent_ms,
        )
        member: Any = SimpleNamespace(
            core=self.core,
            serving=False,
            writes=SimpleNamespace(leaving=False),
            known_consumers=self.group.consumers,
        )
        self.member = member
        self.reads = ReplicaReads(member, self.group.local)
        self.reads.look()
        self.pipe: Any = SimpleNamespace(
            connection=EntrustedConnection(), heartbeat=None, epoch=1, say=lambda _: None
        )
        self._opaque = 0

    def set_readers(self, readers: str, **more: str) -> None:
        attributes = {READERS: readers, **more}
        self.group.add_topic(TopicConfig("TopicTest", 4, 4, attributes=attributes))

    def pull(self, offset: int, **more: str) -> bool:
        """Whether the replica answers a pull of its client."""
        self._opaque += 1
        asked = request(RequestCode.PULL_MESSAGE, {**PULL, "queueOffset": str(offset), **more})
        asked.opaque = self._opaque
        (glimpse,) = FrameCutter().feed(encode(asked))
        return self.reads.take(self.pipe, glimpse)

    def answer(self) -> tuple[int, int, int]:
        """The last answer: its code, where to go on, and whom to ask."""
        _, answer = self.pipe.connection.replies[-1]
        ext = answer.ext
        return answer.code, int(ext["nextBeginOffset"]), int(ext["suggestWhichBrokerId"])

    def bodies(self) -> list[bytes]:
        return [record.body for record in decode_records(self.pipe.connection.replies[-1][1].body)]


@pytest.fixture
async def replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replica]:
    loop = asyncio.get_running_loop()
    made: Replica | None = None
    real = loop.time()
    clock = SimpleNamespace(
        get_running_loop=lambda: SimpleNamespace(time=lambda: 0.0 if made is None else made.now_s)
    )
    monkeypatch.setattr(module, "asyncio", clock)
    made = Replica(tmp_path)
    made.now_s = real
    made.reads.look()
    yield made
    made.reads.close()
    made.group.messages.log.close()


async def test_a_replica_reads_and_its_client_stays(replica: Replica) -> None:
    assert replica.pull(2)
    assert replica.bodies() == [b"2", b"3", b"4", b"5"]
    assert replica.answer() == (ResponseCode.SUCCESS, 6, ME)
    assert (replica.reads.served, replica.reads.read_bytes > 0) == (1, True)


async def test_a_replica_applies_filters_in_sql(replica: Replica) -> None:
    for number in (6, 7):
        record = stores.message("TopicTest", 1, b"%d" % number, properties=f"v\x01{number}\x02")
        stores.put(replica.group.messages, record)
    stores.confirm(replica.group.messages)
    assert replica.pull(0, expressionType="SQL92", subscription="v <> 6")
    assert replica.bodies() == [b"7"]
    assert replica.answer() == (ResponseCode.SUCCESS, 8, ME)
    assert replica.pull(0, expressionType="SQL92", subscription="v = 8")
    assert replica.answer() == (ResponseCode.PULL_RETRY_IMMEDIATELY, 8, ME)


@pytest.mark.parametrize(
    ("offset", "more"),
    [
        pytest.param(7, {"sysFlag": WAITS}, id="beyond what it has"),
        pytest.param(-1, {"sysFlag": WAITS}, id="below"),
        pytest.param(6, {}, id="at its end, without waiting"),
        pytest.param(0, {"topic": "nowhere"}, id="a topic that it does not know"),
        pytest.param(0, {"queueId": "9"}, id="a queue that is not there"),
        pytest.param(0, {"expressionType": "SQL92"}, id="no filter, as the master says"),
    ],
)
async def test_the_rest_is_the_masters(replica: Replica, offset: int, more: dict[str, str]) -> None:
    assert not replica.pull(offset, **more)
    assert (replica.pipe.connection.replies, replica.reads.parked) == ([], 0)


async def test_a_replica_out_of_touch_answers_nothing_new(replica: Replica) -> None:
    replica.silent_ms = MASTER_SILENT_MS + 1
    assert not replica.pull(0)
    replica.silent_ms, replica.controllers_silent_ms = 0, CONTROLLERS_SILENT_MS + 1
    assert not replica.pull(0)
    replica.controllers_silent_ms = 0
    replica.following.in_sync = False
    assert not replica.pull(0)
    replica.following.in_sync = True
    replica.core.streaming = False
    assert not replica.pull(0)
    replica.core.streaming = True
    assert replica.pull(0)


async def test_who_waits_is_sent_to_the_master_once_the_replica_is_out_of_touch(
    replica: Replica,
) -> None:
    assert replica.pull(6, sysFlag=WAITS)
    replica.core.streaming = False
    replica.now_s += GRACE_S
    replica.reads.look()
    assert replica.reads.parked == 1, "a failover is no reason to go"
    replica.now_s += 0.1
    replica.reads.look()
    assert replica.answer() == (ResponseCode.PULL_RETRY_IMMEDIATELY, 6, 0)
    assert (replica.reads.parked, replica.reads.sent_back, replica.reads.is_open) == (0, 1, False)
    replica.core.streaming = True
    replica.reads.look()
    assert replica.pull(0)


async def test_a_replica_that_leaves_sends_everybody_away_at_once(replica: Replica) -> None:
    assert replica.pull(6, sysFlag=WAITS)
    replica.member.writes.leaving = True
    replica.reads.look()
    assert replica.answer() == (ResponseCode.PULL_RETRY_IMMEDIATELY, 6, 0)
    assert not replica.pull(0)


async def test_what_a_replica_cannot_read_is_the_masters_to_judge(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No offset is moved by it, and no error of its own ends a consumer."""
    refused = Refusal(ResponseCode.SYSTEM_ERROR, "its file is damaged")
    monkeypatch.setattr(replica.group.local, "read", lambda _, done: done(refused))
    assert replica.pull(3)
    assert replica.answer() == (ResponseCode.PULL_RETRY_IMMEDIATELY, 3, 0)
    assert not replica.pull(3), "the next pull goes to the master, wherever the client asks"


async def test_a_consumer_asks_the_master_once_in_a_while(replica: Replica) -> None:
    assert replica.pull(0)
    replica.now_s += LEASE_S
    assert not replica.pull(0)
    assert replica.pull(0)


async def test_a_reset_sends_a_consumer_to_the_master(replica: Replica) -> None:
    assert replica.pull(6, sysFlag=WAITS)
    committed = replica.group.store.committed
    put_reset(committed, "g", "TopicTest", 1, 0, due=True)
    rows = [(name, "TopicTest", 1, 0) for name in ("g", "<reset>g")]
    replica.group.append([rows_record(rows)], lambda _: None)
    assert replica.answer() == (ResponseCode.PULL_RETRY_IMMEDIATELY, 6, 0)
    assert not replica.pull(5)


async def test_queues_of_mapped_topics_are_read_at_masters(replica: Replica) -> None:
    replica.set_readers("3", **{MAPPED: "1"})
    assert not replica.pull(0)


async def test_readers_of_one_queue_only(replica: Replica) -> None:
    replica.set_readers("1;1=2")
    replica.reads.look()
    assert replica.pull(0)
    assert not replica.pull(0, queueId="0", sysFlag=WAITS)
    replica.set_readers("1")
    replica.reads.look()
    assert not replica.reads.is_open


def for_front(replica: Replica, offset: int, queue_id: int = 1) -> list[bytes] | None:
    """What a front gets that reads there; None where it is to ask the master."""
    told: list[GetResult | Refusal] = []
    wanted = QueueRead("TopicTest", queue_id, offset, ReadLimits(32, 1 << 20))
    if not replica.reads.read_for_front(wanted, told.append):
        assert told == []
        return None
    (result,) = told
    assert isinstance(result, GetResult)
    return [record.body for record in decode_records(result.body)]


async def test_a_front_reads_what_is_here_and_nothing_else(replica: Replica) -> None:
    assert for_front(replica, 4) == [b"4", b"5"]
    assert replica.reads.read_bytes > 0
    for offset in (-1, 6, 7):  # whoever waits does so at the front, by the master's word
        assert for_front(replica, offset) is None
    assert for_front(replica, 0, queue_id=9) is None
    replica.set_readers("1;1=1")
    assert for_front(replica, 4) is None


@pytest.mark.parametrize("who", ["master", "controllers"])
async def test_a_front_reads_nothing_at_a_replica_out_of_touch(replica: Replica, who: str) -> None:
    assert replica.reads.is_offered
    if who == "master":
        replica.silent_ms = MASTER_SILENT_MS + 1
    else:
        replica.controllers_silent_ms = CONTROLLERS_SILENT_MS + 1
    assert not replica.reads.is_offered
    assert for_front(replica, 0) is None
    replica.silent_ms = replica.controllers_silent_ms = 0
    assert for_front(replica, 5) == [b"5"]
    replica.reads.close()
    assert for_front(replica, 5) is None
