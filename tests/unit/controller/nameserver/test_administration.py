"""What ``mqadmin`` asks of a name server, in its words (upstream's ``RequestProcessorTest``)."""

import json

import pytest
from gantry_protocol.codes import ResponseCode
from support.controller_dispatcher import CLUSTER, NAME, Harness

ORDER = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Orders"}


class TestKeyValues:
    async def test_put_get_delete(self, harness: Harness) -> None:
        assert harness.call(100, {**ORDER, "value": "broker-a:8"}).code == 0
        assert harness.call(101, ORDER).ext == {"value": "broker-a:8"}
        assert harness.call(102, ORDER).code == 0
        assert harness.call(101, ORDER).code == ResponseCode.QUERY_NOT_FOUND

    async def test_list(self, harness: Harness) -> None:
        for key in ("b", "a"):
            harness.call(100, {"namespace": "n", "key": key, "value": f"<{key}>"})
        assert harness.call(219, {"namespace": "n"}).body == b'{"table":{"a":"<a>","b":"<b>"}}'

    @pytest.mark.parametrize(
        ("code", "remark"),
        [
            (101, "No config item, Namespace: ORDER_TOPIC_CONFIG Key: Orders"),
            (219, "No config item, Namespace: ORDER_TOPIC_CONFIG"),
        ],
    )
    async def test_nothing_there(self, harness: Harness, code: int, remark: str) -> None:
        answer = harness.call(code, ORDER)
        assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, remark)

    async def test_a_write_that_is_sent_to_every_server_is_kept_once(
        self, harness: Harness
    ) -> None:
        for _ in range(3):
            assert harness.call(100, {**ORDER, "value": "broker-a:8"}).code == 0
        assert harness.machine.state.kv["ORDER_TOPIC_CONFIG"].version == 1

    async def test_refusal_is_a_sentence(self, harness: Harness) -> None:
        answer = harness.call(100, {**ORDER, "value": "8"})
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "not '8'" in str(answer.remark)
        assert json.loads(harness.call(206).body) == {"topicList": []}

    @pytest.mark.parametrize("code", [101, 219])
    async def test_reads_are_linearizable(self, harness: Harness, code: int) -> None:
        reads = harness.quorum.reads
        harness.call(code, ORDER)
        assert harness.quorum.reads == reads + 1

    @pytest.mark.parametrize("code", [100, 101, 102, 219])
    async def test_without_a_leader(self, harness: Harness, code: int) -> None:
        harness.quorum.follow(None)
        assert harness.call(code, {**ORDER, "value": "a:1"}).code == ResponseCode.SYSTEM_ERROR


def start(harness: Harness) -> None:
    """A group with a master, and a topic that may be written and one that may only be read."""
    harness.join(1)
    assert harness.elect(1).code == 0
    for topic, perm in (("Orders", "6"), ("Archive", "4")):
        create = {"topic": topic, "readQueueNums": "4", "writeQueueNums": "4", "perm": perm}
        assert harness.call(17, {**create, "clusterName": CLUSTER}).code == 0


def perms(harness: Harness) -> dict[str, int]:
    """Of each topic, as clients see them."""
    routes = {
        topic: harness.call(105, {"topic": topic}) for topic in ("Orders", "Archive", "TBW102")
    }
    return {
        topic: json.loads(answer.body)["queueDatas"][0]["perm"] for topic, answer in routes.items()
    }


class TestWritePerm:
    async def test_wipe_and_add_back(self, harness: Harness) -> None:
        start(harness)
        before = perms(harness)
        assert before == {"Orders": 6, "Archive": 4, "TBW102": 7}
        assert harness.call(205, {"brokerName": NAME}).ext == {"wipeTopicCount": "2"}
        assert perms(harness) == {"Orders": 4, "Archive": 4, "TBW102": 5}
        assert harness.call(327, {"brokerName": NAME}).ext == {"addTopicCount": "2"}
        assert perms(harness) == before, "upstream makes everything 6"

    async def test_each_of_the_name_servers_is_told(self, harness: Harness) -> None:
        start(harness)
        for _ in range(3):
            assert harness.call(205, {"brokerName": NAME}).ext == {"wipeTopicCount": "2"}

    async def test_only_routes_show_it(self, harness: Harness) -> None:
        """A broker that read it as its topics' perm would refuse what is still on its way."""
        start(harness)
        named = {"clusterName": CLUSTER, "brokerName": NAME}
        before = harness.call(21, named).body
        harness.call(205, {"brokerName": NAME})
        assert harness.call(21, named).body == before

    @pytest.mark.parametrize("code", [205, 327])
    async def test_refusals(self, harness: Harness, code: int) -> None:
        answer = harness.call(code, {"brokerName": "nobody"})
        assert (answer.code, answer.remark) == (1, "There is no broker group nobody")
        for cluster in ("c", "d"):
            body = {"topicConfigSerializeWrapper": {}}
            named = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": cluster}
            report = {**named, "brokerId": "0"}
            assert harness.call(103, report, json.dumps(body).encode()).code == 0
        assert harness.call(code, {"brokerName": "b"}).code == ResponseCode.INVALID_PARAMETER
        assert harness.call(code, {"brokerName": "b", "clusterName": "d"}).code == 0


class TestConfig:
    async def test_listing(self, harness: Harness) -> None:
        """``mqadmin getNamesrvConfig`` shows the node's own settings, and those of all."""
        assert harness.call(319).body == (
            b"bind=127.0.0.1\nname=controller-0\norderMessageEnable=false\n"
            b"returnOrderTopicConfigToBroker=true\n"
        )

    async def test_change_is_in_the_listing(self, harness: Harness) -> None:
        assert harness.call(318, body=b"orderMessageEnable=true\n").code == 0
        assert b"\norderMessageEnable=true\n" in harness.call(319).body

    async def test_refusal(self, harness: Harness) -> None:
        answer = harness.call(318, body=b"listenPort=9876\n")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "'listenPort' does not change" in str(answer.remark)

    async def test_listing_is_a_linearizable_read(self, harness: Harness) -> None:
        reads = harness.quorum.reads
        harness.call(319)
        assert harness.quorum.reads == reads + 1


class TestOrder:
    """``mqadmin updateOrderConf``, as routes and brokers of the old kind see it."""

    VALUE = "broker-a:4"

    async def test_route_says_it_once_that_is_enabled(self, harness: Harness) -> None:
        start(harness)
        harness.call(100, {**ORDER, "value": self.VALUE})
        assert b"orderTopicConf" not in harness.call(105, {"topic": "Orders"}).body
        harness.call(318, body=b"orderMessageEnable=true")
        assert (
            json.loads(harness.call(105, {"topic": "Orders"}).body)["orderTopicConf"] == self.VALUE
        )
        assert b"orderTopicConf" not in harness.call(105, {"topic": "Archive"}).body
        harness.call(102, ORDER)
        assert b"orderTopicConf" not in harness.call(105, {"topic": "Orders"}).body

    async def test_brokers_are_told_which_topics_are_ordered(self, harness: Harness) -> None:
        named = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": "0"}
        body = b'{"topicConfigSerializeWrapper":{}}'
        assert harness.call(103, named, body).body == b""
        harness.call(100, {**ORDER, "value": self.VALUE})
        for _ in range(2):  # reported for the first time, or again: nothing new
            assert harness.call(103, named, body).body == b'{"table":{"Orders":"broker-a:4"}}'
        harness.call(318, body=b"returnOrderTopicConfigToBroker=false")
        assert harness.call(103, named, body).body == b""


class TestReportOfOneTopic:
    async def test_as_a_java_broker_sends_it(self, harness: Harness) -> None:
        """``enableSingleTopicRegister``; the body is a whole ``TopicRouteData``."""
        named = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": "0"}
        harness.call(103, named, b'{"topicConfigSerializeWrapper":{}}')
        queues = (
            b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,'
            b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        )
        assert harness.call(217, {"topic": "Orders"}, queues).code == 0
        (queue,) = json.loads(harness.call(105, {"topic": "Orders"}).body)["queueDatas"]
        assert (queue["brokerName"], queue["perm"], queue["readQueueNums"]) == ("b", 6, 4)
        nobody = queues.replace(b'"b"', b'"nobody"')
        answer = harness.call(217, {"topic": "Orders"}, nobody)
        assert answer.code == ResponseCode.INVALID_PARAMETER
