"""Addresses for clients outside of the cluster: what is kept, refused, and given."""

import pytest
from gantry_controller.metadata.events import DeclareGroup, RemoveGroup
from gantry_controller.metadata.listeners import (
    LISTENERS_MAX,
    MEMBERS_MAX,
    GroupListener,
    ListenedMember,
    as_wished,
    listeners_of,
    objection,
    route_at,
)
from gantry_protocol.admin import AdvertisedMember
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId
from support.metadata_world import CLUSTER, NAME, World, three_in_sync

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
BY_GROUP = GroupListener(
    "outside",
    (
        ListenedMember(ONE, "172.18.0.2:30911", "172.18.0.2:31001"),
        ListenedMember(TWO, "172.18.0.3:30911", "172.18.0.3:31002"),
    ),
)
BY_MEMBER = GroupListener(
    "outside",
    (
        ListenedMember(ONE, "a.example:10911", "a.example:10911"),
        ListenedMember(TWO, "b.example:10911", "b.example:10911"),
    ),
)


def declare(world: World, *listeners: GroupListener, uid: str = "u1") -> ResponseCode:
    event = DeclareGroup(
        cluster=CLUSTER,
        name=NAME,
        uid=uid,
        replicas=3,
        min_in_sync_replicas=2,
        listeners=listeners,
    )
    return world.apply(event).code


class TestRouteAt:
    @pytest.mark.parametrize(
        ("listener", "master", "in_sync", "wanted"),
        [
            pytest.param(BY_GROUP, ONE, (ONE, TWO), "172.18.0.2:30911", id="that of the master"),
            pytest.param(BY_GROUP, TWO, (ONE, TWO), "172.18.0.3:30911", id="that of the next one"),
            pytest.param(BY_GROUP, None, (TWO,), "172.18.0.3:30911", id="between two masters"),
            pytest.param(BY_GROUP, THREE, (TWO, THREE), "172.18.0.3:30911", id="a new master"),
            pytest.param(BY_GROUP, None, (THREE,), None, id="nobody in sync has an address"),
            pytest.param(BY_MEMBER, TWO, (ONE, TWO), "b.example:10911", id="a member's own"),
            pytest.param(BY_MEMBER, None, (ONE, TWO), None, id="no member stands for another"),
            pytest.param(BY_MEMBER, THREE, (ONE, TWO, THREE), None, id="nor for a new master"),
        ],
    )
    def test_route_of_a_listener(
        self,
        listener: GroupListener,
        master: BrokerId | None,
        in_sync: tuple[BrokerId, ...],
        wanted: str | None,
    ) -> None:
        assert route_at(listener, master, in_sync) == wanted


class TestDeclared:
    def test_listeners_are_kept_with_the_group_until_it_is_declared_without(self) -> None:
        world = three_in_sync()
        assert declare(world, BY_GROUP) == ResponseCode.SUCCESS
        assert world.group.declaration is not None
        assert world.group.declaration.listeners == (BY_GROUP,)
        assert declare(world) == ResponseCode.SUCCESS
        assert world.group.declaration is not None
        assert not world.group.declaration.listeners

    def test_the_same_ones_are_no_change(self) -> None:
        world = three_in_sync()
        declare(world, BY_GROUP)
        index = world.group.changed_index
        assert declare(world, BY_GROUP) == ResponseCode.SUCCESS
        assert world.group.changed_index == index
        declare(world, BY_MEMBER)
        assert world.group.changed_index > index

    def test_they_go_with_the_group(self) -> None:
        world = three_in_sync()
        declare(world, BY_GROUP)
        world.apply(RemoveGroup(cluster=CLUSTER, name=NAME, uid="u1"))
        assert world.state.groups[CLUSTER, NAME].declaration is None

    def test_the_wish_and_back(self) -> None:
        wish = {
            "b": [
                AdvertisedMember(broker_id=2, route="h:1", own="h:2"),
                AdvertisedMember(broker_id=1, route="g:1", own=""),
            ],
            "a": [],
        }
        kept = listeners_of(wish)
        assert [item.name for item in kept] == ["a", "b"]
        assert [item.broker_id for item in kept[1].members] == [1, 2]
        assert listeners_of(as_wished(kept)) == kept


class TestObjection:
    @pytest.mark.parametrize("listener", [BY_GROUP, BY_MEMBER, GroupListener("a")], ids=str)
    def test_none(self, listener: GroupListener) -> None:
        assert objection((listener,)) is None

    @pytest.mark.parametrize(
        ("listeners", "said"),
        [
            pytest.param(
                tuple(GroupListener(f"l{n}") for n in range(LISTENERS_MAX + 1)),
                "at most 4",
                id="many",
            ),
            pytest.param((GroupListener("Outside"),), "no name of a listener", id="capitals"),
            pytest.param((GroupListener("a" * 16),), "no name of a listener", id="a long name"),
            pytest.param(
                (
                    GroupListener(
                        "a", tuple(ListenedMember(BrokerId(n), "", "") for n in range(1, 11))
                    ),
                ),
                f"at most {MEMBERS_MAX}",
                id="many members",
            ),
            pytest.param(
                (
                    GroupListener(
                        "a", (ListenedMember(ONE, "h:1", ""), ListenedMember(ONE, "h:2", ""))
                    ),
                ),
                "once",
                id="twice",
            ),
            pytest.param(
                (GroupListener("a", (ListenedMember(ONE, "h", ""),)),), "needs a port", id="no port"
            ),
            pytest.param(
                (GroupListener("a", (ListenedMember(ONE, "h:1", "h:70000"),)),),
                "needs a port",
                id="a port beyond",
            ),
        ],
    )
    def test_is_said_and_nothing_is_kept(
        self, listeners: tuple[GroupListener, ...], said: str
    ) -> None:
        problem = objection(listeners)
        assert problem is not None
        assert said in problem
        world = three_in_sync()
        declare(world, BY_GROUP)
        assert declare(world, *listeners) == ResponseCode.CONTROLLER_INVALID_REQUEST
        assert world.group.declaration is not None
        assert world.group.declaration.listeners == (BY_GROUP,)
