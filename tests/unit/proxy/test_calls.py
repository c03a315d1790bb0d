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
from gantry_proxy.calls import DOUBT_AGE_S, ROUTE_AGE_S, Masters
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


class Failover:
    """A group whose master was at x:1; from `elected_s` on name servers lead to y:1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, elected_s: float = 0.3) -> None:
        self.masters = Masters(["10.0.0.1:9876"])
        self.asked: list[str] = []
        self.routes = 0
        self.trouble: Exception = REFUSED
        self.meanwhile: RemotingCommand | None = route_to("x:1")  # None: they do not answer
        self._elected_s = elected_s
        monkeypatch.setattr(self.masters, "_once", self._once)

    async def _once(
        self, address: str, command: RemotingCommand, within_s: float
    ) -> RemotingCommand:
        now_s = asyncio.get_running_loop().time()
        if command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            self.asked.append(address)
            if address == "x:1":
                raise self.trouble
            return DONE
        self.routes += 1
        await asyncio.sleep(0.01)
        if self.routes == 1 or now_s < self._elected_s:
            if self.meanwhile is None and self.routes > 1:
                await asyncio.sleep(within_s)
                raise RequestTimeout("silent")
            return route_to("x:1") if self.routes == 1 or not self.meanwhile else self.meanwhile
        return route_to("y:1")


NO_MASTER = encode_body(
    TopicRouteData(
        broker_datas=[BrokerData({}, "a", "c")],
        queue_datas=[QueueData("a", 6, 4, 4)],
        filter_server_table={},
    )
)


@pytest.mark.parametrize(
    "meanwhile",
    [
        route_to("x:1"),
        RemotingCommand(code=ResponseCode.SUCCESS, body=NO_MASTER),
        RemotingCommand(code=ResponseCode.TOPIC_NOT_EXIST),
        None,
    ],
    ids=["old master", "no master", "no topic", "silence"],
)
async def test_a_request_follows_the_group_to_its_next_master(
    monkeypatch: pytest.MonkeyPatch, meanwhile: RemotingCommand | None
) -> None:
    group = Failover(monkeypatch)
    group.meanwhile = meanwhile
    address = await group.masters.place("orders", "a")
    call = asyncio.create_task(group.masters.call(address, a_request, 3))
    await asyncio.sleep(0.27)  # a route was asked for meanwhile
    assert await group.masters.place("orders", "a") == "x:1"
    assert (await call) is DONE
    assert set(group.asked[:-1]) == {"x:1"}
    assert asyncio.get_running_loop().time() < ROUTE_AGE_S / 5
    assert await group.masters.place("orders", "a") == "y:1"


async def test_of_many_requests_that_fail_one_asks_for_the_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Failover(monkeypatch, elected_s=1)
    address = await group.masters.place("orders", "a")
    calls = [group.masters.call(address, a_request, 3) for _ in range(50)]
    assert await asyncio.gather(*calls) == [DONE] * 50
    assert group.routes <= 1 + 1.5 / DOUBT_AGE_S


@pytest.mark.parametrize("lost", [RequestTimeout("late"), ConnectionClosed("gone")])
@pytest.mark.parametrize("way", ["call", "poll"])
async def test_the_call_after_a_lost_answer_finds_the_next_master(
    monkeypatch: pytest.MonkeyPatch, lost: Exception, way: str
) -> None:
    group = Failover(monkeypatch, elected_s=0)
    address = await group.masters.place("orders", "a")
    group.trouble = lost
    monkeypatch.setattr(group.masters, "_polls", Gone(lost))
    await asyncio.sleep(DOUBT_AGE_S)
    lost_call = (
        group.masters.poll(address, a_request(), 3)
        if way == "poll"
        else group.masters.call(address, a_request, 3)
    )
    with pytest.raises(CallRefused):
        await lost_call
    assert await group.masters.place("orders", "a") == "y:1"


class Gone:
    """A pool of connections that end."""

    def __init__(self, trouble: Exception) -> None:
        self._trouble = trouble

    async def get(self, address: str, within_s: float) -> None:
        raise self._trouble


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
