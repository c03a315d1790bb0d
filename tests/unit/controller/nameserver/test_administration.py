"""What ``mqadmin`` asks of a name server, in its words (upstream's ``RequestProcessorTest``)."""

import json

import pytest
from gantry_protocol.codes import ResponseCode
from support.controller_dispatcher import CLUSTER, NAME, Office

ORDER = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Orders"}


class TestKeyValues:
    async def test_put_get_delete(self, office: Office) -> None:
        assert office.call(100, {**ORDER, "value": "broker-a:8"}).code == 0
        assert office.call(101, ORDER).ext == {"value": "broker-a:8"}
        assert office.call(102, ORDER).code == 0
        assert office.call(101, ORDER).code == ResponseCode.QUERY_NOT_FOUND

    async def test_list(self, office: Office) -> None:
        for key in ("b", "a"):
            office.call(100, {"namespace": "n", "key": key, "value": f"<{key}>"})
        assert office.call(219, {"namespace": "n"}).body == b'{"table":{"a":"<a>","b":"<b>"}}'

    @pytest.mark.parametrize(
        ("code", "remark"),
        [
            (101, "No config item, Namespace: ORDER_TOPIC_CONFIG Key: Orders"),
            (219, "No config item, Namespace: ORDER_TOPIC_CONFIG"),
        ],
    )
    async def test_nothing_there(self, office: Office, code: int, remark: str) -> None:
        answer = office.call(code, ORDER)
        assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, remark)

    async def test_a_write_that_is_sent_to_every_server_is_kept_once(self, office: Office) -> None:
        for _ in range(3):
            assert office.call(100, {**ORDER, "value": "broker-a:8"}).code == 0
        assert office.machine.state.kv["ORDER_TOPIC_CONFIG"].version == 1

    async def test_refusal_is_a_sentence(self, office: Office) -> None:
        answer = office.call(100, {**ORDER, "value": "8"})
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "not '8'" in str(answer.remark)
        assert json.loads(office.call(206).body) == {"topicList": []}

    @pytest.mark.parametrize("code", [101, 219])
    async def test_reads_are_linearizable(self, office: Office, code: int) -> None:
        reads = office.quorum.reads
        office.call(code, ORDER)
        assert office.quorum.reads == reads + 1

    @pytest.mark.parametrize("code", [100, 101, 102, 219])
    async def test_without_a_leader(self, office: Office, code: int) -> None:
        office.quorum.follow(None)
        assert office.call(code, {**ORDER, "value": "a:1"}).code == ResponseCode.SYSTEM_ERROR


def start(office: Office) -> None:
    """A group with a master, and a topic that may be written and one that may only be read."""
    office.join(1)
    assert office.elect(1).code == 0
    for topic, perm in (("Orders", "6"), ("Archive", "4")):
        create = {"topic": topic, "readQueueNums": "4", "writeQueueNums": "4", "perm": perm}
        assert office.call(17, {**create, "clusterName": CLUSTER}).code == 0


def perms(office: Office) -> dict[str, int]:
    """Of each topic, as clients see them."""
    routes = {
        topic: office.call(105, {"topic": topic}) for topic in ("Orders", "Archive", "TBW102")
    }
    return {
        topic: json.loads(answer.body)["queueDatas"][0]["perm"] for topic, answer in routes.items()
    }


class TestWritePerm:
    async def test_wipe_and_add_back(self, office: Office) -> None:
        start(office)
        before = perms(office)
        assert before == {"Orders": 6, "Archive": 4, "TBW102": 7}
        assert office.call(205, {"brokerName": NAME}).ext == {"wipeTopicCount": "2"}
        assert perms(office) == {"Orders": 4, "Archive": 4, "TBW102": 5}
        assert office.call(327, {"brokerName": NAME}).ext == {"addTopicCount": "2"}
        assert perms(office) == before, "upstream makes everything 6"

    async def test_each_of_the_name_servers_is_told(self, office: Office) -> None:
        start(office)
        for _ in range(3):
            assert office.call(205, {"brokerName": NAME}).ext == {"wipeTopicCount": "2"}

    async def test_only_routes_show_it(self, office: Office) -> None:
        """A broker that read it as its topics' perm would refuse what is still on its way."""
        start(office)
        named = {"clusterName": CLUSTER, "brokerName": NAME}
        before = office.call(21, named).body
        office.call(205, {"brokerName": NAME})
        assert office.call(21, named).body == before

    @pytest.mark.parametrize("code", [205, 327])
    async def test_refusals(self, office: Office, code: int) -> None:
        answer = office.call(code, {"brokerName": "nobody"})
        assert (answer.code, answer.remark) == (1, "There is no broker group nobody")
        for cluster in ("c", "d"):
            body = {"topicConfigSerializeWrapper": {}}
            named = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": cluster}
            report = {**named, "brokerId": "0"}
            assert office.call(103, report, json.dumps(body).encode()).code == 0
        assert office.call(code, {"brokerName": "b"}).code == ResponseCode.INVALID_PARAMETER
        assert office.call(code, {"brokerName": "b", "clusterName": "d"}).code == 0


class TestConfig:
    async def test_listing(self, office: Office) -> None:
        """``mqadmin getNamesrvConfig`` shows the node's own settings, and those of all."""
        assert office.call(319).body == (
            b"bind=127.0.0.1\nname=controller-0\norderMessageEnable=false\n"
            b"returnOrderTopicConfigToBroker=true\n"
        )

    async def test_change_is_in_the_listing(self, office: Office) -> None:
        assert office.call(318, body=b"orderMessageEnable=true\n").code == 0
        assert b"\norderMessageEnable=true\n" in office.call(319).body

    async def test_refusal(self, office: Office) -> None:
        answer = office.call(318, body=b"listenPort=9876\n")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "'listenPort' does not change" in str(answer.remark)

    async def test_listing_is_a_linearizable_read(self, office: Office) -> None:
        reads = office.quorum.reads
        office.call(319)
        assert office.quorum.reads == reads + 1


class TestOrder:
    """``mqadmin updateOrderConf``, as routes and brokers of the old kind see it."""

    VALUE = "broker-a:4"

    async def test_route_says_it_once_that_is_enabled(self, office: Office) -> None:
        start(office)
        office.call(100, {**ORDER, "value": self.VALUE})
        assert b"orderTopicConf" not in office.call(105, {"topic": "Orders"}).body
        office.call(318, body=b"orderMessageEnable=true")
        assert (
            json.loads(office.call(105, {"topic": "Orders"}).body)["orderTopicConf"] == self.VALUE
        )
        assert b"orderTopicConf" not in office.call(105, {"topic": "Archive"}).body
        office.call(102, ORDER)
        assert b"orderTopicConf" not in office.call(105, {"topic": "Orders"}).body

    async def test_brokers_are_told_which_topics_are_ordered(self, office: Office) -> None:
        named = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": "0"}
        body = b'{"topicConfigSerializeWrapper":{}}'
        assert office.call(103, named, body).body == b""
        office.call(100, {**ORDER, "value": self.VALUE})
        for _ in range(2):  # reported for the first time, or again: nothing new
            assert office.call(103, named, body).body == b'{"table":{"Orders":"broker-a:4"}}'
        office.call(318, body=b"returnOrderTopicConfigToBroker=false")
        assert office.call(103, named, body).body == b""


class TestReportOfOneTopic:
    async def test_as_a_java_broker_sends_it(self, office: Office) -> None:
        """``enableSingleTopicRegister``; the body is a whole ``TopicRouteData``."""
        named = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": "0"}
        office.call(103, named, b'{"topicConfigSerializeWrapper":{}}')
        queues = (
            b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,'
            b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        )
        assert office.call(217, {"topic": "Orders"}, queues).code == 0
        (queue,) = json.loads(office.call(105, {"topic": "Orders"}).body)["queueDatas"]
        assert (queue["brokerName"], queue["perm"], queue["readQueueNums"]) == ("b", 6, 4)
        nobody = queues.replace(b'"b"', b'"nobody"')
        answer = office.call(217, {"topic": "Orders"}, nobody)
        assert answer.code == ResponseCode.INVALID_PARAMETER
