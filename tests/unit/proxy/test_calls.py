"""Requests to masters: tried again while they surely were not carried out, and never else."""

from __future__ import annotations

import asyncio

import pytest
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import ConnectError, ConnectionClosed, RequestTimeout
from gantry_protocol.send_answer import MAY_BE_STORED
from gantry_proxy.calls import ROUTE_AGE_S, Masters
from gantry_proxy.core.refusals import CallRefused

pytestmark = pytest.mark.looptime

BUSY = RemotingCommand(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="no master")
DONE = RemotingCommand(code=ResponseCode.SUCCESS)
REFUSED = ConnectError("nobody", refused=True)


def answering(monkeypatch: pytest.MonkeyPatch, *answers: object) -> tuple[Masters, list[str]]:
    """Masters whose requests are answered so, one after the other; the last one for ever."""
    masters, asked = Masters(["10.0.0.1:9876", "10.0.0.2:9876"]), []
    left = list(answers)

    async def once(address: str, command: RemotingCommand, within_s: float) -> RemotingCommand:
        asked.append(address)
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, RemotingCommand)
        return answer

    monkeypatch.setattr(masters, "_once", once)
    return masters, asked


def a_request() -> RemotingCommand:
    return request(RequestCode.ACK_MESSAGE)


async def test_what_was_surely_not_carried_out_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masters, asked = answering(monkeypatch, REFUSED, BUSY, DONE)
    assert (await masters.call("a:1", a_request, 3)) is DONE
    assert (len(asked), masters.tried_again) == (3, 2)


async def test_what_may_be_stored_is_told_and_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = RemotingCommand(code=ResponseCode.SERVICE_NOT_AVAILABLE, ext={MAY_BE_STORED: "true"})
    masters, asked = answering(monkeypatch, stored, DONE)
    assert (await masters.call("a:1", a_request, 3)) is stored
    assert len(asked) == 1


@pytest.mark.parametrize("lost", [RequestTimeout("late"), ConnectionClosed("gone")])
async def test_a_lost_answer_is_the_client_s_to_judge(
    monkeypatch: pytest.MonkeyPatch, lost: Exception
) -> None:
    masters, asked = answering(monkeypatch, lost, DONE)
    with pytest.raises(CallRefused) as refused:
        await masters.call("a:1", a_request, 3)
    assert (refused.value.code, len(asked)) == ("PROXY_TIMEOUT", 1)
    masters, asked = answering(monkeypatch, lost, DONE)
    assert (await masters.call("a:1", a_request, 3, repeatable=True)) is DONE


async def test_nobody_is_asked_beyond_the_client_s_time(monkeypatch: pytest.MonkeyPatch) -> None:
    masters, _ = answering(monkeypatch, BUSY)
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(CallRefused, match="no master takes it: no master"):
        await masters.call("a:1", a_request, 2)
    assert asyncio.get_running_loop().time() - began_s <= 2


def route_to(address: str) -> RemotingCommand:
    body = TopicRouteData(
        broker_datas=[BrokerData({0: address}, "a", "c")],
        queue_datas=[QueueData("a", 6, 4, 4)],
        filter_server_table={},
    )
    return RemotingCommand(code=ResponseCode.SUCCESS, body=encode_body(body))


async def test_a_route_is_asked_for_again_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    masters, asked = answering(monkeypatch, route_to("x:1"), route_to("y:1"))
    assert await masters.place("orders", "a") == "x:1"
    assert await masters.place("orders", "a") == "x:1"
    await asyncio.sleep(ROUTE_AGE_S)
    assert await masters.place("orders", "a") == "y:1"
    assert len(asked) == 2


async def test_a_route_holds_while_no_name_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    masters, asked = answering(monkeypatch, route_to("x:1"), REFUSED)
    await masters.route("orders")
    await asyncio.sleep(ROUTE_AGE_S)
    assert await masters.place("orders", "a") == "x:1"
    assert len(set(asked)) == 2  # each was asked
    with pytest.raises(CallRefused, match="no name server answers"):
        await masters.route("invoices")


async def test_a_topic_that_is_gone_has_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = RemotingCommand(code=ResponseCode.TOPIC_NOT_EXIST, remark="gone")
    masters, _ = answering(monkeypatch, route_to("x:1"), gone)
    await masters.route("orders")
    await asyncio.sleep(ROUTE_AGE_S)
    for _ in range(2):
        with pytest.raises(CallRefused) as refused:
            await masters.route("orders")
        assert refused.value.code == "TOPIC_NOT_FOUND"


@pytest.mark.parametrize("name", ["b", "", "a b"])
async def test_a_group_without_the_topic_is_none(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    masters, _ = answering(monkeypatch, route_to("x:1"))
    with pytest.raises(CallRefused, match="no queue in group"):
        await masters.place("orders", name)
