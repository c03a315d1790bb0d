"""Which member a master tells consumers to ask next."""

from __future__ import annotations

from collections import Counter

import pytest
from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.parking import ParkedPull
from gantry_broker.store.contract import GetResult, GetStatus, QueueRead, ReadLimits
from gantry_protocol.bodies import LockBatchBody, MessageQueue, TopicConfig, encode_body
from gantry_protocol.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.settings.readers import READERS
from support import stores
from support.group_view import FakeConnection, FakeGroup

PULL = {
    "consumerGroup": "g",
    "topic": "TopicTest",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
    "expressionType": "TAG",
}


@pytest.fixture
def replicas(processor: ClientProcessor) -> list[int]:
    """The replicas that may serve reads; a test may change them."""
    able = [2, 3]
    processor._puller.suggestions._replicas = lambda: able
    return able


def set_readers(group: FakeGroup, readers: str, **more: str) -> None:
    group.add_topic(TopicConfig("TopicTest", 4, 4, attributes={READERS: readers, **more}))
    stores.put(group.messages, stores.message("TopicTest", 0, b"one"))
    stores.confirm(group.messages)


def asked(client, **more: object) -> int:
    answer = client.call(11, {**PULL, **more})
    return int(answer.ext["suggestWhichBrokerId"])


def beat(client, client_id: str) -> None:
    consumer = ConsumerData("g", subscription_data_set=[SubscriptionData("TopicTest")])
    body = encode_body(HeartbeatData(client_id, consumer_data_set=[consumer]))
    assert client.call(RequestCode.HEART_BEAT, None, body).code == 0


def test_clients_are_divided_among_all_that_serve(connect, group, processor, replicas) -> None:
    set_readers(group, "3")
    clients = [connect() for _ in range(30)]
    places = Counter(asked(client) for client in clients)
    assert places == Counter({0: 10, 2: 10, 3: 10})
    assert Counter(asked(client) for client in clients) == places
    assert [processor.placing.at(member) for member in (0, 2, 3)] == [10, 10, 10]


def test_a_client_is_the_same_over_each_of_its_connections(connect, group, replicas) -> None:
    set_readers(group, "3")
    first, second = connect(), connect()
    beat(first, "c1")
    beat(second, "c1")
    place = asked(first)
    assert [asked(second) for _ in range(3)] == [place] * 3


@pytest.mark.parametrize("readers", ["0", "1", "1;2=3"])
def test_a_queue_with_one_reader_is_the_masters(client, group, replicas, readers) -> None:
    set_readers(group, readers)
    assert asked(client) == 0


def test_a_mapped_topic_is_read_at_masters(processor, group, replicas) -> None:
    set_readers(group, "3", **{MAPPED: "1"})
    wanted = QueueRead("TopicTest", 0, 0, ReadLimits(1, 1))
    pull = ParkedPull(FakeConnection(), request(11, {"consumerGroup": "g"}), wanted, 0)
    assert processor._puller.suggestions.suggest(pull, GetResult(GetStatus.FOUND, 1, 0, 1)) == 0


def test_a_topic_without_the_attribute_is_the_masters(client, replicas) -> None:
    assert asked(client) == 0


def test_a_group_that_consumes_in_order_stays_at_the_master(client, group, replicas) -> None:
    set_readers(group, "2")
    beat(client, "c1")
    assert asked(client) in (2, 3)
    body = LockBatchBody(
        consumer_group="g", client_id="c1", mq_set=[MessageQueue("broker-a", 0, "TopicTest")]
    )
    assert client.call(RequestCode.LOCK_BATCH_MQ, None, encode_body(body)).code == 0
    assert asked(client) == 0


def test_a_replica_that_is_gone_is_suggested_to_nobody(connect, group, replicas) -> None:
    set_readers(group, "3")
    clients = [connect() for _ in range(6)]
    assert 2 in {asked(client) for client in clients}
    replicas.remove(2)
    assert Counter(asked(client) for client in clients) == Counter({0: 3, 3: 3})
    replicas.clear()
    assert {asked(client) for client in clients} == {0}
