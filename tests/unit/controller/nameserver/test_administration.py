"""What ``mqadmin`` asks of a name server, in its words (upstream's ``RequestProcessorTest``)."""

import json

import pytest
from gantry_protocol.codes import ResponseCode
from support.controller_desk import Office

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
