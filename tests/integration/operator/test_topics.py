"""Topics under the real operator: made, kept as they are wished, let go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gantry_controller.metadata.events import CreateTopic, DeleteTopic
from gantry_controller.metadata.topic_table import Topic
from gantry_local.apiserver.errors import StatusError as Refused
from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, EVENT, TOPIC
from gantry_operator.reconcile import tables
from integration.operator.operator_world import World

Json = dict[str, Any]
CLUSTER = "gantry"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others change is seen within a moment."""
    monkeypatch.setattr(tables, "LOOK_S", 0.1)
    monkeypatch.setattr(tables, "FRESH_S", 0.05)


def wish(world: World, name: str = "orders", **spec: Any) -> Json:
    return world.apply(
        {
            "apiVersion": TOPIC.api_version,
            "kind": TOPIC.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def held(world: World, name: str = "orders", group: str = "orders") -> Topic | None:
    found: Topic | None = world.quorum.metadata.state.topic_table((CLUSTER, group)).topics.get(name)
    return found


def ready(world: World, name: str = "orders") -> Json:
    return world.condition("Ready", name, TOPIC)


async def in_place(world: World, *topics: str) -> None:
    for name in topics or ("orders",):
        await world.until(lambda n=name: world.is_true("Ready", n, TOPIC), f"{name} in place")


def events(world: World, reason: str) -> list[str]:
    return [body["message"] for body in world.all(EVENT) if body["reason"] == reason]


def create(world: World, queues: int, name: str = "orders", attributes: str = "") -> None:
    """Somebody makes or changes a topic."""
    topic = Topic(read_queue_nums=queues, write_queue_nums=queues, perm=6)
    world.quorum.metadata.apply(
        CreateTopic(cluster=CLUSTER, name="", topic=name, config=topic, attributes=attributes)
    )


async def test_a_topic_is_made_in_every_group_changed_and_kept(world: World) -> None:
    async with world.operator():
        await world.up()
        wish(world, queues=4, messageType="Fifo")
        await in_place(world)
        topic = held(world)
        assert topic is not None
        assert (topic.write_queue_nums, topic.attributes) == (4, {"message.type": "FIFO"})
        wish(world, queues=6, messageType="Fifo")
        await world.until(lambda: (held(world) or topic).write_queue_nums == 6, "six queues")
        await in_place(world)
        assert events(world, "DriftUndone") == []
        world.delete(TOPIC, "orders")
        await world.until(lambda: world.get(TOPIC, "orders") is None, "the resource goes")
        assert held(world) is not None


async def test_what_others_change_is_undone_and_told(world: World) -> None:
    async with world.operator():
        await world.up()
        wish(world, queues=4)
        await in_place(world)
        create(world, 4, attributes="+message.type=FIFO")
        await world.until(lambda: not (held(world) or Topic(1, 1, 6)).attributes, "undone")
        world.quorum.metadata.apply(DeleteTopic(cluster=CLUSTER, name="", topic="orders"))
        await world.until(lambda: held(world) is not None, "made again")
        await world.until(lambda: len(events(world, "DriftUndone")) == 2, "both are told")
        assert any("message.type FIFO, not any" in note for note in events(world, "DriftUndone"))


async def test_more_queues_are_not_taken_away_silently(world: World) -> None:
    async with world.operator():
        await world.up()
        wish(world, queues=4)
        await in_place(world)
        create(world, 16)
        await world.until(lambda: ready(world)["reason"] == "QueuesWouldShrink", "refused")
        topic = held(world)
        assert topic is not None
        assert topic.read_queue_nums == 16
        wish(world, queues=4, allowFewerQueues=True)
        await in_place(world)
        assert held(world) == Topic(4, 4, 6, since=topic.since)


async def test_what_existed_is_taken_over_only_when_that_is_said(world: World) -> None:
    async with world.operator():
        await world.up()
        create(world, 8, "same")
        create(world, 2, "other")
        writes = world.quorum.metadata.writes
        wish(world, "same")
        wish(world, "other", deletionPolicy="Delete")
        await in_place(world, "same")
        await world.until(lambda: ready(world, "other")["reason"] == "ExistsOtherwise", "refused")
        assert world.quorum.metadata.writes == writes
        world.delete(TOPIC, "other")
        await world.until(lambda: world.get(TOPIC, "other") is None, "the second goes")
        assert held(world, "other") is not None  # it never was this resource's
        wish(world, "other", adopt=True)
        await in_place(world, "other")


async def test_of_two_for_one_topic_the_first_counts_and_the_second_follows(world: World) -> None:
    async with world.operator():
        await world.up()
        wish(world, "a-first", topicName="T_1", queues=4)
        await in_place(world, "a-first")
        wish(world, "a-second", topicName="T_1", queues=6, adopt=True)
        await world.until(lambda: ready(world, "a-second")["reason"] == "AnotherOwnsIt", "second")
        assert "a-first" in ready(world, "a-second")["message"]
        topic = held(world, "T_1")
        assert topic is not None
        assert topic.write_queue_nums == 4
        world.delete(TOPIC, "a-first")
        await in_place(world, "a-second")


async def test_a_topic_goes_with_its_resource_if_that_is_wished(world: World) -> None:
    async with world.operator():
        await world.up()
        wish(world, deletionPolicy="Delete")
        await in_place(world)
        assert world.require(TOPIC, "orders")["metadata"]["finalizers"] == [names.FINALIZER]
        world.delete(TOPIC, "orders")
        await world.until(lambda: world.get(TOPIC, "orders") is None, "the resource goes")
        assert held(world) is None


async def test_a_deletion_waits_for_silent_controllers_and_not_for_such_as_are_gone(
    world: World,
) -> None:
    async with world.operator():
        await world.up()
        wish(world, deletionPolicy="Delete")
        await in_place(world)
        world.quorum.leaderless = True
        world.delete(TOPIC, "orders")
        await world.until(lambda: ready(world)["reason"] == "Deleting", "it waits")
        world.quorum.leaderless = False
        world.patch(TOPIC, "orders", {"spec": {"deletionPolicy": "Retain"}})
        await world.until(lambda: world.get(TOPIC, "orders") is None, "let go")
        assert held(world) is not None
        wish(world, deletionPolicy="Delete")
        await in_place(world)
        world.delete(BROKER_GROUP, "orders")
        await world.until(lambda: world.get(BROKER_GROUP, "orders") is None, "no broker group")
        world.delete(CONTROLLER_GROUP, "gantry")
        await world.until(lambda: world.get(CONTROLLER_GROUP, "gantry") is None, "no quorum")
        world.delete(TOPIC, "orders")
        await world.until(lambda: world.get(TOPIC, "orders") is None, "nothing hangs")


async def test_a_topic_without_a_quorum_waits_for_one(world: World) -> None:
    async with world.operator():
        wish(world)
        await world.until(lambda: ready(world)["reason"] == "ControllerGroupNotFound", "waits")
        await world.up()
        await in_place(world)


async def test_a_restart_writes_nothing_and_reads_all_topics_at_once(world: World) -> None:
    many = [f"t{number}" for number in range(60)]
    async with world.operator():
        await world.up()
        for name in many:
            wish(world, name)
        await in_place(world, *many)
    metadata = world.quorum.metadata
    writes, versions = metadata.writes, [b["metadata"]["resourceVersion"] for b in world.all(TOPIC)]
    metadata.asked.clear()
    async with world.operator(resync_interval_s=1.0):
        await world.until(lambda: metadata.asked, "the topics are read")
        await asyncio.sleep(1.5)  # a whole comparison, too
    assert metadata.writes == writes
    assert [b["metadata"]["resourceVersion"] for b in world.all(TOPIC)] == versions
    assert all(line.startswith("GET ") for line in metadata.asked)
    whole = [line for line in metadata.asked if "known=&" in line]
    assert len(whole) == 1


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"queues": 0}, "queues"),
        ({"queues": 8, "readQueues": 4}, "readQueues must not be less"),
        ({"topicName": "a b"}, "topicName"),
        ({"messageType": "FIFO"}, "messageType"),
        ({"deletionPolicy": "Keep"}, "deletionPolicy"),
        ({"readers": "many"}, "readers"),
        ({"quues": 8}, "quues"),
    ],
)
async def test_what_cannot_be_is_refused_when_it_is_applied(
    world: World, spec: Json, why: str
) -> None:
    with pytest.raises(Refused, match=why):
        wish(world, **spec)


async def test_the_name_of_a_topic_stays(world: World) -> None:
    wish(world, topicName="A")
    with pytest.raises(Refused, match="topicName is fixed"):
        wish(world, topicName="B")
