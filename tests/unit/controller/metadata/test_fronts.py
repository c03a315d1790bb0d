"""Fronts: who is led there, and to which port; an index is one group's while that serves."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_controller.metadata import snapshot
from gantry_controller.metadata.events import (
    CleanBrokerData,
    DeclareFronts,
    DeclareGroup,
    Event,
    RemoveFronts,
    RemoveGroup,
    RetireGroup,
)
from gantry_controller.metadata.fronts import at_fronts, fronted
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.results import Result
from gantry_protocol.admin import MAX_FRONT_PORTS
from gantry_protocol.codes import ResponseCode
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.metadata_world import CLUSTER, World

ADDRESS = "10.96.0.9"


class Cluster:
    """Events about one cluster, in the words of these tests."""

    def __init__(self, *groups: str) -> None:
        self.world = World()
        self.lives = 0
        for group in groups:
            self.add(group)

    @property
    def state(self) -> Any:
        return self.world.state

    def apply(self, event: Event) -> Result:
        return self.world.apply(event)

    def add(self, group: str, cluster: str = CLUSTER) -> Result:
        """A new owner each time."""
        self.lives += 1
        event = DeclareGroup(
            cluster=cluster,
            name=group,
            uid=f"u{self.lives}",
            replicas=1,
            min_in_sync_replicas=1,
        )
        return self.apply(event)

    def uid(self, group: str) -> str:
        known = self.state.groups[CLUSTER, group].declaration
        return "" if known is None else str(known.uid)

    def retire(self, group: str) -> Result:
        return self.apply(RetireGroup(cluster=CLUSTER, name=group, uid=self.uid(group)))

    def remove(self, group: str) -> Result:
        return self.apply(RemoveGroup(cluster=CLUSTER, name=group, uid=self.uid(group)))

    def declare(self, name: str = "f", cluster: str = CLUSTER, **fields: Any) -> Result:
        wish = {"address": ADDRESS, "first_port": 10950, "ports": 4, **fields}
        return self.apply(DeclareFronts(cluster=cluster, name=name, **wish))

    def take_back(self, name: str = "f") -> Result:
        return self.apply(RemoveFronts(cluster=CLUSTER, name=name))

    def indexes(self) -> dict[str, int]:
        return {group.name: index for index, group in fronted(self.state, CLUSTER)}

    def port(self, group: str) -> int | None:
        found = at_fronts(self.state, (CLUSTER, group))
        return None if found is None else found[1]


def test_indexes_follow_names_until_fronts_are_declared() -> None:
    cluster = Cluster("c", "a", "b")
    assert cluster.indexes() == {"a": 0, "b": 1, "c": 2}
    assert cluster.declare().changed
    cluster.add("aa")
    assert cluster.indexes() == {"a": 0, "b": 1, "c": 2, "aa": 3}
    assert [cluster.port(name) for name in ("a", "b", "c")] == [10950, 10951, 10952]


def test_indexes_stay_when_the_fronts_are_removed() -> None:
    cluster = Cluster("b")
    cluster.declare()
    assert cluster.take_back().changed
    cluster.add("a")
    assert cluster.indexes() == {"b": 0, "a": 1}
    assert cluster.port("b") is None


def test_another_cluster_has_indexes_of_its_own() -> None:
    cluster = Cluster("b")
    cluster.add("a", "another")
    cluster.declare()
    cluster.declare(cluster="another", first_port=20000)
    assert cluster.indexes() == {"b": 0}
    assert at_fronts(cluster.state, ("another", "a")) == (ADDRESS, 20000)


def test_no_port_beyond_those_that_fronts_have() -> None:
    cluster = Cluster("a", "b", "c")
    cluster.declare(ports=2)
    assert [cluster.port(name) for name in ("a", "b", "c")] == [10950, 10951, None]
    cluster.declare(ports=3)
    assert cluster.port("c") == 10952


def test_index_of_a_living_group_is_nobody_elses() -> None:
    cluster = Cluster("a", "b")
    cluster.declare(ports=2)
    cluster.remove("a")
    cluster.add("a")
    cluster.add("c")
    assert cluster.indexes() == {"a": 0, "b": 1, "c": 2}


def test_what_nobody_had_is_given_before_what_was_given_back() -> None:
    """Clients keep a route for half a minute: a port must not lead them to another group."""
    cluster = Cluster("a", "b")
    cluster.declare(ports=3)
    cluster.remove("a")
    cluster.add("c")
    assert cluster.indexes() == {"b": 1, "c": 2}
    cluster.remove("c")
    cluster.add("d")
    assert cluster.indexes() == {"b": 1, "d": 0}, "free for the longest"
    cluster.add("e")
    cluster.add("f")
    assert cluster.indexes() == {"b": 1, "d": 0, "e": 2, "f": 3}


def test_the_smallest_free_one_is_given_where_no_front_has_a_port_for_it() -> None:
    cluster = Cluster("a", "b", "c")
    cluster.declare(ports=1)
    cluster.remove("c")
    cluster.remove("b")
    cluster.add("d")
    assert cluster.indexes() == {"a": 0, "d": 1}


@pytest.mark.parametrize("end", ["retire", "remove"])
def test_a_group_that_comes_back_has_the_index_that_it_had(end: str) -> None:
    cluster = Cluster("a", "b")
    cluster.declare()
    getattr(cluster, end)("a")
    assert (cluster.indexes(), cluster.port("a")) == ({"b": 1}, None)
    cluster.add("c")
    cluster.add("a")
    assert cluster.indexes() == {"a": 0, "b": 1, "c": 2}


def test_a_retired_group_that_is_removed_gives_its_index_back_once() -> None:
    cluster = Cluster("a", "b")
    cluster.declare()
    cluster.retire("a")
    before = dict(cluster.state.front_slots)
    assert cluster.remove("a").changed
    assert cluster.state.front_slots == before


def test_a_group_of_brokers_that_nobody_declared_has_an_index_too() -> None:
    cluster = Cluster("b")
    cluster.declare()
    cluster.world.apply_id(1, name="java")
    assert cluster.indexes() == {"b": 0, "java": 1}
    cluster.apply(CleanBrokerData(cluster=CLUSTER, name="java"))
    assert cluster.indexes() == {"b": 0}


def test_one_name_declares_and_may_change_its_mind() -> None:
    cluster = Cluster("a")
    assert cluster.declare().changed
    assert not cluster.declare().changed
    assert cluster.declare(address="fronts.example", first_port=20000).changed
    assert at_fronts(cluster.state, (CLUSTER, "a")) == ("fronts.example", 20000)
    refused = cluster.declare("g")
    assert refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert refused.remark == f"Clients of cluster {CLUSTER} are led to fronts f: remove those."
    assert not cluster.take_back("g").changed
    assert cluster.take_back().changed
    assert not cluster.take_back().changed
    assert cluster.declare("g").changed


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"address": ""}, "neither a host name nor an IP address"),
        ({"address": "10.0.0.1:10911"}, "neither a host name"),
        ({"address": "[::1]"}, "neither a host name"),
        ({"address": "fe80::1%eth0"}, "neither a host name"),
        ({"address": "a host"}, "neither a host name"),
        ({"address": "host\n"}, "neither a host name"),
        ({"address": "a." * 127 + "ab"}, "neither a host name"),
        ({"ports": 0}, "1 to 64 ports, not 0"),
        ({"ports": MAX_FRONT_PORTS + 1}, "1 to 64 ports, not 65"),
        ({"first_port": 0}, "4 ports from 0 on do not fit"),
        ({"first_port": 65533}, "4 ports from 65533 on do not fit"),
        ({"name": ""}, "is no name"),
        ({"name": "a/b"}, "is no name"),
        ({"cluster": "nowhere"}, "There is no broker group in cluster nowhere."),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any], part: str) -> None:
    cluster = Cluster("a")
    digest = cluster.state.digest()
    result = cluster.declare(**wrong)
    assert result.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert part in str(result.remark)
    assert cluster.state.digest() == digest


@pytest.mark.parametrize(
    "fields",
    [
        {"address": "::1"},
        {"address": "2001:db8::7"},
        {"address": "fronts.gantry.svc.cluster.local"},
        {"first_port": 65532},
        {"ports": MAX_FRONT_PORTS},
    ],
)
def test_what_can_be_meant_is_not(fields: dict[str, Any]) -> None:
    assert Cluster("a").declare(**fields).changed


def test_a_cluster_whose_groups_are_gone_keeps_its_fronts() -> None:
    cluster = Cluster("a")
    cluster.declare()
    cluster.retire("a")
    assert cluster.declare(ports=5).changed
    assert cluster.indexes() == {}


def test_a_snapshot_without_fronts_is_read_by_older_programs() -> None:
    """They know neither field, and would refuse it."""
    fields = [snapshot.decode(data).field for data in snapshot.take(Cluster("a").state)]
    assert not {"fronts", "front_slots"} & set(fields)


class Indexes(RuleBasedStateMachine):
    """Groups and fronts come and go; a controller that restarts holds what the others do."""

    GROUPS = st.sampled_from("abcdef")

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster("a", "b")
        self.had: dict[str, int] = {}
        self.written = False

    @rule(group=GROUPS)
    def add(self, group: str) -> None:
        self.cluster.add(group)

    @rule(group=GROUPS, for_good=st.booleans())
    def end(self, group: str, for_good: bool) -> None:
        if (CLUSTER, group) in self.cluster.state.groups:
            (self.cluster.remove if for_good else self.cluster.retire)(group)

    @rule(ports=st.integers(1, 4))
    def declare(self, ports: int) -> None:
        self.written = self.cluster.declare(ports=ports).ok or self.written

    @rule()
    def take_back(self) -> None:
        self.cluster.take_back()

    @rule()
    def restart(self) -> None:
        """Nothing is lost with what is derived."""
        machine = MetadataStateMachine()
        machine.restore(machine.assemble(snapshot.take(self.cluster.state)))
        before = self.cluster.state
        assert machine.state.digest() == before.digest()
        assert machine.state.front_indexes(CLUSTER) == before.front_indexes(CLUSTER)
        self.cluster.world.state = machine.state

    @invariant()
    def an_index_is_one_groups_for_as_long_as_it_serves(self) -> None:
        if not hasattr(self, "cluster"):
            return
        now = self.cluster.indexes()
        serving = {group.name for group in self.cluster.state.serving(CLUSTER)}
        assert set(now) == serving
        assert len(set(now.values())) == len(now)
        if self.written:
            assert all(now[name] == index for name, index in self.had.items() if name in now)
            self.had = now

    @invariant()
    def ports_are_those_of_the_fronts(self) -> None:
        if not hasattr(self, "cluster"):
            return
        fronts = self.cluster.state.fronts.get(CLUSTER)
        for name, index in self.cluster.indexes().items():
            reached = fronts is not None and index < fronts.ports
            assert self.cluster.port(name) == (10950 + index if reached else None)


TestIndexes = Indexes.TestCase
TestIndexes.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
