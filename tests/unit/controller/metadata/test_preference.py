"""Places that the owner of a group prefers for its master: an election's choice, and no more."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_controller.metadata.events import DeclareGroup
from gantry_controller.metadata.preference import WishedPlace, as_declared, places_of, rank
from gantry_controller.metadata.results import Result
from gantry_controller.remoting.replies import Versions, replica_info_reply
from gantry_protocol.admin_bodies import PreferredPlace
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.metadata_world import CLUSTER, NAME, World, three_in_sync


def places(**members: tuple[int, ...]) -> tuple[WishedPlace, ...]:
    return tuple(WishedPlace(zone, tuple(map(BrokerId, ids))) for zone, ids in members.items())


def declare(world: World, preferred: tuple[WishedPlace, ...], **facts: Any) -> Result:
    wish = {"uid": "u1", "replicas": 3, "min_in_sync_replicas": 2} | facts
    return world.apply(DeclareGroup(cluster=CLUSTER, name=NAME, preferred=preferred, **wish))


def after_the_masters_death(preferred: tuple[WishedPlace, ...], *live: Any) -> int | None:
    """Who leads a group of three whose master, broker 1, is dead."""
    world = three_in_sync()
    assert declare(world, preferred).ok
    assert world.elect(live=live).ok
    return world.group.master_id


def test_the_first_place_that_has_a_living_member_wins() -> None:
    assert after_the_masters_death(places(a=(3,)), 2, 3) == 3
    assert after_the_masters_death(places(a=(1,), b=(3,)), 2, 3) == 3
    assert after_the_masters_death(places(a=(3,), b=(2,)), 2, 3) == 3
    assert after_the_masters_death(places(a=(3,), b=(2,)), 2) == 2, "a choice, no demand"
    assert after_the_masters_death((), 2, 3) == 2


def test_a_place_comes_before_a_longer_log_which_nobody_was_told_of() -> None:
    world = three_in_sync()
    assert declare(world, places(a=(3,))).ok
    further = world.live(2, epoch=Epoch(1), max_offset=Offset(99))
    assert world.elect(live=[further, 3]).ok
    assert world.group.master_id == 3
    assert world.group.sync_state_set == (2, 3)


def test_within_a_place_the_furthest_wins() -> None:
    world = three_in_sync()
    assert declare(world, places(a=(2, 3))).ok
    further = world.live(3, epoch=Epoch(1), max_offset=Offset(99))
    assert world.elect(live=[2, further]).ok
    assert world.group.master_id == 3


def test_who_is_about_to_go_or_has_no_connection_is_not_preferred() -> None:
    world = three_in_sync()
    assert declare(world, places(a=(3,))).ok
    leaving = world.live(3, epoch=Epoch(1), max_offset=Offset(10), draining=True)
    assert world.elect(live=[2, leaving]).ok
    assert world.group.master_id == 2
    world = three_in_sync()
    assert declare(world, places(a=(3,))).ok
    unheard = world.live(3, epoch=Epoch(1), max_offset=Offset(10), connected=False)
    assert world.elect(live=[2, unheard]).ok
    assert world.group.master_id == 2


def test_nobody_outside_the_set_becomes_master_for_a_place() -> None:
    world = three_in_sync()
    assert world.alter([1, 2], live=[1, 2, 3]).ok
    assert declare(world, places(a=(3,))).ok
    assert world.elect(live=[2, 3]).ok
    assert world.group.master_id == 2


def test_a_living_master_stays() -> None:
    world = three_in_sync()
    assert declare(world, places(a=(3,))).ok
    world.elect(live=[1, 2, 3])
    assert world.group.master_id == 1


def test_a_first_election_takes_the_newest_log_wherever_it_is() -> None:
    world = World()
    assert declare(world, places(a=(3,))).ok
    world.join(1, 2, 3)
    newest = world.live(2, epoch=Epoch(0), max_offset=Offset(950))
    others = [world.live(one, epoch=Epoch(0), max_offset=Offset(9)) for one in (1, 3)]
    assert world.elect(live=[newest, *others]).ok
    assert world.group.master_id == 2


def test_among_equal_logs_a_first_election_prefers_a_place() -> None:
    world = World()
    assert declare(world, places(a=(3,))).ok
    world.join(1, 2, 3)
    assert world.elect(live=[1, 2, 3]).ok
    assert world.group.master_id == 3


@pytest.mark.parametrize(
    ("preferred", "told"),
    [
        ((WishedPlace("a", (BrokerId(1),)), WishedPlace("a", ())), "A zone is preferred twice"),
        (places(a=(1, 2), b=(2,)), "A member is named in two"),
    ],
)
def test_what_has_no_order_is_refused(preferred: tuple[WishedPlace, ...], told: str) -> None:
    world = three_in_sync()
    answer = declare(world, preferred)
    assert not answer.ok
    assert told in (answer.remark or "")
    assert world.group.declaration is not None
    assert world.group.declaration.preferred == ()


def test_a_change_of_places_is_a_change_of_the_declaration() -> None:
    world = three_in_sync()
    assert declare(world, places(a=(3,))).changed
    assert not declare(world, places(a=(3,))).changed
    assert declare(world, ()).changed


def test_the_body_says_what_the_state_has() -> None:
    body = [PreferredPlace(zone="b", broker_ids=[3, 1]), PreferredPlace(zone="a", broker_ids=[2])]
    kept = places_of(body)
    assert kept == places(b=(1, 3), a=(2,))
    assert [one.broker_ids for one in as_declared(kept)] == [[1, 3], [2]]
    assert [rank(kept, BrokerId(one)) for one in (1, 2, 3, 4)] == [0, 1, 0, 2]


def test_brokers_are_told_places_with_what_they_ask_for_anyway() -> None:
    world = three_in_sync()
    asked = request(RequestCode.CONTROLLER_GET_REPLICA_INFO)

    def told() -> str | None:
        answer = replica_info_reply(asked, world.group, versions=Versions(1, 1), draining=())
        return (answer.ext or {}).get("preferredIds")

    assert told() is None
    assert declare(world, places(b=(1, 3), d=(), a=(2,))).ok
    assert told() == "1;3//2"
