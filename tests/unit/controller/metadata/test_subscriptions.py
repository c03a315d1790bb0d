"""Subscription groups and memberships: whose word counts, and for which group of a name."""

import pytest
from gantry_controller.metadata import subscriptions as module
from gantry_controller.metadata.clients import Client, ConsumerGroup, Subscription
from gantry_controller.metadata.events import (
    DeclareGroup,
    DeleteSubscriptionGroup,
    DeleteTopic,
    PutSubscriptionGroup,
    RemoveGroup,
    ReportConsumers,
    RetireGroup,
)
from gantry_controller.metadata.results import Result
from gantry_protocol.codes import ResponseCode as Code
from gantry_protocol.types import BrokerId, Epoch
from support.metadata_world import CLUSTER, NAME, World, incarnation, three_in_sync

KEY = (CLUSTER, NAME)


def members(*clients: str, topics: tuple[str, ...] = ("t",)) -> ConsumerGroup:
    return ConsumerGroup(
        tuple(Client(client, "JAVA") for client in clients),
        tuple(Subscription(topic) for topic in topics),
    )


def report(
    world: World,
    groups: dict[str, ConsumerGroup | None],
    *,
    cluster: str = CLUSTER,
    broker_id: int = 1,
    epoch: int = 1,
    start: int = 1,
) -> Result:
    return world.apply(
        ReportConsumers(
            cluster=cluster,
            name=NAME,
            broker_id=BrokerId(broker_id),
            master_epoch=Epoch(epoch),
            incarnation=incarnation(broker_id, start),
            groups=groups,
        )
    )


def put(world: World, group: str, config: bytes = b"{}", *, name: str = NAME) -> Result:
    return world.apply(PutSubscriptionGroup(cluster=CLUSTER, name=name, group=group, config=config))


class TestMembership:
    def test_master_reports_and_order_does_not_matter(self) -> None:
        world = three_in_sync()
        assert report(world, {"g": members("b", "a", "b", topics=("z", "y"))}).ok
        table = world.state.consumer_table(KEY)
        assert [one.client_id for one in table.groups["g"].clients] == ["a", "b"]
        assert [one.topic for one in table.groups["g"].subscriptions] == ["y", "z"]
        assert report(world, {"g": members("a", "b", topics=("y", "z"))}).ok
        assert world.state.consumer_table(KEY) is table  # nothing changed, nothing was written

    def test_only_what_is_reported_changes(self) -> None:
        world = three_in_sync()
        report(world, {"g": members("a"), "h": members("b")})
        report(world, {"g": None})
        assert set(world.state.consumer_table(KEY).groups) == {"h"}
        assert world.state.consumer_table(KEY).version == 2

    @pytest.mark.parametrize(
        ("claim", "code"),
        [
            ({"broker_id": 2}, Code.CONTROLLER_INVALID_MASTER),
            ({"start": 2}, Code.CONTROLLER_INVALID_MASTER),
            ({"epoch": 2}, Code.CONTROLLER_FENCED_MASTER_EPOCH),
            ({"cluster": "other"}, Code.CONTROLLER_BROKER_METADATA_NOT_EXIST),
        ],
        ids=["replica", "later process", "other epoch", "other cluster"],
    )
    def test_nobody_else_reports(self, claim: dict[str, object], code: Code) -> None:
        world = three_in_sync()
        assert report(world, {"g": members("a")}, **claim).code == code  # type: ignore[arg-type]
        assert world.state.consumers == {}

    def test_deposed_master_cannot_overwrite_its_successor(self) -> None:
        world = three_in_sync()
        report(world, {"g": members("a", "b")})
        world.elect(live=[2, 3])
        assert report(world, {"g": None}).code == Code.CONTROLLER_INVALID_MASTER
        assert set(world.state.consumer_table(KEY).groups) == {"g"}  # the successor reads it
        winner = world.group.master_id
        assert winner is not None
        assert report(world, {"g": members("b")}, broker_id=winner, epoch=2).ok

    def test_groups_of_one_name_in_two_clusters_are_two(self) -> None:
        world = three_in_sync()
        report(world, {"g": members("a")})
        other = DeclareGroup(cluster="d", name=NAME, uid="u9", replicas=1, min_in_sync_replicas=1)
        world.apply(other)
        assert world.state.consumer_table(("d", NAME)).groups == {}
        assert report(world, {"g": None}, cluster="d").code == Code.CONTROLLER_INVALID_MASTER
        ambiguous = report(world, {"g": None}, cluster="")
        assert ambiguous.code == Code.CONTROLLER_INVALID_REQUEST
        assert "several clusters (c, d)" in str(ambiguous.remark)
        assert set(world.state.consumer_table(KEY).groups) == {"g"}

    def test_bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "CONSUMER_GROUPS_MAX", 2)
        monkeypatch.setattr(module, "CLIENTS_MAX", 2)
        world = three_in_sync()
        three = {"a": members("x"), "b": members("x"), "c": members("x")}
        assert report(world, three).code == Code.INVALID_PARAMETER
        assert report(world, {"a": members("x", "y", "z")}).code == Code.INVALID_PARAMETER
        assert report(world, {"a b": members("x")}).code == Code.INVALID_PARAMETER
        assert world.state.consumers == {}


class TestSubscriptionGroups:
    def test_create_change_delete(self) -> None:
        world = three_in_sync()
        assert put(world, "g").subscriptions_version == 1
        assert put(world, "g").subscriptions_version == 1  # the same again
        assert put(world, "g", b'{"retryMaxTimes":3}').subscriptions_version == 2
        gone = DeleteSubscriptionGroup(cluster=CLUSTER, name=NAME, group="g")
        assert world.apply(gone).subscriptions_version == 3
        assert world.apply(gone).subscriptions_version == 3
        assert world.state.subscription_table(KEY).groups == {}

    def test_for_every_group_of_the_cluster(self) -> None:
        world = three_in_sync()
        world.apply(
            DeclareGroup(cluster=CLUSTER, name="b", uid="u2", replicas=1, min_in_sync_replicas=1)
        )
        assert put(world, "g", name="").subscriptions_version is None
        assert set(world.state.subscriptions) == {KEY, (CLUSTER, "b")}

    @pytest.mark.parametrize("name", ["", "a b", "g" * 256])
    def test_bad_names(self, name: str) -> None:
        world = three_in_sync()
        assert put(world, name).code == Code.INVALID_PARAMETER

    def test_bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "SUBSCRIPTION_GROUPS_MAX", 1)
        world = three_in_sync()
        assert put(world, "g").ok
        assert put(world, "h").code == Code.SYSTEM_ERROR
        assert put(world, "g", b"[]").ok
        assert put(world, "g", b"x" * (module.CONFIG_BYTES_MAX + 1)).code == Code.INVALID_PARAMETER


def test_a_removed_group_leaves_no_consumers() -> None:
    world = three_in_sync()
    put(world, "g")
    report(world, {"g": members("a")})
    world.apply(RemoveGroup(cluster=CLUSTER, name=NAME, uid="u1"))
    assert world.state.consumer_table(KEY).groups == {}
    assert world.state.subscription_table(KEY).groups == {}
    assert world.state.consumer_table(KEY).version == 2  # it never falls


def test_deletion_of_a_topic_does_not_guess_the_cluster() -> None:
    world = three_in_sync()
    world.apply(DeclareGroup(cluster="d", name=NAME, uid="u9", replicas=1, min_in_sync_replicas=1))
    result = world.apply(DeleteTopic(cluster="", name=NAME, topic="t"))
    assert result.code == Code.INVALID_PARAMETER


class TestOneView:
    def test_a_generation_rises_with_each_change_and_ends_with_the_group(self) -> None:
        world = three_in_sync()
        seen = []
        for groups in ({"g": members("a")}, {"g": members("a", "b"), "h": members("c")}):
            assert report(world, groups).consumers_changed == tuple(groups)
            seen.append(world.state.cluster_group(CLUSTER, "g").generation)
        assert 0 < seen[0] < seen[1]
        assert report(world, {"g": members("b", "a")}).consumers_changed == ()
        assert world.state.cluster_group(CLUSTER, "g").generation == seen[1]
        report(world, {"g": None})
        assert world.state.cluster_group(CLUSTER, "g").generation == 0
        assert set(world.state.generations) == {(CLUSTER, "h")}

    @pytest.mark.parametrize("ends", ["removed", "retired"])
    def test_who_consumed_from_a_group_that_ended_does_not_any_more(self, ends: str) -> None:
        world = three_in_sync()
        report(world, {"g": members("a")})
        uid = world.group.declaration.uid if world.group.declaration else ""
        event = {"removed": RemoveGroup, "retired": RetireGroup}[ends]
        assert world.apply(event(cluster=CLUSTER, name=NAME, uid=uid)).consumers_changed == ("g",)
        assert world.state.cluster_group(CLUSTER, "g").clients == ()
