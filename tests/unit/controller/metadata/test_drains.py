"""Groups that come and go: a new one takes over topics, one that leaves is drained."""

from __future__ import annotations

import pytest
from gantry_controller.metadata import drains
from gantry_controller.metadata.events import (
    AdoptGroup,
    ChangeSettings,
    DeclareGroup,
    DrainGroup,
    EndDrain,
    MapQueues,
    PutKv,
    RemoveGroup,
    RetireGroup,
    SetWritable,
    TakeTopics,
)
from gantry_controller.metadata.newcomers import may_take
from gantry_controller.metadata.topic_table import DEFAULT_TOPIC, Topic
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import Epoch
from support.metadata_cluster import FOUR, Cluster
from support.metadata_world import CLUSTER

EIGHT = Topic(8, 8, 6)
READ_ONLY = Topic(4, 4, 4)
READ, WRITE = 4, 2


# Newcomers


def test_a_newcomer_takes_what_all_others_have() -> None:
    world = Cluster("a", "b")
    world.topic("both", "a", "b")
    world.topic("one", "a")
    world.settings("billing", "a", "b", config=b'{"a":1}')
    world.settings("audit", "b")
    world.add("c")
    assert world.may_take("c")
    assert world.take("c").changed
    assert world.queues_of("c") == {"both": 4}
    assert world.settings_of("c") == {"billing": b'{"a":1}'}
    assert world.topics_of("c")["both"].since == world.state.topic_table((CLUSTER, "c")).version


def test_settings_of_the_first_by_name_count() -> None:
    world = Cluster("b", "a")
    world.topic("t", "b", config=FOUR)
    world.topic("t", "a", config=EIGHT)
    world.settings("g", "b", config=b"b")
    world.settings("g", "a", config=b"a")
    world.add("c")
    world.take("c")
    assert (world.queues_of("c"), world.settings_of("c")) == ({"t": 8}, {"g": b"a"})


def test_it_takes_once_and_before_its_first_master() -> None:
    world = Cluster("a")
    world.topic("t", "a")
    world.add("b")
    world.take("b")
    assert world.may_take("b"), "another one may be on its way"
    world.topic("later", "a")
    assert not world.take("b").changed
    assert world.take("b", beside=True).changed
    assert not world.take("b", beside=True).changed
    assert world.queues_of("b") == {"t": 4, "later": 4}
    world.add("c")
    world.lead("c")
    assert not world.may_take("c")
    assert not world.take("c").changed
    assert world.topics_of("c") == {}


def test_groups_that_never_served_or_serve_no_more_are_no_measure() -> None:
    world = Cluster("a", "gone")
    world.topic("t", "a")
    world.add("new")
    world.apply(RetireGroup(cluster=CLUSTER, name="gone", uid="u-gone"))
    world.add("c")
    world.take("c")
    assert world.queues_of("c") == {"t": 4}


def test_what_it_has_stays_and_an_adopted_one_is_left_alone() -> None:
    world = Cluster("a")
    world.topic("t", "a")
    world.add("own")
    world.topic("mine", "own", config=EIGHT)
    world.settings("g", "own", config=b"own")
    world.settings("g", "a", config=b"a")
    assert not world.take("own").changed
    assert world.may_take("own")
    assert world.take("own", beside=True).changed
    assert world.queues_of("own") == {"mine": 8, "t": 4}
    assert world.settings_of("own") == {"g": b"own"}
    world.add("adopted")
    world.apply(
        AdoptGroup(cluster=CLUSTER, name="adopted", epoch=Epoch(7), expected_epoch=Epoch(0))
    )
    assert not world.take("adopted").changed
    assert world.topics_of("adopted") == {}


def test_settings_that_it_was_given_stay() -> None:
    world = Cluster("a")
    world.settings("g", "a", config=b"a")
    world.settings("h", "a", config=b"a")
    world.add("b")
    world.settings("g", "b", config=b"b")
    assert world.take("b").changed
    assert world.settings_of("b") == {"g": b"b", "h": b"a"}


def test_one_that_was_removed_and_comes_back_is_new_again() -> None:
    world = Cluster("a", "b")
    world.topic("t")
    world.apply(RemoveGroup(cluster=CLUSTER, name="b", uid="u-b"))
    world.add("b", uid="u2")
    assert world.may_take("b")
    world.take("b")
    assert world.queues_of("b") == {"t": 4}


def test_the_first_group_of_a_cluster_takes_nothing() -> None:
    world = Cluster("a")
    world.topic("t", "a")
    other = DeclareGroup(cluster="d", name="x", uid="u", replicas=1, min_in_sync_replicas=1)
    world.apply(other)
    assert not may_take(world.state, world.state.groups["d", "x"])
    before = world.state.digest()
    world.apply(TakeTopics(cluster="d", name="x"))
    assert world.state.digest() == before


# Drains


def test_a_draining_group_is_read_and_not_written_in_routes() -> None:
    world = Cluster("a", "b")
    world.topic("t")
    assert world.drain("b").changed
    assert world.perms("t") == {"a": READ | WRITE, "b": READ}
    assert world.perms(DEFAULT_TOPIC) == {"a": 7, "b": 7 & ~WRITE}
    assert not world.drain("b").changed, "once"
    assert world.state.drains[CLUSTER, "b"].began_ms == 5
    assert world.apply(EndDrain(cluster=CLUSTER, name="b")).changed
    assert world.perms("t") == {"a": READ | WRITE, "b": READ | WRITE}
    assert not world.apply(EndDrain(cluster=CLUSTER, name="b")).changed


def test_ordered_queues_of_a_draining_group_are_in_no_route() -> None:
    world = Cluster("a", "b")
    world.topic("t")
    world.apply(ChangeSettings(settings={"orderMessageEnable": "true"}))
    world.apply(PutKv(namespace="ORDER_TOPIC_CONFIG", key="t", value="a:4;b:4"))
    assert world.route("t")["orderTopicConf"] == "a:4;b:4"
    world.drain("b")
    assert world.route("t")["orderTopicConf"] == "a:4"
    world.apply(PutKv(namespace="ORDER_TOPIC_CONFIG", key="t", value="b:4"))
    assert "orderTopicConf" not in world.route("t")


@pytest.mark.parametrize("other", ["none", "draining", "wiped", "retired", "new"])
def test_the_last_group_that_takes_messages_is_not_drained(other: str) -> None:
    world = Cluster("a") if other in ("none", "new") else Cluster("a", "b")
    if other == "draining":
        assert world.drain("b").changed
    elif other == "wiped":
        world.apply(SetWritable(cluster=CLUSTER, name="b", writable=False))
    elif other == "retired":
        world.apply(RetireGroup(cluster=CLUSTER, name="b", uid="u-b"))
    elif other == "new":
        world.add("b")
    refused = world.drain("a")
    assert refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert refused.remark == (
        f"a is the last group of cluster {CLUSTER} that takes messages: add another one first."
    )
    assert (CLUSTER, "a") not in world.state.drains
    assert not drains.has_other_taking(world.state, world.state.groups[CLUSTER, "a"])


def test_what_no_other_group_has_is_handed_over() -> None:
    world = Cluster("a", "b", "c", "wiped")
    world.apply(SetWritable(cluster=CLUSTER, name="wiped", writable=False))
    world.topic("only", "a", "wiped", config=EIGHT)
    world.topic("elsewhere", "a", "c")
    world.topic("read-only", "a", config=READ_ONLY)
    world.settings("g", "a", config=b"a")
    world.settings("h", "a", "c", config=b"a")
    assert world.drain("a").changed
    assert world.queues_of("b") == {"only": 8}
    assert world.queues_of("c") == {"only": 8, "elsewhere": 4}
    assert world.queues_of("wiped") == {"only": 8}
    assert world.queues_of("a") == {"only": 8, "elsewhere": 4, "read-only": 4}
    assert (world.settings_of("b"), world.settings_of("c")) == ({"g": b"a"}, {"h": b"a", "g": b"a"})


def test_no_room_for_what_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "TOPICS_PER_GROUP_MAX", 2)
    world = Cluster("a", "b")
    world.topic("own", "b")
    world.topic("t", "a")
    world.topic("u", "a")
    refused = world.drain("a")
    assert refused.remark is not None
    assert refused.remark.startswith("b has no room for 2 topics")
    assert (world.queues_of("b"), world.state.drains) == ({"own": 4}, {})


def test_strangers_and_retired_groups_are_refused() -> None:
    world = Cluster("a", "b")
    assert world.drain("a", uid="other").remark == "The group a has another owner than other."
    assert world.drain("a", uid="u-a").changed
    world.apply(RetireGroup(cluster=CLUSTER, name="b", uid="u-b"))
    assert "retired" in (world.drain("b").remark or "")
    assert world.apply(DrainGroup(cluster=CLUSTER, name="nobody")).group is None


def test_the_log_of_an_adopted_group_says_first_what_it_has() -> None:
    world = Cluster("a")
    world.add("b")
    adopted = AdoptGroup(cluster=CLUSTER, name="b", epoch=Epoch(7), expected_epoch=Epoch(0))
    world.apply(adopted)
    world.lead("b")
    assert "has not said yet" in (world.drain("b").remark or "")


def test_a_drain_ends_with_the_owner_that_wanted_it() -> None:
    world = Cluster("a", "b")
    world.drain("b")
    world.add("b")
    changed = DeclareGroup(cluster=CLUSTER, name="b", uid="u-b", replicas=3, min_in_sync_replicas=2)
    world.apply(changed)
    assert (CLUSTER, "b") in world.state.drains, "its owner may change it meanwhile"
    world.apply(RetireGroup(cluster=CLUSTER, name="b", uid="u-b"))
    assert (CLUSTER, "b") in world.state.drains, "its brokers still take nothing new"
    world.apply(changed)
    assert world.state.drains == {}, "it came back"
    world.drain("b")
    world.add("b", uid="u2")
    assert world.state.drains == {}
    world.drain("b")
    world.apply(RemoveGroup(cluster=CLUSTER, name="b", uid="u2"))
    assert world.state.drains == {}


# Mapped topics


def test_mapped_topics_are_taken_over_and_closed_until_a_queue_comes() -> None:
    world = Cluster("a", "b")
    assert world.apply(MapQueues(cluster=CLUSTER, topic="mapped", queues=4)).ok
    world.add("c")
    assert world.apply(TakeTopics(cluster=CLUSTER, name="c", shares=True)).changed
    assert world.topics_of("c") == world.topics_of("a")
    world.lead("c")
    assert world.perms("mapped") == {"a": READ | WRITE, "b": READ | WRITE, "c": READ}


def test_an_event_of_an_earlier_version_takes_no_mapped_topic() -> None:
    world = Cluster("a", "b")
    world.topic("plain")
    assert world.apply(MapQueues(cluster=CLUSTER, topic="mapped", queues=4)).ok
    assert "mapped" in world.topics_of("a").keys() & world.topics_of("b").keys()
    world.add("c")
    world.take("c")
    assert list(world.topics_of("c")) == ["plain"]
