"""Subscription groups at a broker: the controllers decide, and what they said is acted on."""

from __future__ import annotations

import json

import pytest
from gantry_broker.clients.claim import Claim
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.command import reply
from gantry_protocol.errors import ConnectError
from gantry_protocol.records.properties import SCHEDULE_TOPIC
from gantry_protocol.types import BrokerId, Epoch

from .conftest import PULL


def learn(group, *, said: int = 0, **config: object) -> None:
    """The controllers' table has this one group now; they may have ``said`` an older version."""
    version = group.consumers._configs_version + 1
    group.consumers.catch_up(version)
    command, done = group.controllers.asked[-1]
    table = {"subscriptionGroupTable": {"g": {"groupName": "g", **config}}}
    ext = {"subscriptionsVersion": str(said or version)}
    done(reply(command, ext=ext, body=json.dumps(table).encode()))


def test_change_is_the_controllers(client, group) -> None:
    asked, answer = client.ask(200, None, b'{"groupName":"g","consumeEnable":false}')
    assert answer is None
    ((command, done),) = group.controllers.asked
    assert command.ext == {"clusterName": group.cluster, "brokerName": group.broker_name}
    done(reply(command, ext={"subscriptionsVersion": "1"}))
    assert client.conn.answer_to(asked).code == 0
    reading, done = group.controllers.asked[-1]
    assert reading.code == 201  # at once, without waiting for the next look at the version
    asked, _ = client.ask(207, {"groupName": "g"})
    command, done = group.controllers.asked[-1]
    done(ConnectError("nobody", refused=True))
    assert client.conn.answer_to(asked).code == 2


@pytest.mark.parametrize("group_name", ["GANTRY_SYS_DELAY", "CID_RMQ_SYS_TRANS"])
def test_the_brokers_own_groups_are_not_deleted(client, group, group_name) -> None:
    group.store.committed.commit(group_name, SCHEDULE_TOPIC, 0, 7)
    assert client.call(207, {"groupName": group_name, "cleanOffset": True}).code == 16
    assert group.store.committed.query(group_name, SCHEDULE_TOPIC, 0) == 7
    assert group.controllers.asked == []


def test_what_was_read_is_shown(client, group) -> None:
    assert client.call(352, {"group": "g"}).code == 26
    learn(group, retryMaxTimes=3)
    assert json.loads(client.call(352, {"group": "g"}).body)["retryMaxTimes"] == 3
    table = json.loads(client.call(201).body)["subscriptionGroupTable"]
    assert table["g"]["retryMaxTimes"] == 3


def test_older_settings_do_not_replace_newer_ones(group) -> None:
    """A controller that had not heard of the newest may answer."""
    learn(group, retryMaxTimes=3)
    learn(group, retryMaxTimes=4)
    learn(group, retryMaxTimes=3, said=1)
    assert group.consumers.config("g").retry_max_times == 4
    learn(group, retryMaxTimes=5)
    assert group.consumers.config("g").retry_max_times == 5


def test_a_group_that_may_not_consume_gets_nothing(client, group) -> None:
    assert client.call(11, PULL).code == 19
    learn(group, consumeEnable=False)
    answer = client.call(11, PULL)
    assert (answer.code, answer.remark) == (16, "subscription group no permission, g")
    assert client.call(11, {**PULL, "consumerGroup": "other"}).code == 19
    learn(group, consumeEnable=True)
    assert client.call(11, PULL).code == 19


@pytest.mark.parametrize(("model", "code"), [("BROADCASTING", 16), ("CLUSTERING", 19)])
def test_a_group_that_may_not_broadcast_gets_nothing_that_way(client, group, model, code) -> None:
    data = ConsumerData(
        "g", message_model=model, subscription_data_set=[SubscriptionData("TopicTest")]
    )
    client.call(34, None, encode_body(HeartbeatData("c1", consumer_data_set=[data])))
    pull = {**PULL, "sysFlag": 0}
    assert client.call(11, pull).code == 19
    learn(group, consumeBroadcastEnable=False)
    assert client.call(11, pull).code == code


@pytest.mark.parametrize("language", ["JAVA", "GO"])
async def test_who_was_a_member_is_known_before_it_comes_back(connect, group, language) -> None:
    """38 after a failover: an error would make some clients give up all their queues."""
    group.consumers.began(Claim(BrokerId(2), Epoch(2), "i"))
    command, done = group.controllers.asked[-1]
    members = {"clients": [{"clientId": "a"}, {"clientId": "b"}]}
    done(reply(command, body=json.dumps({"groups": {"g": members}}).encode()))
    caller = connect(language)
    answer = caller.call(38, {"consumerGroup": "g"})
    assert json.loads(answer.body) == {"consumerIdList": ["a", "b"]}
    _, answer = caller.ask(38, {"consumerGroup": "unknown"})
    assert caller.conn.closed == (answer is None) == (language == "GO")
    group.consumers.end()
