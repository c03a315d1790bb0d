"""31013 to 31016, as brokers send them, and what routes say of mapped topics."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from gantry_controller.metadata.events import DeclareGroup, DeleteTopic, MapQueues
from gantry_controller.remoting import queue_maps
from gantry_protocol.bodies.queue_maps import QueueMaps
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX
from support.controller_dispatcher import CLUSTER, NAME, Harness, address

GET, MAP, SEAL, RELEASE = (
    RequestCode.GANTRY_GET_QUEUE_MAPS,
    RequestCode.GANTRY_MAP_QUEUES,
    RequestCode.GANTRY_SEAL_QUEUES,
    RequestCode.GANTRY_RELEASE_SEGMENTS,
)


def start(harness: Harness) -> None:
    """One group with a master, one without."""
    for name in (NAME, "broker-b"):
        harness.apply(
            DeclareGroup(cluster=CLUSTER, name=name, uid=name, replicas=1, min_in_sync_replicas=1)
        )
    harness.join(1)
    assert harness.elect(1).code == 0


def make(harness: Harness, topic: str, queues: int, *places: tuple[int, str]) -> None:
    event = MapQueues(cluster=CLUSTER, topic=topic, queues=queues, places=places)
    assert harness.apply(event).ok


def ask(
    harness: Harness, index: int = 0, ended: int = 0, wait_ms: int = 0
) -> list[RemotingCommand]:
    ext = {"clusterName": CLUSTER, "knownIndex": str(index), "knownEnded": str(ended)}
    return harness.ask(GET, {**ext, "waitMs": str(wait_ms)})


def read(answers: list[RemotingCommand]) -> QueueMaps:
    (answer,) = answers
    assert answer.code == 0, answer
    return msgspec.json.decode(answer.body, type=QueueMaps)


async def test_a_broker_is_told_what_it_does_not_know(harness: Harness) -> None:
    start(harness)
    make(harness, "t", 2)
    first = read(ask(harness))
    assert list(first.maps) == ["t"]
    assert first.maps["t"] == harness.machine.state.queue_map(CLUSTER, "t")
    assert first.masters == {NAME: address(1), "broker-b": ""}
    make(harness, "u", 1)
    second = read(ask(harness, first.index))
    assert list(second.maps) == ["u"]
    nothing = read(ask(harness, second.index))
    assert (nothing.maps, nothing.index, nothing.is_all) == ({}, second.index, False)


async def test_news_is_told_in_the_next_turn(harness: Harness) -> None:
    start(harness)
    make(harness, "t", 1)
    known = read(ask(harness))
    answers = ask(harness, known.index, known.ended, 5000)
    await asyncio.sleep(0)
    assert answers == []
    make(harness, "t", 2)
    await asyncio.sleep(0)
    assert len(read(answers).maps["t"].queues) == 2


async def test_a_deleted_map_is_told_by_all_that_are_left(harness: Harness) -> None:
    start(harness)
    make(harness, "t", 1)
    make(harness, "u", 1)
    known = read(ask(harness))
    answers = ask(harness, known.index, known.ended, 5000)
    harness.apply(DeleteTopic(cluster=CLUSTER, name="", topic="t"))
    await asyncio.sleep(0)
    told = read(answers)
    assert (told.is_all, list(told.maps)) == (True, ["u"])
    again = read(ask(harness, told.index, told.ended))
    assert (again.is_all, again.maps) == (False, {})


async def test_many_queues_come_in_several_answers(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_maps, "QUEUES_TOLD_MAX", 3)
    start(harness)
    for topic in ("z", "y", "x", "w"):
        make(harness, topic, 2)
    harness.apply(DeleteTopic(cluster=CLUSTER, name="", topic="w"))
    told: list[str] = []
    known = QueueMaps(0, 0)
    for _ in range(9):
        known = read(ask(harness, known.index, known.ended, 5000))
        told += known.maps
        if not known.more:
            break
    assert told == ["z", "y", "x"]


async def test_a_queue_moves_by_requests(harness: Harness) -> None:
    start(harness)
    ext = {"clusterName": CLUSTER, "topic": "t", "queues": "2"}
    body = json.dumps({"places": {"0": NAME, "1": "broker-b"}}).encode()
    assert harness.call(MAP, ext, body).code == 0
    body = json.dumps({"places": {"0": "broker-b"}}).encode()
    assert harness.call(MAP, ext, body).code == 0
    seal = {
        "clusterName": CLUSTER,
        "brokerName": NAME,
        "brokerId": "1",
        "masterEpoch": str(harness.group.master_epoch),
        "incarnation": harness.group.master_incarnation,
        "topic": "t",
    }
    body = json.dumps({"ends": {"0": 12}}).encode()
    assert harness.call(SEAL, {**seal, "masterEpoch": "9"}, body).code != 0
    assert harness.call(SEAL, seal, body).code == 0
    queue = read(ask(harness)).maps["t"].queues[0]
    assert [(item.group, item.start) for item in queue.segments] == [(NAME, 0), ("broker-b", 12)]
    for least, groups in (((0, 11), [NAME, "broker-b"]), ((0, 12), ["broker-b"])):
        body = json.dumps({"least": {"0": least}}).encode()
        assert harness.call(RELEASE, {**seal, "incarnation": "i9"}, body).code != 0
        known = read(ask(harness))
        answers = ask(harness, known.index, known.ended, 5000)
        assert harness.call(RELEASE, seal, body).code == 0
        await asyncio.sleep(0)
        queue = read(ask(harness)).maps["t"].queues[0]
        assert [item.group for item in queue.segments] == groups
        assert bool(answers) is (len(groups) == 1), "news is told at once"
    refused = harness.call(MAP, {**ext, "queues": "1"}, b"{}")
    assert refused.code == ResponseCode.INVALID_PARAMETER


async def test_an_epoch_after_which_none_can_come_is_refused(harness: Harness) -> None:
    """Masters name the epoch of the map that they seal by, which must be an Int64."""
    start(harness)
    ext = {"clusterName": CLUSTER, "topic": "t", "queues": "1"}
    here = json.dumps({"places": {"0": NAME}}).encode()
    refused = harness.call(MAP, {**ext, "epoch": str(2**63 - 1)}, here)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert refused.remark == f"The epoch of a queue map is at most {2**53}, not {2**63 - 1}."
    assert harness.machine.state.queue_map(CLUSTER, "t") is None
    assert harness.call(MAP, {**ext, "epoch": str(2**53)}, here).code == 0
    away = json.dumps({"places": {"0": "broker-b"}}).encode()
    assert harness.call(MAP, ext, away).code == 0
    seal = {
        "clusterName": CLUSTER,
        "brokerName": NAME,
        "brokerId": "1",
        "masterEpoch": str(harness.group.master_epoch),
        "incarnation": harness.group.master_incarnation,
        "topic": "t",
        "mapEpoch": str(read(ask(harness)).maps["t"].epoch),
    }
    assert harness.call(SEAL, seal, json.dumps({"ends": {"0": 12}}).encode()).code == 0
    assert read(ask(harness)).maps["t"].queues[0].open.group == "broker-b"


@pytest.mark.parametrize("all_know", [True, False], ids=["all of this version", "one is older"])
async def test_owners_move_with_a_queue_once_all_controllers_know_how(
    harness: Harness, all_know: bool
) -> None:
    harness.requests.queue_maps._all_know = lambda: all_know
    start(harness)
    make(harness, "t", 1, (0, NAME))
    claim = {
        "clusterName": CLUSTER,
        "brokerName": NAME,
        "brokerId": "1",
        "masterEpoch": str(harness.group.master_epoch),
        "incarnation": harness.group.master_incarnation,
    }
    owner = {"topic": "t", "queueId": 0, "clientId": "x"}
    report = json.dumps({"groups": {"g": [owner]}}).encode()
    locks = RequestCode.GANTRY_REPORT_LOCKS
    assert harness.call(locks, {**claim, "serial": "1"}, report).code == 0
    make(harness, "t", 1, (0, "broker-b"))
    body = json.dumps({"ends": {"0": 12}}).encode()
    harness.requests.queue_maps._all_know = lambda: None  # most were not heard of
    busy = harness.call(SEAL, {**claim, "topic": "t"}, body)
    assert busy.code == ResponseCode.SYSTEM_BUSY, "without its owners it would have two"
    assert read(ask(harness)).maps["t"].queues[0].open.group == NAME
    harness.requests.queue_maps._all_know = lambda: all_know
    assert harness.call(SEAL, {**claim, "topic": "t"}, body).code == 0
    asked = {"clusterName": CLUSTER, "brokerName": "broker-b"}
    found = json.loads(harness.call(RequestCode.GANTRY_GET_LOCKS, asked).body)["groups"]
    assert found == ({"g": [{**owner, "queueId": MAPPED_QUEUES_MAX}]} if all_know else {})


async def test_routes_tell_which_group_takes_messages_for_a_queue(harness: Harness) -> None:
    start(harness)
    make(harness, "t", 3, (0, NAME), (1, "broker-b"), (2, NAME))
    route = json.loads(harness.call(105, {"topic": "t"}).body)
    assert route["topicQueueMappingByBroker"] == {
        NAME: {
            "topic": "t",
            "scope": "__global__",
            "totalQueues": 3,
            "bname": NAME,
            "epoch": 1,
            "dirty": False,
            "currIdMap": {"0": 0, "2": 2},
        }
    }, "the other one has no master yet"
    (queue,) = route["queueDatas"]
    assert (queue["perm"], queue["readQueueNums"]) == (6, 3)
    make(harness, "away", 1, (0, NAME))
    make(harness, "away", 1, (0, "broker-b"))
    (queue,) = json.loads(harness.call(105, {"topic": "away"}).body)["queueDatas"]
    assert queue["perm"] == 6, "it takes messages until it has moved"
