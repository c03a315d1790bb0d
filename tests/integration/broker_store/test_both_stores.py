"""What clients see of a broker is the same on its own store and on one in another process (RIP-19).

Every test runs on both, against whole brokers; one of each kind serves the whole file, so each test
has topics and groups of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from gantry_protocol.bodies import (
    ConsumerIdList,
    LockBatchBody,
    LockedQueues,
    MessageQueue,
    decode_body,
    decode_queue_table,
    encode_body,
)
from gantry_protocol.bodies.stats import OffsetWrapper
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.records import (
    BatchMessage,
    decode_offset_msg_id,
    decode_properties,
    decode_record,
    decode_records,
    encode_batch,
)
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import eventually
from support.loopback_controller import CLUSTER, GROUP
from support.patience import PATIENCE_S
from support.store_kinds import KINDS, Served, User, send_ext, served, text
from support.transactions import COMMIT, ROLLBACK, UNKNOWN, claim, claim_checked, half

pytestmark = pytest.mark.asyncio(loop_scope="module")

DELAY_MS = 20
QUICK: dict[str, object] = {
    "delay_levels": " ".join([f"{DELAY_MS}ms"] * 18),
    "transaction_timeout_s": 0.05,
    "transaction_check_interval_s": 0.1,
}
Connect = Callable[..., Awaitable[User]]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """The broker of one kind of store."""
    async with served(request.param, tmp_path_factory.mktemp(request.param), **QUICK) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def connect(store: Served) -> AsyncIterator[Connect]:
    """More clients; options are those of `RemotingClient`."""
    made: list[RemotingClient] = []

    async def one(**options: Any) -> User:
        made.append(RemotingClient(**options))
        return User(await made[-1].connect(store.address))

    yield one
    for client in made:
        client.close()


@pytest_asyncio.fixture(loop_scope="module")
async def user(connect: Connect) -> User:
    return await connect()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of this test's own; nobody has made it yet."""
    return re.sub(r"\W", "_", request.node.name.removeprefix("test_"))


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [record.body for record in decode_records(answer.body or b"")]


# ---- sends and batches


async def test_pipelined_sends_are_read_back_in_order(user: User, topic: str) -> None:
    async with asyncio.timeout(PATIENCE_S):  # a young master may tell senders to try again
        while (await user.send(b"first", "first")).code == ResponseCode.SYSTEM_BUSY:
            await asyncio.sleep(0.01)
    answers = await asyncio.gather(*(user.send(b"%d" % n, topic, n % 4) for n in range(200)))
    assert {answer.code for answer in answers} == {0}
    assert len({answer.ext["msgId"] for answer in answers}) == 200
    for queue_id in range(4):
        assert [int(one.ext["queueOffset"]) for one in answers[queue_id::4]] == list(range(50))
        found = [record.body for record in await user.read(topic, queue_id)]
        assert found == [b"%d" % n for n in range(queue_id, 200, 4)]


async def test_a_message_has_the_properties_consumers_count_on(user: User, topic: str) -> None:
    answer = await user.send(b"x", topic, properties={"TAGS": "A"})
    (record,) = await user.read(topic)
    properties = decode_properties(record.properties)
    assert properties["UNIQ_KEY"] == answer.ext["transactionId"]
    assert (properties["TAGS"], properties["CLUSTER"]) == ("A", CLUSTER)


async def test_a_oneway_send_is_stored(user: User, topic: str) -> None:
    await user.send(b"first", topic)
    texts = {name: text(value) for name, value in send_ext(topic, 0, {}).items()}
    user.client.oneway(request(RequestCode.SEND_MESSAGE_V2, texts, b"oneway", oneway=True))
    assert (await user.arrived(topic, 1)).body == b"oneway"


async def test_a_batch_is_one_record_each_with_its_own_properties(user: User, topic: str) -> None:
    assert (await user.send(b"before", topic, properties={"TAGS": "B"})).code == 0
    batch = [BatchMessage(b"%d" % n, f"TAGS\x01{'AB'[n % 2]}\x02") for n in range(10)]
    ext = {**send_ext(topic, 0, {}), "m": True}
    answer = await user.call(RequestCode.SEND_BATCH_MESSAGE, ext, encode_batch(batch))
    assert (answer.code, answer.ext["queueOffset"]) == (0, "1")
    assert len(answer.ext["msgId"].split(",")) == 10
    assert [one.body for one in await user.read(topic)][1:] == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"b": "a b"}, 29, "illegal characters"),
        ({"b": "GANTRY_SYS_OFFSETS"}, 16, "forbidden"),
        ({"e": 99}, 29, "queueId[99]"),
        ({"i": f"A\x01{'x' * 32_768}\x02"}, 13, ""),
    ],
    ids=["a name", "a name of ours", "a queue", "properties"],
)
async def test_sends_that_are_refused(
    user: User, topic: str, changes: dict[str, object], code: int, words: str
) -> None:
    assert (await user.send(b"first", topic)).code == 0
    answer = await user.send(b"x", topic, **changes)
    assert (answer.code, words in (answer.remark or "")) == (code, True), answer.remark
    assert len(await user.read(topic)) == int((await user.send(b"next", topic)).ext["queueOffset"])


async def test_an_unknown_code_is_3(user: User) -> None:
    assert (await user.call(9_999)).code == 3


# ---- pulls


@pytest.mark.parametrize(("expression", "wanted"), [("A", [0, 2, 4]), ("A || B", range(6))])
async def test_tags(user: User, topic: str, expression: str, wanted: list[int]) -> None:
    for number in range(6):
        await user.send(b"%d" % number, topic, properties={"TAGS": "AB"[number % 2]})
    found = await user.read(topic, subscription=expression)
    assert [int(record.body) for record in found] == list(wanted)
    assert await user.read(topic, subscription="C") == []


async def test_filters_in_sql(user: User, topic: str) -> None:
    for number in range(50):
        properties = {"v": number, "kind": "ab"[number % 2]}
        await user.send(b"%d" % number, topic, properties=properties)
    wanted = {"expressionType": "SQL92", "subscription": "v > 40 AND kind = 'b' OR v IN ('7')"}
    found = await user.read(topic, **wanted)
    assert [int(record.body) for record in found] == [7, 41, 43, 45, 47, 49]
    assert await user.read(topic, **wanted | {"subscription": "v > 50"}) == []
    refused = await user.pull(topic, **wanted | {"subscription": "v > 'x'"})
    assert refused.code == 23
    assert "line 1, column 5" in refused.remark
    waiting = asyncio.create_task(user.pull(topic, 50, 5_000, **wanted))
    for number in (40, 42, 45):
        await user.send(b"-", topic, properties={"v": number, "kind": "ab"[number % 2]})
    answer = await waiting
    assert (answer.code, answer.ext["nextBeginOffset"]) == (0, "53")


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_positions_without_messages(user: User, topic: str, code: int) -> None:
    for number in range(3):
        await user.send(b"%d" % number, topic)
    told = []
    for offset in (1, 3, 4, 99, -1):
        ext = {
            "consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": offset,
            "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
            "subVersion": 0, "subscription": "*",
        }  # fmt: skip
        answer = await user.call(code, ext)
        told.append((offset, answer.code, answer.ext["nextBeginOffset"]))
    assert told[:3] == [(1, 0, "2"), (3, 19, "3"), (4, 21, "3")]
    assert [(code, following) for _, code, following in told[3:]] == [(21, "3"), (21, "0")]


async def test_a_pull_of_an_unknown_topic_is_17(user: User) -> None:
    assert (await user.pull("Nobody_has_made_it")).code == 17


async def test_a_consumer_that_waits_gets_the_next_message_at_once(
    store: Served, user: User, connect: Connect, topic: str
) -> None:
    await user.send(b"0", topic)
    consumer = await connect()
    await consumer.pull(topic)  # a front passes on what is said before it has reached the master
    waiting = asyncio.create_task(consumer.pull(topic, 1, 9_000))
    await eventually(lambda: store.parked_pulls == 1, "the pull is parked")
    # The connection is not blocked by the pull that waits on it.
    asked = {"topic": topic, "queueId": 0}
    assert (await consumer.call(RequestCode.GET_MAX_OFFSET, asked)).ext == {"offset": "1"}
    await user.send(b"1", topic)
    assert bodies(await waiting) == [b"1"]


async def test_a_pull_that_waits_for_nothing_ends(user: User, topic: str) -> None:
    await user.send(b"0", topic)
    assert (await user.pull(topic, 1, 30)).code == 19


async def test_a_pull_of_a_lost_connection_is_dropped(
    store: Served, user: User, connect: Connect, topic: str
) -> None:
    await user.send(b"0", topic)
    consumer = await connect()
    await consumer.pull(topic)  # a front passes on what is said before it has reached the master
    waiting = asyncio.create_task(consumer.pull(topic, 1, 9_000))
    await eventually(lambda: store.parked_pulls == 1, "the pull is parked")
    consumer.client.abort()
    await eventually(lambda: store.parked_pulls == 0, "it is dropped")
    await asyncio.gather(waiting, return_exceptions=True)


# ---- offsets


async def test_queue_positions(user: User, topic: str) -> None:
    for _ in range(3):
        await user.send(b"x", topic)
        await asyncio.sleep(0.002)  # store times that differ
    times = [record.store_timestamp for record in await user.read(topic)]

    async def position(code: int, **more: object) -> dict[str, str] | None:
        return (await user.call(code, {"topic": topic, "queueId": 0, **more})).ext

    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert await position(RequestCode.GET_MAX_OFFSET) == {"offset": "3"}
    assert await position(RequestCode.GET_MIN_OFFSET) == {"offset": "0"}
    assert await position(RequestCode.GET_EARLIEST_MSG_STORETIME) == {"timestamp": str(times[0])}
    assert await position(search, timestamp=times[1]) == {"offset": "1"}
    assert await position(search, timestamp=times[2] + 1) == {"offset": "3"}
    upper = {"timestamp": times[2] + 1, "boundaryType": "UPPER"}
    assert await position(search, **upper) == {"offset": "2"}


async def test_a_commit_is_answered_by_the_next_query_and_may_go_back(
    user: User, topic: str
) -> None:
    who = {"consumerGroup": topic, "topic": topic, "queueId": 0}
    await user.send(b"x", topic)
    for offset in (1, 0):
        changed = {**who, "commitOffset": offset}
        assert (await user.call(RequestCode.UPDATE_CONSUMER_OFFSET, changed)).code == 0
        answer = await user.call(RequestCode.QUERY_CONSUMER_OFFSET, who)
        assert answer.ext == {"offset": str(offset)}
    nobody = {**who, "consumerGroup": "nobody", "setZeroIfNotFound": False}
    assert (await user.call(RequestCode.QUERY_CONSUMER_OFFSET, nobody)).code == 22


async def reset(user: User, group: str, topic: str, offset: int) -> RemotingCommand:
    ext = {
        "topic": topic, "group": group, "timestamp": -1, "isForce": True, "queueId": 0,
        "offset": offset,
    }  # fmt: skip
    return await user.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)


async def test_a_running_consumer_follows_a_reset(user: User, connect: Connect, topic: str) -> None:
    for number in range(9):
        await user.send(b"%d" % number, topic)
    consumer, group = await connect(), f"g_{topic}"
    await consumer.join(group, topic)
    assert (await consumer.pull(topic, 0, consumerGroup=group)).code == 0
    who = {"consumerGroup": group, "topic": topic, "queueId": 0}
    await consumer.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**who, "commitOffset": 9})
    answer = await reset(user, group, topic, 2)
    assert decode_queue_table(answer.body, int) == {MessageQueue(GROUP, 0, topic): 2}
    await consumer.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**who, "commitOffset": 9})
    answer = await consumer.call(RequestCode.QUERY_CONSUMER_OFFSET, who)
    assert answer.ext == {"offset": "2"}, "what it had before does not count"
    moved = await consumer.pull(topic, 9, consumerGroup=group)
    assert (moved.code, moved.ext["nextBeginOffset"]) == (21, "2")
    answer = await consumer.pull(topic, 2, consumerGroup=group)
    assert bodies(answer) == [b"%d" % number for number in range(2, 9)]


async def test_a_reset_out_of_the_queue_is_refused(user: User, topic: str) -> None:
    await user.send(b"x", topic)
    assert (await reset(user, "nobody", topic, 1)).code == 26
    who = {"consumerGroup": topic, "topic": topic, "queueId": 0, "commitOffset": 0}
    await user.call(RequestCode.UPDATE_CONSUMER_OFFSET, who)
    answer = await reset(user, topic, topic, 2)
    assert (answer.code, "2" in (answer.remark or "")) == (29, True)
    assert (await reset(user, topic, topic, 1)).code == 0


# ---- delays, retries, dead letters


async def test_a_delayed_message_arrives_once_it_is_time(user: User, topic: str) -> None:
    await user.send(b"now", topic)
    began_ms = int(time.time() * 1000)
    answer = await user.send(b"later", topic, properties={"DELAY": 3, "TAGS": "A"})
    assert answer.code == 0
    record = await user.arrived(topic, 1)
    assert (record.body, record.queue_id) == (b"later", 0)
    assert record.store_timestamp >= began_ms + DELAY_MS
    properties = decode_properties(record.properties)
    assert (properties["TAGS"], properties["DELAY"]) == ("A", "3")


async def test_retries_and_then_the_dead_letters(store: Served, user: User, topic: str) -> None:
    """What a consumer cannot handle comes back 16 times, and then lies where people find it."""
    group, tries = f"g_{topic}", 0
    retry, dead = f"%RETRY%{group}", f"%DLQ%{group}"
    await user.send(b"bad", topic, properties={"KEYS": "k"})
    at = topic
    while True:
        record = await user.arrived(at, tries - (at != topic))
        assert (record.body, record.reconsume_times) == (b"bad", tries)
        back = {
            "group": group,
            "offset": record.physical_offset,
            "delayLevel": 0,
            "originTopic": topic,
            "maxReconsumeTimes": 16,
        }
        answer = await user.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert (answer.code, answer.remark) == (0, None)
        if tries == 16:
            break
        at, tries = retry, tries + 1
    record = await user.arrived(dead)
    properties = decode_properties(record.properties)
    assert (record.body, record.reconsume_times, properties["DELAY"]) == (b"bad", 17, "-1")
    assert (properties["RETRY_TOPIC"], properties["KEYS"]) == (topic, "k")
    assert (await user.pull(retry, 16)).code == 19, "that was all"
    known = store.controller.machine.state.topics[CLUSTER, GROUP].topics
    assert {retry, dead} <= known.keys(), "clients find routes to them"


# ---- transactions


class Asked:
    """A producer, and the checks (39) that it got."""

    def __init__(self, user: User) -> None:
        self.user = user

    async def begin(self, topic: str, number: int) -> RemotingCommand:
        ext = half(f"{number:032}", topic=topic, queue_id=0, n=GROUP)
        answer = await self.user.call(RequestCode.SEND_MESSAGE_V2, ext, b"%d" % number)
        assert answer.code == 0, answer.remark
        return answer

    async def end(self, sent: RemotingCommand, outcome: int) -> RemotingCommand:
        return await self.user.call(RequestCode.END_TRANSACTION, claim(sent, outcome, bname=GROUP))


async def test_a_transaction_is_seen_once_it_is_committed(user: User, topic: str) -> None:
    await user.send(b"no transaction", topic)
    producer = Asked(user)
    one, two = await producer.begin(topic, 1), await producer.begin(topic, 2)
    assert len(await user.read(topic)) == 1
    assert (await producer.end(one, COMMIT)).code == 0
    assert (await producer.end(two, ROLLBACK)).code == 0
    repeated = await producer.end(two, COMMIT)
    assert (repeated.code, "has ended" in (repeated.remark or "")) == (0, True)
    assert [record.body for record in await user.read(topic)] == [b"no transaction", b"1"]
    half_topic = await user.pull("RMQ_SYS_TRANS_HALF_TOPIC")
    assert half_topic.code == 17, "half messages are nobody's to read"


async def test_a_producer_is_asked_how_its_transaction_ends(
    user: User, connect: Connect, topic: str
) -> None:
    checks: list[RemotingCommand] = []

    def asked(client: RemotingClient, check: RemotingCommand) -> None:
        if check.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        checks.append(check)
        outcome = UNKNOWN if len(checks) == 1 else COMMIT
        texts = {name: text(value) for name, value in claim_checked(check, outcome).items()}
        client.oneway(request(RequestCode.END_TRANSACTION, texts, oneway=True))

    client = await connect(on_request=asked)
    await client.join("PG_T")
    await user.send(b"no transaction", topic)
    await Asked(client).begin(topic, 7)
    assert (await user.arrived(topic, 1)).body == b"7"
    (record,) = decode_records(checks[0].body)
    assert record.body == b"7"
    assert len(checks) == 2


# ---- who is there, and who may read what


async def test_members_of_a_group_learn_of_each_other(connect: Connect, topic: str) -> None:
    told: list[str] = []

    def note(client: RemotingClient, command: RemotingCommand) -> None:
        assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        told.append(command.ext["consumerGroup"])

    async def members() -> list[str]:
        asked = {"consumerGroup": topic}
        answer = await first.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, asked)
        return decode_body(ConsumerIdList, answer.body).consumer_id_list

    first, second = await connect(on_request=note), await connect()
    await first.join(topic, topic, name="c1")
    await second.join(topic, topic, name="c2")
    assert await members() == ["c1", "c2"]
    await eventually(lambda: len(told) >= 2, "it is told of both")
    second.client.abort()
    await eventually(lambda: len(told) >= 3, "it is told of the one that left")
    assert await members() == ["c1"]
    assert set(told) == {topic}


async def test_a_queue_is_locked_for_one_consumer(user: User, topic: str) -> None:
    queues = [MessageQueue(GROUP, queue_id, topic) for queue_id in (0, 1)]

    async def lock(name: str) -> list[MessageQueue]:
        body = encode_body(LockBatchBody(topic, name, queues))
        answer = await user.call(RequestCode.LOCK_BATCH_MQ, None, body)
        return decode_body(LockedQueues, answer.body).lock_ok_mq_set

    assert await lock("c1") == queues
    assert await lock("c2") == []
    body = encode_body(LockBatchBody(topic, "c1", queues[:1]))
    assert (await user.call(RequestCode.UNLOCK_BATCH_MQ, None, body)).code == 0
    assert await lock("c2") == queues[:1]


# ---- queries


async def test_messages_by_key_and_by_id(user: User, topic: str) -> None:
    sent = [
        await user.send(b"%d" % number, topic, properties={"KEYS": f"all k{number}"})
        for number in range(3)
    ]

    async def found(key: str, **more: object) -> list[bytes]:
        ext = {
            "topic": topic, "key": key, "maxNum": 10, "beginTimestamp": 0,
            "endTimestamp": (1 << 63) - 1, **more,
        }  # fmt: skip
        answer = await user.call(RequestCode.QUERY_MESSAGE, ext)
        assert answer.code in (0, 22)
        return bodies(answer)

    assert await found("all") == [b"2", b"1", b"0"]
    assert await found("k1") == [b"1"]
    unique = sent[2].ext["transactionId"]
    assert await found(unique, _UNIQUE_KEY_QUERY="true") == [b"2"]
    assert await found("k") == []
    _, offset = decode_offset_msg_id(sent[1].ext["msgId"])
    answer = await user.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
    assert (answer.code, decode_record(answer.body).body) == (0, b"1")
    assert (await user.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset + 1})).code == 1


# ---- administration


def create_ext(topic: str, queues: int) -> dict[str, object]:
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues,
        "writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
        "order": False,
    }  # fmt: skip


async def test_a_topic_is_created_shown_and_changed(user: User, topic: str) -> None:
    for queues in (2, 3):
        ext = {**create_ext(topic, queues), "attributes": f"+reserve.time={queues}"}
        assert (await user.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code == 0
        answer = await user.call(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
        shown = json.loads(answer.body)
        assert shown["writeQueueNums"] == queues
        assert shown["attributes"] == {"reserve.time": f"{queues}"}
    await user.send(b"x", topic, 2)
    table = json.loads((await user.call(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
    assert table["topicConfigTable"][topic]["readQueueNums"] == 3
    answer = await user.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
    assert answer.body.count(b'"maxOffset":1') == 1
    illegal = create_ext("a b", 1)
    assert (await user.call(RequestCode.UPDATE_AND_CREATE_TOPIC, illegal)).code == 29
    unknown = {**create_ext(topic, 1), "attributes": "+colour=red"}
    answer = await user.call(RequestCode.UPDATE_AND_CREATE_TOPIC, unknown)
    assert (answer.code, "'colour' is no attribute" in str(answer.remark)) == (29, True)


async def test_a_deleted_topic_is_gone_with_its_offsets_and_begins_anew(
    user: User, topic: str
) -> None:
    for _ in range(3):
        await user.send(b"old", topic)
    who = {"consumerGroup": topic, "topic": topic, "queueId": 0}
    await user.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**who, "commitOffset": 2})
    assert (await user.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == 0
    assert (await user.pull(topic)).code == 17
    assert (await user.call(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})).code == 17
    table = json.loads((await user.call(RequestCode.GET_ALL_CONSUMER_OFFSET)).body)
    assert f"{topic}@{topic}" not in table["offsetTable"]
    made = await user.call(RequestCode.UPDATE_AND_CREATE_TOPIC, create_ext(topic, 1))
    assert made.code == 0
    answer = await user.send(b"new", topic)
    assert (answer.code, answer.ext["queueOffset"]) == (0, "3"), "offsets are never given twice"


async def test_a_group_has_settings_progress_and_connections(
    user: User, connect: Connect, topic: str
) -> None:
    group = {"groupName": topic, "retryMaxTimes": 3}
    change = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await user.call(change, None, json.dumps(group).encode())).code == 0
    shown = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    async def settings() -> dict[str, Any]:
        answer = await user.call(shown, {"group": topic})
        return json.loads(answer.body) if answer.code == 0 else {}

    async with asyncio.timeout(PATIENCE_S):
        while (await settings()).get("retryMaxTimes") != 3:
            await asyncio.sleep(0.01)
    for _ in range(4):
        await user.send(b"x", topic)
    consumer = await connect()
    await consumer.join(topic, topic)
    who = {"consumerGroup": topic, "topic": topic, "queueId": 0}
    await consumer.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**who, "commitOffset": 3})
    answer = await user.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": topic})
    progress = decode_queue_table(answer.body, OffsetWrapper)[MessageQueue(GROUP, 0, topic)]
    assert (progress.broker_offset, progress.consumer_offset) == (4, 3)
    answer = await user.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": topic})
    assert b'"clientId":"c1"' in answer.body
    answer = await user.call(
        RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": topic, "topic": topic}
    )
    assert b'"clientId":"c1"' in answer.body
    gone = {"groupName": topic, "cleanOffset": True}
    assert (await user.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, gone)).code == 0
    table = json.loads((await user.call(RequestCode.GET_ALL_CONSUMER_OFFSET)).body)
    assert f"{topic}@{topic}" not in table["offsetTable"]


async def test_a_broker_shows_what_it_is(user: User) -> None:
    table = json.loads((await user.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert b"brokerName=" in (await user.call(RequestCode.GET_BROKER_CONFIG)).body
