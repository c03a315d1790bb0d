"""200, 201, 207, 31001 and 31002 as brokers, mqadmin and the next master send them."""

import json

import pytest
from gantry_controller.metadata.events import DeclareGroup
from support.controller_dispatcher import CLUSTER, NAME, Harness

GROUP = {"clusterName": CLUSTER, "brokerName": NAME}
MASTER = {**GROUP, "brokerId": "1", "masterEpoch": "1"}


@pytest.fixture
async def led(harness: Harness) -> Harness:
    """A Java group whose broker 1 is the master of epoch 1."""
    harness.join(1)
    assert harness.elect(1).code == 0
    return harness


def as_master(harness: Harness) -> dict[str, str]:
    """What broker 1 signs with; a Java broker's process has the number of its registration."""
    return {**MASTER, "incarnation": harness.group.master_incarnation}


async def test_subscription_group_as_mqadmin_makes_it(led: Harness) -> None:
    body = b'{"groupName":"g","consumeEnable":false,"retryMaxTimes":3,"unknown":1}'
    assert led.call(200, GROUP, body).ext == {"subscriptionsVersion": "1"}
    answer = led.call(201, GROUP)
    table = json.loads(answer.body)["subscriptionGroupTable"]
    assert (table["g"]["consumeEnable"], table["g"]["retryMaxTimes"]) == (False, 3)
    assert answer.ext == {"subscriptionsVersion": "1"}
    assert (led.call(1004, GROUP).ext or {})["subscriptionsVersion"] == "1"
    assert led.call(207, {**GROUP, "groupName": "g"}).ext == {"subscriptionsVersion": "2"}
    assert json.loads(led.call(201, GROUP).body)["subscriptionGroupTable"] == {}


async def test_attributes_of_a_subscription_group(led: Harness) -> None:
    def put(**attributes: str) -> int:
        body = {"groupName": "g", "attributes": attributes}
        return led.call(200, GROUP, json.dumps(body).encode()).code

    def read() -> dict[str, str]:
        table = json.loads(led.call(201, GROUP).body)["subscriptionGroupTable"]
        return table["g"]["attributes"]

    assert put(**{"+lite.bind.topic": "sessions", "+lite.sub.model": "Exclusive"}) == 0
    assert put(**{"-lite.sub.model": ""}) == 0
    assert read() == {"lite.bind.topic": "sessions"}
    assert put(**{"+lite.sub.model": "Both"}) == 29
    assert put() == 0
    assert read() == {"lite.bind.topic": "sessions"}


async def test_a_groups_attributes_are_changed_one_by_one(led: Harness) -> None:
    """As ``mqadmin updateSubGroup --attributes`` of 5.4 has it; who sends none changes none."""

    def put(**attributes: str) -> tuple[int, str | None]:
        body = json.dumps({"groupName": "g", "attributes": attributes}).encode()
        answer = led.call(200, GROUP, body)
        return answer.code, answer.remark

    def kept() -> dict[str, str]:
        table = json.loads(led.call(201, GROUP).body)["subscriptionGroupTable"]
        return table["g"]["attributes"]

    assert put(**{"+priority.factor": "30"}) == (0, None)
    assert put() == (0, None)
    assert kept() == {"priority.factor": "30"}
    assert put(**kept()) == (0, None), "what was read may be sent"
    for attributes, words in (
        ({"+priority.factor": "101"}, "priority.factor may be 0 to 100, not '101'"),
        ({"priority.factor": "-1"}, "priority.factor may be 0 to 100, not '-1'"),
        ({"+colour": "red"}, "'colour' is no attribute of consumer groups; known are lite"),
    ):
        code, remark = put(**attributes)
        assert (code, words in (remark or "")) == (29, True), remark
    assert kept() == {"priority.factor": "30"}
    assert put(**{"-priority.factor": ""}) == (0, None)
    assert kept() == {}
    assert put(**{"-priority.factor": ""})[0] == 29


async def test_members_are_reported_and_read(led: Harness) -> None:
    report = {"groups": {"g": {"clients": [{"clientId": "a"}]}, "h": {"clients": []}}}
    assert led.call(31001, as_master(led), json.dumps(report).encode()).code == 0
    groups = json.loads(led.call(31002, GROUP).body)["groups"]
    assert {
        name: [one["clientId"] for one in data["clients"]] for name, data in groups.items()
    } == {"g": ["a"]}
    assert json.loads(led.call(31002, {**GROUP, "consumerGroup": "x"}).body)["groups"] == {}
    assert led.call(31001, as_master(led), b'{"gone":["g"]}').code == 0
    assert json.loads(led.call(31002, GROUP).body)["groups"] == {}


async def test_owners_of_queues_are_reported_and_read(led: Harness) -> None:
    owner = {"topic": "t", "queueId": 3, "clientId": "a"}
    claims = {**as_master(led), "serial": "4"}
    assert led.call(31011, claims, json.dumps({"groups": {"g": [owner]}}).encode()).code == 0
    assert json.loads(led.call(31012, GROUP).body) == {
        "groups": {"g": [owner]},
        "epoch": 1,
        "serial": 4,
    }
    free = {"topic": "t", "queueId": 3}
    claims["serial"] = "5"
    assert led.call(31011, claims, json.dumps({"groups": {"g": [free]}}).encode()).code == 0
    assert json.loads(led.call(31012, GROUP).body)["groups"] == {}
    stranger = {**claims, "masterEpoch": "7", "serial": "6"}
    assert led.call(31011, stranger, b'{"groups":{}}').code == 2000
    assert led.call(31012, {**GROUP, "brokerName": "none"}).code == 2008


async def test_who_is_not_the_master_is_refused(led: Harness) -> None:
    claims = {**as_master(led), "masterEpoch": "7"}
    assert led.call(31001, claims, b'{"gone":["g"]}').code == 2000
    assert led.call(31001, MASTER, b'{"gone":["g"]}').code == 2002  # signed by nobody
    nowhere = {**GROUP, "brokerName": "none"}
    assert (led.call(31002, nowhere).code, led.call(201, nowhere).code) == (2008, 2008)


async def test_a_name_in_two_clusters_is_no_name(led: Harness) -> None:
    """Nothing is guessed where the wire leaves the cluster out; both groups stay as they are."""
    led.apply(DeclareGroup(cluster="d", name=NAME, uid="u", replicas=1, min_in_sync_replicas=1))
    only_name = {"brokerName": NAME}
    for code, ext, body in (
        (1001, {**only_name, "masterBrokerId": "1", "masterEpoch": "1"}, b'{"syncStateSet":[1]}'),
        (1002, only_name, b""),
        (1004, only_name, b""),
        (1006, {}, json.dumps([NAME]).encode()),
        (1011, {**only_name, "isCleanLivingBroker": "true"}, b""),
        (201, only_name, b""),
        (31002, only_name, b""),
    ):
        answer = led.call(code, ext, body)
        assert (answer.code, "several clusters (c, d)" in str(answer.remark)) == (2005, True), code
    assert led.call(1004, GROUP).code == 0
