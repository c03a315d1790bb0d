"""Producers and consumers over real sockets, and what a restart leaves of their work."""

from __future__ import annotations

import asyncio

from gantry_protocol.bodies import ConsumerIdList, decode_body, encode_body
from gantry_protocol.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.records import BatchMessage, decode_properties, decode_records, encode_batch

LIMIT_S = 20


def send(body: bytes, *, topic: str = "T", queue_id: int = 0, tag: str = "A", **more: str):
    ext = {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": f"TAGS\x01{tag}\x02",
        **more,
    }
    return request(RequestCode.SEND_MESSAGE_V2, ext, body)


def pull(offset: int, *, queue_id: int = 0, wait_ms: int = 0, expression: str = "*"):
    ext = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if wait_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms),
        "subVersion": "0",
        "subscription": expression,
    }
    return request(RequestCode.PULL_MESSAGE, ext)


def position(code: int, **more: str) -> RemotingCommand:
    return request(code, {"consumerGroup": "g", "topic": "T", "queueId": "0", **more})


async def read_all(client, *, queue_id: int = 0, expression: str = "*") -> list[bytes]:
    bodies: list[bytes] = []
    offset = 0
    while True:
        answer = await client.call(pull(offset, queue_id=queue_id, expression=expression))
        if answer.code not in (0, 20):
            assert answer.code == 19
            return bodies
        bodies += [record.body for record in decode_records(answer.body)]
        following = int(answer.ext["nextBeginOffset"])
        assert following > offset
        offset = following


async def test_pipelined_sends_are_read_back_in_order(start) -> None:
    async with start() as broker, asyncio.timeout(LIMIT_S):
        client = await broker.client()
        answers = await asyncio.gather(
            *(client.call(send(b"%d" % n, queue_id=n % 4)) for n in range(400))
        )
        assert {answer.code for answer in answers} == {0}
        assert len({answer.ext["msgId"] for answer in answers}) == 400
        for queue_id in range(4):
            offsets = [int(a.ext["queueOffset"]) for a in answers[queue_id::4]]
            assert offsets == list(range(100))
            expected = [b"%d" % n for n in range(queue_id, 400, 4)]
            assert await read_all(client, queue_id=queue_id) == expected


async def test_a_batch_and_tags(start) -> None:
    async with start() as broker, asyncio.timeout(LIMIT_S):
        client = await broker.client()
        await client.call(send(b"first", tag="B"))
        messages = [BatchMessage(b"%d" % n, f"TAGS\x01{'AB'[n % 2]}\x02") for n in range(10)]
        batch = send(encode_batch(messages), m="true")
        batch.code = RequestCode.SEND_BATCH_MESSAGE
        answer = await client.call(batch)
        assert (answer.code, answer.ext["queueOffset"]) == (0, "1")
        assert await read_all(client, expression="A") == [b"%d" % n for n in range(0, 10, 2)]
        assert len(await read_all(client)) == 11


async def test_a_consumer_that_waits_gets_the_next_message_at_once(start) -> None:
    async with start() as broker, asyncio.timeout(LIMIT_S):
        producer, consumer = await broker.client(), await broker.client()
        await producer.call(send(b"0"))
        waiting = asyncio.create_task(consumer.call(pull(1, wait_ms=15_000), timeout_s=20))
        while broker.processor.parked_pulls == 0:
            await asyncio.sleep(0.001)
        # The connection is not blocked by the pull that waits on it.
        assert (await consumer.call(position(RequestCode.GET_MAX_OFFSET))).ext == {"offset": "1"}
        await producer.call(send(b"1"))
        answer = await waiting
        assert [record.body for record in decode_records(answer.body)] == [b"1"]


async def test_a_pull_of_a_lost_connection_is_dropped(start) -> None:
    async with start() as broker, asyncio.timeout(LIMIT_S):
        producer, consumer = await broker.client(), await broker.client()
        await producer.call(send(b"0"))
        consumer.call_nowait(pull(1, wait_ms=15_000), lambda outcome: None)
        while broker.processor.parked_pulls == 0:
            await asyncio.sleep(0.001)
        consumer.abort()
        while broker.processor.parked_pulls:
            await asyncio.sleep(0.001)
        assert (await producer.call(send(b"1"))).code == 0


async def test_messages_offsets_and_topics_are_there_after_a_restart(start) -> None:
    async with start() as broker, asyncio.timeout(LIMIT_S):
        client = await broker.client()
        for number in range(50):
            await client.call(send(b"%d" % number))
        client.oneway(position(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset="17"))
        query = position(RequestCode.QUERY_CONSUMER_OFFSET)
        assert (await client.call(query)).ext == {"offset": "17"}
    async with start() as broker, asyncio.timeout(LIMIT_S):
        client = await broker.client()
        query = position(RequestCode.QUERY_CONSUMER_OFFSET)
        assert (await client.call(query)).ext == {"offset": "17"}
        assert await read_all(client) == [b"%d" % number for number in range(50)]
        assert (await client.call(send(b"50"))).ext["queueOffset"] == "50"


async def test_members_of_a_group_learn_of_each_other(start) -> None:
    def beat(client_id: str) -> RemotingCommand:
        consumer = ConsumerData("g", subscription_data_set=[SubscriptionData("T")])
        body = HeartbeatData(client_id, consumer_data_set=[consumer])
        return request(RequestCode.HEART_BEAT, None, encode_body(body))

    async def members(client) -> list[str]:
        asked = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
        answer = await client.call(asked)
        return decode_body(ConsumerIdList, answer.body).consumer_id_list

    async with start() as broker, asyncio.timeout(LIMIT_S):
        told: list[str] = []

        def note(client, command: RemotingCommand) -> None:
            assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            told.append(command.ext["consumerGroup"])

        first = await broker.client(on_request=note)
        second = await broker.client()
        await first.call(beat("c1"))
        await second.call(beat("c2"))
        assert await members(first) == ["c1", "c2"]
        while len(told) < 2:
            await asyncio.sleep(0.001)
        second.abort()
        while len(told) < 3:
            await asyncio.sleep(0.001)
        assert await members(first) == ["c1"]
        assert set(told) == {"g"}


async def test_a_message_has_the_properties_consumers_count_on(start) -> None:
    async with start() as broker, asyncio.timeout(LIMIT_S):
        client = await broker.client()
        answer = await client.call(send(b"x", i="TAGS\x01A"))
        found = await client.call(pull(0))
        (record,) = decode_records(found.body)
        properties = decode_properties(record.properties)
        assert properties["UNIQ_KEY"] == answer.ext["transactionId"]
        assert (properties["TAGS"], properties["CLUSTER"]) == ("A", "DefaultCluster")
