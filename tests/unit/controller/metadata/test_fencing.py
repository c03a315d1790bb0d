"""Members that people take out of their group for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gantry_controller.metadata.events import AcceptLoss, FenceMember
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.metadata_world import CLUSTER, NAME, World, three_in_sync

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_controller.metadata.results import Result


def fence(
    world: World, broker_id: int, *, live: Iterable[int] = (1, 2, 3), fenced: bool = True
) -> Result:
    return world.apply(
        FenceMember(
            cluster=CLUSTER,
            name=NAME,
            broker_id=BrokerId(broker_id),
            fenced=fenced,
            live=world.alive(live),
        )
    )


def test_a_fenced_member_leaves_the_set_at_once_and_is_not_taken_in() -> None:
    world = three_in_sync()
    before = world.group.sync_state_set_epoch
    assert fence(world, 3).changed
    assert (world.group.fenced, world.group.sync_state_set) == ((3,), (1, 2))
    assert world.group.sync_state_set_epoch == before + 1, "so that its master's proposals fail"
    assert world.group.master_epoch == 1, "nobody is elected for it"
    refused = world.alter([1, 2, 3], live=[1, 2, 3])
    assert refused.code == ResponseCode.CONTROLLER_INVALID_REPLICAS
    assert "fenced" in refused.remark
    assert not fence(world, 3).changed, "it is so already"


def test_nobody_fenced_is_elected_though_all_others_die() -> None:
    world = three_in_sync()
    fence(world, 3)
    for designate in (False, True):
        assert not world.elect(3, live=[3], designate=designate).ok
    assert not world.elect(live=[3], waited=True).ok
    assert world.group.master_id == 1
    assert world.elect(live=[2, 3]).ok
    assert (world.group.master_id, world.group.sync_state_set) == (2, (2,))


def test_where_the_whole_set_was_struck_it_cannot_be_named() -> None:
    world = three_in_sync()
    fence(world, 3)
    assert world.alter([1], live=[1]).ok
    assert world.clean([1], living=False).ok
    refused = world.elect(3, live=[2, 3], designate=True)
    assert not refused.ok
    assert "fenced" in refused.remark
    assert world.elect(2, live=[2, 3], designate=True).ok


def test_a_loss_is_not_accepted_in_favour_of_a_fenced_member() -> None:
    world = three_in_sync()
    fence(world, 3)
    event = AcceptLoss(
        cluster=CLUSTER,
        name=NAME,
        broker_id=BrokerId(3),
        expected_epoch=Epoch(1),
        floor_offset=Offset(-1),
        live=world.alive([3]),
        at_ms=1,
    )
    refused = world.apply(event)
    assert not refused.ok
    assert "fenced" in refused.remark


def test_let_in_again_it_may_be_proposed() -> None:
    world = three_in_sync()
    fence(world, 3)
    before = world.group.sync_state_set_epoch
    assert fence(world, 3, fenced=False).changed
    assert (world.group.fenced, world.group.sync_state_set) == ((), (1, 2))
    assert world.group.sync_state_set_epoch == before + 1, "brokers see which answer is newer"
    assert world.alter([1, 2, 3], live=[1, 2, 3]).ok
    assert not fence(world, 3, fenced=False).changed


@pytest.mark.parametrize(
    ("broker_id", "live", "why"),
    [
        (1, (1, 2, 3), "is the master"),
        (4, (1, 2, 3), "has no member 4; it has: 1, 2, 3"),
        (3, (1, 3), "only 1 members of broker-a would be in sync and alive, and 2 are needed"),
    ],
)
def test_it_is_refused(broker_id: int, live: tuple[int, ...], why: str) -> None:
    world = three_in_sync()
    refused = fence(world, broker_id, live=live)
    assert refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert why in refused.remark
    assert world.group.fenced == ()


def test_writes_do_not_end_with_it() -> None:
    """Of three with a minimum of two, one may be fenced; a minimum of one allows for two."""
    world = three_in_sync()
    assert fence(world, 2).changed
    assert not fence(world, 3).ok
    world.declare(3, 1)
    assert fence(world, 3).changed
    assert (world.group.sync_state_set, world.group.fenced) == ((1,), (2, 3))
    assert not fence(world, 1).ok, "never the last one"


def test_a_sick_member_outside_the_set_may_be_fenced() -> None:
    world = three_in_sync()
    assert world.alter([1, 2], live=[1, 2]).ok
    assert fence(world, 3, live=[1, 2]).changed
    assert world.group.sync_state_set == (1, 2)


def test_who_could_let_writes_come_back_is_not_fenced() -> None:
    """Of a minimum of two only the master is in sync: the last one that may join stays."""
    world = three_in_sync()
    assert world.alter([1], live=[1]).ok
    assert not fence(world, 2, live=[1, 2]).ok
    assert fence(world, 2, live=[1, 2, 3]).changed


def test_before_the_first_election_nobody_is_fenced() -> None:
    world = World()
    world.declare()
    world.join(1, 2, 3)
    refused = fence(world, 3)
    assert "has not elected a master yet" in refused.remark


def test_who_is_gone_from_the_record_is_not_fenced_any_more() -> None:
    forgotten = three_in_sync()
    fence(forgotten, 3)
    assert forgotten.forget(3, live=[1, 2]).changed
    assert forgotten.group.fenced == ()
    cleaned = three_in_sync()
    fence(cleaned, 3)
    assert cleaned.clean([3]).changed
    assert cleaned.group.fenced == ()
    removed = three_in_sync()
    fence(removed, 3)
    removed.clean(living=True)
    assert removed.group.fenced == ()


def test_a_restart_of_its_process_changes_nothing() -> None:
    world = three_in_sync()
    fence(world, 3)
    assert world.register(3, start=2).changed
    assert world.group.fenced == (3,)
