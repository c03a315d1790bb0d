"""Topics of groups, and brokers of the old kind that report theirs."""

from typing import Any

import pytest
from gantry_controller.metadata.events import (
    CreateTopic,
    DeleteTopic,
    ForgetImport,
    ImportBroker,
    ReportTopic,
)
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, MetadataState
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.codes import ResponseCode
from msgspec.structs import replace
from support.metadata_world import CLUSTER, NAME, World

FOUR = Topic(read_queue_nums=4, write_queue_nums=4, perm=6)
KEY = (CLUSTER, NAME)


@pytest.fixture
def world() -> World:
    world = World()
    world.declare()
    world.state.put(BrokerGroup(CLUSTER, "broker-b"))
    world.state.put(BrokerGroup("other", "broker-c"))
    return world


def create(
    world: World,
    topic: str = "t",
    config: Topic = FOUR,
    *,
    name: str = NAME,
    cluster: str = CLUSTER,
) -> Result:
    return world.apply(CreateTopic(cluster=cluster, name=name, topic=topic, config=config))


def topics(state: MetadataState, name: str = NAME) -> list[str]:
    return sorted(state.topic_table((CLUSTER, name)).topics)


class TestCreate:
    def test_without_a_cluster_means_the_only_one(self) -> None:
        world = World()
        world.declare()
        assert create(world, name="", cluster="").ok
        assert topics(world.state) == ["t"]

    def test_without_a_cluster_where_several_are_served_is_refused(self, world: World) -> None:
        result = create(world, name="", cluster="")
        assert result.code == ResponseCode.INVALID_PARAMETER
        assert result.remark == "Groups of several clusters (c, other) are served here; name one"
        assert topics(world.state) == []

    def test_on_one_group(self, world: World) -> None:
        assert create(world).topics_version == 1
        assert topics(world.state) == ["t"]
        assert topics(world.state, "broker-b") == []
        assert world.state.groups_with("t") == [KEY]

    def test_on_every_group_of_the_cluster(self, world: World) -> None:
        assert create(world, name="").ok
        assert world.state.groups_with("t") == [KEY, (CLUSTER, "broker-b")]

    def test_again_keeps_the_version(self, world: World) -> None:
        create(world)
        again = create(world)
        assert (again.topics_version, again.changed) == (1, False)

    def test_a_second_life_is_told_from_the_first_and_a_change_is_not_one(
        self, world: World
    ) -> None:
        def since() -> int:
            return world.state.topic_table(KEY).topics["t"].since

        create(world)
        create(world, config=Topic(3, 3, 6))
        assert since() == 1
        world.apply(DeleteTopic(cluster=CLUSTER, name=NAME, topic="t"))
        create(world, config=Topic(3, 3, 6))
        assert (since(), world.state.topic_table(KEY).version) == (4, 4)

    def test_made_for_a_send_leaves_it_as_its_owner_made_it(self, world: World) -> None:
        create(world, config=Topic(3, 3, 6))
        late = world.apply(
            CreateTopic(cluster=CLUSTER, name=NAME, topic="t", config=FOUR, if_absent=True)
        )
        assert (late.ok, late.topics_version, late.changed) == (True, 1, False)
        assert world.state.topic_table(KEY).topics["t"].read_queue_nums == 3

    def test_made_for_a_send_is_made_where_it_is_absent(self, world: World) -> None:
        create(world, config=Topic(3, 3, 6))
        world.apply(CreateTopic(cluster=CLUSTER, name="", topic="t", config=FOUR, if_absent=True))
        assert world.state.topic_table(KEY).topics["t"].read_queue_nums == 3
        assert world.state.topic_table((CLUSTER, "broker-b")).topics["t"].read_queue_nums == 4

    def test_changed_configuration_is_a_new_version(self, world: World) -> None:
        create(world)
        assert create(world, config=Topic(8, 8, 6)).topics_version == 2
        assert world.state.topic_table(KEY).topics["t"].read_queue_nums == 8

    @pytest.mark.parametrize(
        ("topic", "config", "part"),
        [
            pytest.param("", FOUR, "blank", id="blank"),
            pytest.param("a b", FOUR, "illegal characters", id="space"),
            pytest.param("täg", FOUR, "illegal characters", id="umlaut"),
            pytest.param("t" * 128, FOUR, "longer than topic max length 127", id="too long"),
            pytest.param("TBW102", FOUR, "conflict with system topic", id="template"),
            pytest.param("t", Topic(0, 1, 6), "1 to 4096 queues, not 0", id="no queue"),
            pytest.param("t", Topic(1, 5000, 6), "1 to 4096 queues, not 5000", id="queues"),
            pytest.param("t", Topic(1, 1, 8), "perm from 0 to 7, not 8", id="perm"),
        ],
    )
    def test_refuses(self, world: World, topic: str, config: Topic, part: str) -> None:
        refused = create(world, topic, config)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert part in (refused.remark or "")
        assert world.state.topic_names() == []

    @pytest.mark.parametrize(("cluster", "name"), [("nowhere", ""), (CLUSTER, "broker-x")])
    def test_needs_a_group(self, world: World, cluster: str, name: str) -> None:
        assert create(world, cluster=cluster, name=name).code == ResponseCode.SYSTEM_ERROR

    def test_retry_and_group_topics_are_legal_names(self, world: World) -> None:
        assert create(world, "%RETRY%group|x_1-2").ok


class TestDelete:
    @pytest.mark.parametrize(
        ("scope", "left"),
        [
            ({"cluster": CLUSTER, "name": NAME}, [(CLUSTER, "broker-b")]),
            ({"cluster": CLUSTER, "name": ""}, []),
            ({"cluster": "", "name": ""}, []),
            ({"cluster": "other", "name": ""}, [KEY, (CLUSTER, "broker-b")]),
        ],
    )
    def test_by_scope(self, world: World, scope: dict[str, Any], left: list[Any]) -> None:
        create(world, name="")
        assert world.apply(DeleteTopic(topic="t", **scope)).ok
        assert world.state.groups_with("t") == left

    def test_versions_go_on(self, world: World) -> None:
        create(world)
        deleted = world.apply(DeleteTopic(cluster=CLUSTER, name=NAME, topic="t"))
        assert deleted.topics_version == 2
        assert create(world).topics_version == 3

    def test_of_what_is_not_there_succeeds(self, world: World) -> None:
        result = world.apply(DeleteTopic(cluster=CLUSTER, name=NAME, topic="t"))
        assert (result.ok, result.changed) == (True, False)


def report(world: World, broker_id: int, address: str, **topics: Topic) -> Result:
    return world.apply(
        ImportBroker(
            cluster="old", name="b", broker_id=broker_id, address=address, topics=dict(topics)
        )
    )


class TestImport:
    def test_first_report_and_repetition(self) -> None:
        world = World()
        assert report(world, 0, "h:1", t=FOUR).changed
        assert not report(world, 0, "h:1", t=FOUR).changed
        assert world.state.groups_with("t") == [("old", "b")]

    def test_topics_are_merged_and_not_replaced(self) -> None:
        world = World()
        report(world, 0, "h:1", t=FOUR, TBW102=Topic(8, 8, 7))
        report(world, 0, "h:1", u=FOUR)
        assert sorted(world.state.topic_names()) == ["TBW102", "t", "u"]

    def test_unfit_topics_are_left_out(self) -> None:
        world = World()
        assert report(world, 0, "h:1", t=FOUR, u=Topic(0, 0, 6)).ok
        assert world.state.topic_names() == ["t"]

    def test_address_is_kept_under_one_id_and_id_under_one_address(self) -> None:
        world = World()
        report(world, 1, "h:1")
        report(world, 0, "h:1")
        report(world, 0, "g:1")
        assert [(one.broker_id, one.address) for one in world.state.imports["old", "b"]] == [
            (0, "g:1")
        ]

    def test_last_broker_takes_the_topics_along(self) -> None:
        world = World()
        report(world, 0, "h:1", t=FOUR)
        report(world, 1, "g:1")
        assert world.apply(ForgetImport(cluster="old", name="b", address="h:1")).changed
        assert world.state.topic_names() == ["t"]
        assert world.apply(ForgetImport(cluster="old", name="b", address="g:1")).changed
        assert world.state.topic_names() == []
        assert not world.apply(ForgetImport(cluster="old", name="b", address="g:1")).changed


class TestReportOfOneTopic:
    """217, of brokers of the old kind."""

    @staticmethod
    def report_one(world: World, topic: str = "u", config: Topic = FOUR, name: str = "b") -> Result:
        return world.apply(ReportTopic(topic=topic, queues={name: config}))

    def test_is_merged(self) -> None:
        world = World()
        report(world, 0, "h:1", t=FOUR)
        assert self.report_one(world).changed
        assert not self.report_one(world).changed
        assert self.report_one(world, "t", Topic(8, 8, 4)).changed
        assert world.state.topic_table(("old", "b")).topics == {
            "t": Topic(8, 8, 4, since=1),
            "u": replace(FOUR, since=2),
        }

    def test_does_not_undo_that_the_topic_is_ordered(self) -> None:
        """What is reported in this way says nothing of it."""
        world = World()
        report(world, 0, "h:1", t=Topic(4, 4, 6, order=True))
        self.report_one(world, "t", Topic(8, 8, 6))
        assert world.state.topic_table(("old", "b")).topics["t"] == Topic(
            8, 8, 6, order=True, since=1
        )

    @pytest.mark.parametrize("name", ["nobody", NAME])
    def test_only_who_reports_topics_can(self, name: str) -> None:
        world = World()
        world.declare()
        result = self.report_one(world, name=name)
        assert result.code == ResponseCode.INVALID_PARAMETER
        assert result.remark == (
            f"Topic u is not taken over: there is no broker {name} that reports its topics"
        )
        assert world.state.topics == {}

    def test_name_in_several_clusters_is_refused(self) -> None:
        world = World()
        report(world, 0, "h:1")
        world.apply(ImportBroker(cluster="other", name="b", broker_id=0, address="g:1"))
        assert "several clusters have broker b" in str(self.report_one(world).remark)

    def test_all_or_nothing(self) -> None:
        world = World()
        report(world, 0, "h:1")
        both = {"b": FOUR, "c": FOUR}
        assert not world.apply(ReportTopic(topic="u", queues=both)).ok
        assert world.state.topics == {}

    @pytest.mark.parametrize("config", [Topic(0, 4, 6), Topic(4, 4, 8), Topic(4, 99_999, 6)])
    def test_what_is_no_topic_is_refused(self, config: Topic) -> None:
        world = World()
        report(world, 0, "h:1")
        assert self.report_one(world, config=config).code == ResponseCode.INVALID_PARAMETER
