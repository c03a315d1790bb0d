"""Answers that grow with the number of groups: made in turns of the loop, complete, and bounded."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from gantry_controller import turns
from gantry_controller.metadata.events import CreateTopic, DeclareGroup, RemoveGroup
from gantry_controller.metadata.topic_table import BUILT_IN_TOPICS, Topic
from gantry_controller.nameserver import routes
from gantry_controller.remoting import control, dispatcher, topics
from gantry_protocol.bodies import ClusterInfo, TopicRouteData, encode_body
from gantry_protocol.codes import ResponseCode
from support.controller_dispatcher import CLUSTER, Harness
from support.patience import PATIENCE_S
from support.turns import Turns

if TYPE_CHECKING:
    from gantry_protocol.command import RemotingCommand

GROUPS = 12
BITS = 4


@pytest.fixture
async def many(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Twelve groups with a master and a topic each, looked at four in a turn."""
    for module in (routes, control, topics, turns):
        monkeypatch.setattr(module, "BITS", BITS)
    for number in range(GROUPS):
        named = {"cluster": CLUSTER, "name": f"g{number:02d}"}
        harness.apply(DeclareGroup(**named, uid=f"u{number}", replicas=1, min_in_sync_replicas=1))
        harness.call(1013, fields(named, appliedBrokerId="1", registerCheckCode="c"))
        harness.call(1003, fields(named, brokerId="1", brokerAddress=f"10.0.0.{number}:10911"))
        harness.call(1002, fields(named, brokerId="1", designateElect="false"))
        harness.apply(CreateTopic(**named, topic=f"t{number}", config=Topic(4, 4, 6)))
    return harness


def fields(named: dict[str, str], **ext: str) -> dict[str, str]:
    return {"clusterName": named["cluster"], "brokerName": named["name"], **ext}


async def answered(replies: list[RemotingCommand]) -> RemotingCommand:
    async with asyncio.timeout(PATIENCE_S):
        while not replies:
            await asyncio.sleep(0)
    return replies[0]


LISTS = [
    pytest.param(106, {}, routes, "broker_data", id="cluster-info"),
    pytest.param(105, {"topic": "TBW102"}, routes, "_part_in_route", id="route-of-the-template"),
]


@pytest.mark.parametrize(("code", "ext", "module", "name"), LISTS)
async def test_one_bit_of_work_is_done_in_a_turn_however_many_ask(
    many: Harness,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    ext: dict[str, str],
    module: object,
    name: str,
) -> None:
    counted = Turns()
    monkeypatch.setattr(module, name, counted.noting(getattr(module, name)))
    asked = [many.ask(code, ext, connection=number) for number in range(5)]
    answers = [await answered(replies) for replies in asked]
    counted.stop()
    assert len({answer.body for answer in answers}) == 1
    assert sum(counted.calls.values()) >= 5 * GROUPS
    assert max(counted.calls.values()) <= 2 * BITS  # the first bits of a turn: at once, and queued


async def test_the_answer_is_what_it_would_be_in_one_piece(many: Harness) -> None:
    body = (await answered(many.ask(106))).body
    names = [f"g{number:02d}" for number in range(GROUPS)]
    state = many.machine.state
    table = {name: routes.broker_data(state, (CLUSTER, name)) for name in names}
    assert body == encode_body(ClusterInfo(table, {CLUSTER: names}))
    body = (await answered(many.ask(105, {"topic": "TBW102"}))).body
    route = msgspec.json.decode(body, type=TopicRouteData)
    assert body == encode_body(route)
    assert [one.broker_name for one in route.broker_datas] == names
    assert [one.broker_name for one in route.queue_datas] == names


async def test_every_topic_is_listed(many: Harness) -> None:
    expected = sorted({*BUILT_IN_TOPICS, *(f"t{number}" for number in range(GROUPS))})
    for code, ext in ((206, {}), (224, {"cluster": CLUSTER})):
        body = json.loads((await answered(many.ask(code, ext))).body)
        assert set(expected) - set(BUILT_IN_TOPICS) <= set(body["topicList"]) <= set(expected)
        assert body["topicList"] == sorted(body["topicList"])


async def test_a_group_that_goes_meanwhile_is_left_out(many: Harness) -> None:
    replies = many.ask(105, {"topic": "TBW102"})
    assert not replies
    many.apply(RemoveGroup(cluster=CLUSTER, name="g11", uid="u11"))
    body = json.loads((await answered(replies)).body)
    assert [one["brokerName"] for one in body["brokerDatas"]][-1] == "g10"


async def test_a_short_route_waits_for_no_long_answer(
    many: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients ask for them all the time; one list of all groups must not keep them waiting."""
    monkeypatch.setattr(turns, "WAITING_MAX", 1)
    slow = many.ask(106)
    (route,) = many.ask(105, {"topic": "t3"})
    assert [one["brokerName"] for one in json.loads(route.body)["brokerDatas"]] == ["g03"]
    (unknown,) = many.ask(105, {"topic": "nowhere"})
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    (busy,) = many.ask(105, {"topic": "TBW102"})
    assert busy.code == ResponseCode.SYSTEM_BUSY
    assert not slow
    await answered(slow)


async def test_a_route_of_many_groups_waits_like_any_list(
    many: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "SHORT", 1)
    for number in range(2):
        named = {"cluster": CLUSTER, "name": f"g{number:02d}"}
        many.apply(CreateTopic(**named, topic="wide", config=Topic(4, 4, 6)))
    slow, wide = many.ask(106), many.ask(105, {"topic": "wide"})
    assert not wide
    assert (await answered(slow)).code == 0
    assert len(json.loads((await answered(wide)).body)["brokerDatas"]) == 2


async def test_work_that_fails_does_not_stop_what_waits_behind_it() -> None:
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: failures.append(about))
    queue, done = turns.TurnQueue(), list[str]()

    def broken() -> bool:
        raise RuntimeError("broken")

    queue.add(broken)
    queue.add(lambda: done.append("next") is None)
    for _ in range(4):
        await asyncio.sleep(0)
    assert (done, len(failures), len(queue)) == (["next"], 1, 0)


async def test_beyond_the_bound_the_answer_is_busy(
    many: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "WAITING_MAX", 2)
    asked = [many.ask(106) for _ in range(3)]
    codes = [(await answered(replies)).code for replies in asked]
    assert codes == [0, 0, ResponseCode.SYSTEM_BUSY]
    assert many.dispatcher.long_answers.refused == 1


async def test_an_answer_that_nobody_waits_for_is_not_made(
    many: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "ANSWER_WITHIN_S", -1.0)
    replies = many.ask(106)
    many.dispatcher._expire()
    assert (await answered(replies)).code == ResponseCode.SYSTEM_BUSY
    counted = Turns()
    monkeypatch.setattr(routes, "broker_data", counted.noting(routes.broker_data))
    while many.dispatcher.long_answers:
        await asyncio.sleep(0)
    counted.stop()
    assert not counted.calls
    assert len(replies) == 1


async def test_an_error_amid_it_is_told_and_the_next_answer_is_made(
    many: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    asked = [many.ask(106), many.ask(206)]
    with monkeypatch.context() as patch:
        patch.setattr(routes, "broker_data", broken)
        assert (await answered(asked[0])).code == ResponseCode.SYSTEM_ERROR
    assert (await answered(asked[1])).code == 0


async def test_sorting_in_turns_sorts() -> None:
    items = [(number * 7919) % 10_007 for number in range(10_000)]
    work = turns.sorted_in_turns(items, lambda one: -one)
    bits = 1
    while (outcome := turns.step(work)) is None:
        bits += 1
    assert outcome[0] == sorted(items, reverse=True)
    assert bits > 2
