"""Keeping producers from a group: whom a name means, what undoes it and what does not."""

import pytest
from gantry_controller.metadata import names
from gantry_controller.metadata.events import (
    CreateTopic,
    ForgetImport,
    ImportBroker,
    RemoveGroup,
    SetWritable,
)
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.codes import ResponseCode
from support.metadata_world import CLUSTER, NAME, World

FOUR = Topic(4, 4, 6)
KEY = (CLUSTER, NAME)
OLD = ("old", "b")


@pytest.fixture
def world() -> World:
    world = World()
    world.declare()
    world.apply(CreateTopic(cluster=CLUSTER, name=NAME, topic="t", config=FOUR))
    return world


def wipe(world: World, name: str = NAME, cluster: str = "") -> Result:
    return world.apply(SetWritable(cluster=cluster, name=name, writable=False))


def add_back(world: World, name: str = NAME, cluster: str = "") -> Result:
    return world.apply(SetWritable(cluster=cluster, name=name, writable=True))


def report(world: World, *topics: str) -> Result:
    cluster, name = OLD
    table = dict.fromkeys(topics, FOUR)
    return world.apply(
        ImportBroker(cluster=cluster, name=name, broker_id=0, address="h:1", topics=table)
    )


def test_wiped_until_added_back(world: World) -> None:
    first = wipe(world)
    assert (first.changed, first.topic_count) == (True, 1)
    again = wipe(world)
    assert (again.changed, again.topic_count) == (False, 1)
    assert list(world.state.wiped) == [KEY]
    back = add_back(world)
    assert (back.changed, back.topic_count) == (True, 1)
    assert world.state.wiped == {}
    assert not add_back(world).changed


def test_topics_stay_as_their_owner_made_them(world: World) -> None:
    table = world.state.topic_table(KEY)
    wipe(world)
    assert world.state.topic_table(KEY) is table


def test_new_report_of_the_topics_does_not_undo_it(world: World) -> None:
    report(world, "q")
    assert wipe(world, "b").topic_count == 1
    report(world, "q", "r")
    assert list(world.state.wiped) == [OLD]
    assert wipe(world, "b").topic_count == 2


def test_restart_of_an_old_broker_does_not_undo_it(world: World) -> None:
    """Its closed connection strikes it from the record; nobody has said that it may be written."""
    report(world, "q")
    wipe(world, "b")
    assert world.apply(ForgetImport(cluster="old", name="b", address="h:1")).changed
    report(world, "q")
    assert list(world.state.wiped) == [OLD]
    world.apply(ForgetImport(cluster="old", name="b", address="h:1"))
    assert add_back(world, "b").changed


def test_removal_by_the_owner_ends_it(world: World) -> None:
    wipe(world)
    assert world.apply(RemoveGroup(cluster=CLUSTER, name=NAME, uid="u1")).changed
    assert world.state.wiped == {}
    world.declare(uid="u2")
    assert list(world.state.wiped) == []


@pytest.mark.parametrize("name", ["nobody", ""])
def test_unknown_name_is_refused(world: World, name: str) -> None:
    for result in (wipe(world, name), add_back(world, name)):
        assert result.code == ResponseCode.SYSTEM_ERROR
        assert result.remark == f"There is no broker group {name}"


@pytest.mark.parametrize("kind", ["group", "imported"])
def test_name_in_several_clusters_needs_the_cluster(world: World, kind: str) -> None:
    if kind == "group":
        world.state.put(BrokerGroup("d", NAME))
    else:
        world.apply(ImportBroker(cluster="d", name=NAME, broker_id=0, address="h:1"))
    result = wipe(world)
    assert result.code == ResponseCode.INVALID_PARAMETER
    assert result.remark == (
        "There are broker groups broker-a in several clusters (c, d); name the cluster"
    )
    assert wipe(world, cluster="d").changed
    assert list(world.state.wiped) == [("d", NAME)]


def test_they_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "WIPED_MAX", 1)
    report(world)
    wipe(world)
    result = wipe(world, "b")
    assert result.code == ResponseCode.SYSTEM_ERROR
    assert result.remark == "Producers are kept from 1 groups, the most there may be"
    assert add_back(world).ok
    assert wipe(world, "b").ok
