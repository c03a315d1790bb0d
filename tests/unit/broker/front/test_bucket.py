"""A group served from its tier: its tables, what is read, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.clients.elsewhere import Elsewhere
from gantry_broker.front.bucket.clients import BucketConsumers, BucketProcessor, BucketView
from gantry_broker.front.bucket.store import BucketStore
from gantry_broker.front.bucket.tables import NotKnownError, read_tables
from gantry_broker.store.contract import (
    FIRST,
    GetResult,
    GetStatus,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    ReadLimits,
    Refusal,
)
from gantry_broker.store.tables.names import OFFSETS_TOPIC, STATE_TOPIC, TOPICS_TOPIC
from gantry_broker.store.tables.offsets import encode_rows
from gantry_broker.store.tables.resets import RESET_MARK
from gantry_broker.store.tables.state_records import state_records
from gantry_broker.store.tables.topics import TopicChange, change_record
from gantry_broker.tier import waits
from gantry_broker.tier.reader import TierReader
from gantry_protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
    decode_body,
    encode_body,
)
from gantry_protocol.bodies.client import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    SubscriptionData,
)
from gantry_protocol.bodies.consumers import ConsumerClient, ConsumerMembership, ConsumerTable
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.asking import Outcome
from support.group_view import FakeConnection
from support.memory_store import MemoryStore
from support.patience import PATIENCE_S
from support.tier_directory import TierDirectory, messages
from support.tier_logs import Sent

LIMITS = ReadLimits(32, 1 << 20)


class Controllers:
    """What the controllers know of the group; they answer at once."""

    def __init__(self) -> None:
        self.topics = {"orders": TopicConfig("orders", 2, 2), "idle": TopicConfig("idle", 1, 1)}
        self.since: dict[str, int] = {}
        self.settings: dict[str, SubscriptionGroupConfig] = {}
        self.members: dict[str, ConsumerMembership] = {}
        self.silent: set[int] = set()

    def ask(
        self, command: RemotingCommand, done: Callable[[Outcome], None], timeout_s: float
    ) -> None:
        bodies: dict[int, Any] = {
            RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigTable(
                self.topics, topics_version=9, topics_since=self.since
            ),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupTable(self.settings),
            RequestCode.GANTRY_GET_CONSUMERS: ConsumerTable(self.members),
        }
        if command.code in self.silent:
            done(reply(command, ResponseCode.SYSTEM_BUSY, "no leader"))
        elif command.code in bodies:
            done(reply(command, body=encode_body(bodies[command.code])))


class World:
    """A tier with one pack of 4 messages in each of two queues, and more on wish."""

    def __init__(self, directory: Path) -> None:
        self.files = TierDirectory(directory)
        self.files.claim(1)
        self.files.append([changed(1, put=("orders", "idle")), *messages("orders", 8)])
        self.objects = MemoryStore()
        self.controllers = Controllers()
        self.reader = TierReader(
            self.objects,
            self.files.place,
            follow_s=0.1,
            moved=lambda chain: None,
            failed=self._failed,
        )

    @staticmethod
    def _failed(error: BaseException) -> None:
        raise error

    async def follow(self) -> None:
        """Read the tier to its head."""
        for path in self.files.root.rglob("*"):
            if path.is_file():
                self.objects.objects[str(path.relative_to(self.files.root))] = path.read_bytes()
        await self.reader._catch_up()

    async def store(self) -> BucketStore:
        await self.follow()
        return BucketStore(self.reader, await read_tables(self.reader, self.controllers, "c", "g"))

    async def processor(self) -> BucketProcessor:
        await self.follow()
        as_of = await read_tables(self.reader, self.controllers, "c", "g")
        elsewhere = Elsewhere("c", self.controllers)
        consumers = BucketConsumers(as_of.settings, as_of.members, elsewhere, "g")
        store = BucketStore(self.reader, as_of)
        view = BucketView(store, consumers, cluster="c", broker_name="g", peers=self.controllers)
        self.made = BucketProcessor(view)
        return self.made


@pytest.fixture
async def world(tmp_path: Path):
    made = World(tmp_path)
    yield made
    if hasattr(made, "made"):
        made.made.close()
    await made.reader.stop()


def changed(version: int, *removed: str, put: tuple[str, ...] = ()) -> Sent:
    change = TopicChange(version, [TopicConfig(name) for name in put], list(removed))
    return Sent(TOPICS_TOPIC, 0, change_record(change).body)


def rows(*found: tuple[str, str, int, int]) -> Sent:
    return Sent(OFFSETS_TOPIC, 0, encode_rows(list(found)))


def state(*found: tuple[str, str, int, int]) -> list[Sent]:
    return [Sent(STATE_TOPIC, 0, item.body) for item in state_records(1, [], list(found), [])]


async def read(
    store: BucketStore, offset: int, topic: str = "orders", queue_id: int = 0
) -> GetResult | Refusal:
    told: asyncio.Future[GetResult | Refusal] = asyncio.get_running_loop().create_future()
    store.read(QueueRead(topic, queue_id, offset, LIMITS), told.set_result)
    return await asyncio.wait_for(told, PATIENCE_S)


def ends(store: BucketStore, topic: str = "orders", **more: Any) -> QueueOffsets | Refusal:
    told: list[Any] = []
    store.offsets([QueueQuestion(topic, 0, **more)], told.append)
    (answer,) = told
    return answer if isinstance(answer, Refusal) else answer[0]


async def test_records_are_read_up_to_the_head_and_then_waited_for(world: World) -> None:
    store = await world.store()
    found = await read(store, 1)
    assert isinstance(found, GetResult)
    assert [item.queue_offset for item in decode_records(found.body)] == [1, 2, 3]
    assert (found.next_offset, found.min_offset, found.max_offset) == (4, 0, 4)
    for beyond in (4, 5, 1_000):
        nothing = await read(store, beyond)
        assert isinstance(nothing, GetResult)
        assert nothing.status is GetStatus.OFFSET_OVERFLOW_ONE
        assert nothing.next_offset == beyond  # its group may have confirmed that far
    for offset in (0, 3):
        nothing = await read(store, offset, "idle")
        assert isinstance(nothing, GetResult)
        assert (nothing.status, nothing.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, offset)
    assert isinstance(await read(store, -1), GetResult)


async def test_ends_and_times_of_queues(world: World) -> None:
    store = await world.store()
    stored = ends(store, at=FIRST)
    assert isinstance(stored, QueueOffsets)
    assert (stored.min_offset, stored.max_offset, stored.next_offset) == (0, 4, 4)
    assert stored.stored_at == 1_700_000_000_001
    late = ends(store, since=1_800_000_000_000)
    early = ends(store, since=1_700_000_000_002)
    assert isinstance(late, QueueOffsets)
    assert isinstance(early, QueueOffsets)
    assert (early.found, late.found) == (0, 4)
    assert ends(store, "idle") == QueueOffsets(0, 0, 0)


async def test_a_queue_that_cannot_be_read_to_its_end_has_no_end(world: World) -> None:
    store = await world.store()
    (entry,) = world.reader.index.chain.packs
    world.files.append(messages("orders", 2))
    lost = world.files.state.packs[-1]
    world.files.path(lost.key).unlink()
    await world.follow()
    assert entry.hi < world.reader.index.chain.end
    answer = ends(store)
    assert isinstance(answer, Refusal)
    assert lost.key in answer.remark
    assert "try again" in answer.remark
    with pytest.raises(NotKnownError, match="cannot be read"):
        await read_tables(world.reader, world.controllers, "c", "g")


async def test_a_missing_object_is_asked_for_again_and_nobody_is_moved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PAUSE_S", 0.0)
    store = await world.store()
    (entry,) = world.reader.index.chain.packs
    key = world.files.place.key(entry.key)
    data = world.objects.objects.pop(key)
    world.reader.cache._values.clear()
    answer = await read(store, 1)
    assert isinstance(answer, GetResult)
    assert (answer.status, answer.next_offset) == (GetStatus.OFFSET_IN_TIER, 1)
    assert entry.key in answer.remark
    world.objects.objects[key] = bytes([data[0]]) + bytes([data[1] ^ 1]) + data[2:]
    world.reader.index.losses.read(entry.key)
    found = await read(store, 1)  # the run itself is sound
    assert isinstance(found, GetResult)
    assert found.count == 3


async def test_a_flipped_byte_is_refused_by_name(world: World) -> None:
    store = await world.store()
    (entry,) = world.reader.index.chain.packs
    key = world.files.place.key(entry.key)
    data = bytearray(world.objects.objects[key])
    at = data.index(b"orders-2orders-2")
    data[at] ^= 1
    world.objects.objects[key] = bytes(data)
    world.reader.cache._values.clear()
    answer = await read(store, 1)
    assert isinstance(answer, Refusal)
    assert entry.key in answer.remark


async def test_offsets_are_those_of_the_newest_records(world: World) -> None:
    world.files.append([rows(("g", "orders", 0, 1), ("g", "orders", 1, 1))])
    world.files.append([*state(("g", "orders", 0, 2), ("h", "orders", 0, 2))])
    world.files.append([rows(("g", "orders", 0, 3)), rows(("g", "orders", 0, 4))])
    store = await world.store()
    query = store.committed.query
    assert query("g", "orders", 0) == 4
    assert query("h", "orders", 0) == 2
    assert query("g", "orders", 1) is None  # the state, which is newer, knows nothing of it


async def test_what_is_older_than_a_whole_state_is_not_read(world: World) -> None:
    world.files.append([rows(("g", "orders", 0, 1))])
    world.files.append(state(("g", "orders", 0, 2)))
    await world.follow()
    old = world.files.place.key(world.files.state.packs[1].key)
    fetched = world.objects.objects.pop(old)
    assert fetched
    found = await read_tables(world.reader, world.controllers, "c", "g")
    assert found.offsets == [("g", "orders", 0, 2, 0)]


async def test_a_topic_made_again_shows_nothing_of_the_former_one(world: World) -> None:
    world.files.append(
        [rows(("g", "orders", 0, 3)), changed(2, "orders", put=("orders",))],
    )
    world.controllers.since = {"orders": 2}
    store = await world.store()
    answer = await read(store, 0)
    assert isinstance(answer, GetResult)
    assert (answer.status, answer.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 4)
    assert ends(store, at=FIRST) == QueueOffsets(4, 4, 4)
    assert store.committed.query("g", "orders", 0) is None
    answer = await read(store, 4)
    assert isinstance(answer, GetResult)
    assert (answer.status, answer.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 4)


async def test_the_numbers_of_its_queues_go_on(world: World) -> None:
    former, again = Sent("orders", 0, b"former"), Sent("orders", 0, b"again")
    world.files.append([former, changed(2, "orders", put=("orders",)), again])
    world.files.append([again])
    world.controllers.since = {"orders": 2}
    store = await world.store()
    answer = await read(store, 0)
    assert isinstance(answer, GetResult)
    assert (answer.status, answer.next_offset, answer.min_offset) == (
        GetStatus.OFFSET_TOO_SMALL,
        5,
        5,
    )
    for offset in (5, 6):
        answer = await read(store, offset)
        assert isinstance(answer, GetResult)
        (record,) = decode_records(answer.body)
        assert (record.queue_offset, record.body) == (offset, b"again")
    early = ends(store, since=0)
    assert isinstance(early, QueueOffsets)
    assert (early.min_offset, early.max_offset, early.found) == (5, 7, 5)


async def test_a_topic_that_ended_at_the_end_of_a_pack_begins_with_the_next(world: World) -> None:
    world.files.append([changed(2, "orders", put=("orders",))])
    world.files.append([Sent("orders", 0, b"again")])
    world.controllers.since = {"orders": 2}
    stored = ends(await world.store(), at=FIRST)
    assert isinstance(stored, QueueOffsets)
    assert (stored.min_offset, stored.max_offset) == (4, 5)
    assert stored.stored_at == 1_700_000_000_000  # the former one's first is a ms later


async def test_within_one_pack_too(world: World) -> None:
    again = Sent("orders", 0, b"again", queue_offset=0)
    world.files.append(
        [
            Sent("orders", 0, b"former"),
            Sent("orders", 1, b"former"),
            changed(2, "orders", put=("orders",)),
            again,
        ]
    )
    world.controllers.since = {"orders": 2}
    store = await world.store()
    answer = await read(store, 0)
    assert isinstance(answer, GetResult)
    assert [item.body for item in decode_records(answer.body)] == [b"again"]
    answer = await read(store, 0, queue_id=1)
    assert isinstance(answer, GetResult)
    assert answer.count == 0


async def test_a_topic_made_behind_the_head_has_no_records_yet(world: World) -> None:
    world.controllers.since = {"orders": 5}
    answer = await read(await world.store(), 0)
    assert isinstance(answer, GetResult)
    assert (answer.status, answer.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 4)


async def test_tables_wait_for_the_controllers_and_for_the_tier(world: World) -> None:
    with pytest.raises(NotKnownError, match="was read up to 0 of 0"):
        await read_tables(world.reader, world.controllers, "c", "g")
    await world.follow()
    for code in (
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GANTRY_GET_CONSUMERS,
    ):
        world.controllers.silent = {code}
        with pytest.raises(NotKnownError, match="no leader"):
            await read_tables(world.reader, world.controllers, "c", "g")


# ---- clients

PULL = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "0",
}


async def answer_of(
    processor: BucketProcessor,
    conn: FakeConnection,
    code: int,
    ext: dict[str, str],
    body: bytes = b"",
) -> RemotingCommand:
    told = len(conn.replies)
    made = processor(conn, request(code, ext, body))  # type: ignore[arg-type]
    if made is not None:
        return made
    async with asyncio.timeout(PATIENCE_S):
        while len(conn.replies) == told:
            await asyncio.sleep(0)
    return conn.replies[-1][1]


def beat(*clients: str, group: str = "g") -> bytes:
    wanted = [SubscriptionData(topic="orders", sub_string="*")]
    return encode_body(
        HeartbeatData(
            client_id=clients[0],
            consumer_data_set=[
                ConsumerData(
                    group_name=group,
                    consume_type="CONSUME_PASSIVELY",
                    message_model="CLUSTERING",
                    consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                    subscription_data_set=wanted,
                )
            ],
        )
    )


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
    ],
)
async def test_what_only_a_master_can_do_is_to_be_tried_again(world: World, code: int) -> None:
    processor = await world.processor()
    answer = await answer_of(processor, FakeConnection(), code, {})
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "try again once the group is back" in (answer.remark or "")
    assert processor.refused == 1


async def test_a_group_that_may_not_consume_may_not_here(world: World) -> None:
    world.controllers.settings = {"g": SubscriptionGroupConfig("g", consume_enable=False)}
    processor = await world.processor()
    answer = await answer_of(processor, FakeConnection(), RequestCode.PULL_MESSAGE, PULL)
    assert answer.code == ResponseCode.NO_PERMISSION


async def test_mapped_topics_are_left_to_masters(world: World) -> None:
    world.controllers.topics["orders"] = TopicConfig("orders", 2, 2, attributes={MAPPED: "x"})
    processor = await world.processor()
    answer = await answer_of(processor, FakeConnection(), RequestCode.PULL_MESSAGE, PULL)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_reset_is_followed_once(world: World) -> None:
    world.files.append(
        [rows(("g", "orders", 0, 2), (f"{RESET_MARK}g", "orders", 0, 2))],
    )
    processor, conn = await world.processor(), FakeConnection()
    answer = await answer_of(processor, conn, RequestCode.PULL_MESSAGE, PULL)
    assert (answer.code, (answer.ext or {})["nextBeginOffset"]) == (
        ResponseCode.PULL_OFFSET_MOVED,
        "2",
    )
    there = {**PULL, "queueOffset": "2"}
    assert (await answer_of(processor, conn, RequestCode.PULL_MESSAGE, there)).code == 0
    assert (await answer_of(processor, conn, RequestCode.PULL_MESSAGE, PULL)).code == 0


async def test_whom_the_last_master_heard_is_a_member_still(world: World) -> None:
    world.controllers.members = {
        "g": ConsumerMembership(
            clients=[ConsumerClient("old-1", "JAVA", 1), ConsumerClient("old-2", "JAVA", 1)],
            subscriptions=[],
            message_model="CLUSTERING",
            consume_type="CONSUME_PASSIVELY",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )
    }
    processor, conn = await world.processor(), FakeConnection()
    beats = await answer_of(processor, conn, RequestCode.HEART_BEAT, {}, beat("new"))
    assert beats.code == 0
    asked = {"consumerGroup": "g"}
    answer = await answer_of(processor, conn, RequestCode.GET_CONSUMER_LIST_BY_GROUP, asked)
    found = decode_body(ConsumerIdList, answer.body).consumer_id_list
    assert found == ["new", "old-1", "old-2"]
    processor.connection_closed(conn)  # type: ignore[arg-type]
    assert processor.parked == 0


async def test_whoever_waits_is_sent_back_at_the_end(world: World) -> None:
    processor, conn = await world.processor(), FakeConnection()
    wait = {**PULL, "queueOffset": "4", "sysFlag": "6"}
    assert processor(conn, request(RequestCode.PULL_MESSAGE, wait)) is None  # type: ignore[arg-type]
    assert processor.parked == 1
    processor.close()
    answer = conn.replies[-1][1]
    assert (answer.ext or {})["nextBeginOffset"] == "4"
