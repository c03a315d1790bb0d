"""Attributes of topics, by upstream's rules."""

from __future__ import annotations

import pytest
from gantry_controller.metadata.attributes import AttributesError, altered
from gantry_controller.metadata.events import CreateTopic
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.codes import ResponseCode
from support.metadata_world import CLUSTER, NAME, World

FIFO = {"message.type": "FIFO"}


@pytest.mark.parametrize(
    ("known", "modification", "after"),
    [
        pytest.param(None, "", {}, id="none"),
        pytest.param(FIFO, "", FIFO, id="a change of something else"),
        pytest.param(None, "+message.type=FIFO", FIFO, id="of a new topic"),
        pytest.param(FIFO, "+message.type=DELAY", {"message.type": "DELAY"}, id="changed"),
        pytest.param(FIFO, "-message.type", {}, id="removed"),
        pytest.param(
            None, "+message.type=PRIORITY", {"message.type": "PRIORITY"}, id="of priorities"
        ),
        pytest.param(
            FIFO,
            "-message.type,+reserve.time=-1",
            {"reserve.time": "-1"},
            id="one removed, one added",
        ),
        pytest.param(
            None,
            "+message.type=LITE,+lite.topic.expiration=60",
            {"message.type": "LITE", "lite.topic.expiration": "60"},
            id="a parent of lite topics",
        ),
        pytest.param(
            None,
            "+cleanup.policy=DELETE,+queue.type=SimpleCQ",
            {"cleanup.policy": "DELETE", "queue.type": "SimpleCQ"},
            id="what is so anyway",
        ),
    ],
)
def test_a_modification(
    known: dict[str, str] | None, modification: str, after: dict[str, str]
) -> None:
    before = dict(known or {})
    assert altered(known, modification) == after
    assert (known or {}) == before


@pytest.mark.parametrize(
    ("known", "modification", "words"),
    [
        (None, "message.type=FIFO", "is no attribute: \\+name=value"),
        (None, "+message.type", "is no attribute: \\+name=value"),
        (FIFO, "-message.type=FIFO", "is no attribute: \\+name=value"),
        (None, "+colour=red", "'colour' is no attribute of topics; known are cleanup.policy"),
        (None, "+message.type=LOUD", "may be UNSPECIFIED, NORMAL, .*, not 'LOUD'"),
        (None, "+reserve.time=soon", "may be -1 to 9223372036854775807 ms"),
        (None, "+reserve.time=9223372036854775808", "may be -1 to"),
        (None, "+reserve.time=-", "may be -1 to"),
        (None, "+cleanup.policy=COMPACTION", "topics are not compacted here"),
        (None, "+queue.type=BatchCQ", "queues of batches are not kept here"),
        ({}, "+cleanup.policy=DELETE", "of a topic that exists cannot change"),
        ({}, "-message.type", "has no attribute message.type"),
        (None, "-message.type", "has no attribute message.type"),
        (None, "+message.type=FIFO,+message.type=NORMAL", "given twice"),
        (None, "+reserve.time=" + "1" * 1024, "at most 1024 characters"),
    ],
)
def test_what_is_refused(known: dict[str, str] | None, modification: str, words: str) -> None:
    with pytest.raises(AttributesError, match=words):
        altered(known, modification)


@pytest.fixture
def world() -> World:
    world = World()
    world.declare()
    return world


def create(world: World, attributes: str, queues: int = 4, *, if_absent: bool = False) -> int:
    event = CreateTopic(
        cluster=CLUSTER,
        name=NAME,
        topic="t",
        config=Topic(queues, queues, 6),
        attributes=attributes,
        if_absent=if_absent,
    )
    return world.apply(event).code


def kept(world: World) -> dict[str, str]:
    return world.state.topic_table((CLUSTER, NAME)).topics["t"].attributes


def test_they_are_kept_with_the_topic_and_outlive_other_changes(world: World) -> None:
    assert create(world, "+message.type=FIFO") == 0
    assert create(world, "", queues=8) == 0
    assert kept(world) == FIFO
    assert create(world, "+message.type=DELAY", if_absent=True) == 0
    assert kept(world) == FIFO


def test_a_change_of_them_alone_is_a_new_version(world: World) -> None:
    create(world, "+message.type=FIFO")
    create(world, "-message.type")
    assert world.state.topic_table((CLUSTER, NAME)).version == 2


def test_what_is_refused_changes_nothing(world: World) -> None:
    create(world, "+message.type=FIFO")
    assert create(world, "+colour=red", queues=8) == ResponseCode.INVALID_PARAMETER
    assert world.state.topic_table((CLUSTER, NAME)).topics["t"].read_queue_nums == 4
