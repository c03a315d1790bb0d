"""Upstream's own cases for the replica metadata, as far as they concern what brokers can see.

RocketMQ ``ReplicasInfoManagerTest``, ``DefaultElectPolicyTest``. Brokers here are Java's: no
declaration, no incarnations. Where the outcome differs from upstream's, the test says why.
"""

import pytest
from gantry_controller.metadata.events import LiveMember
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.metadata_world import NAME, World, address, three_in_sync


def java(broker_id: int, epoch: int, end: int, priority: int = 0) -> LiveMember:
    return LiveMember(
        broker_id=BrokerId(broker_id), epoch=Epoch(epoch), max_offset=Offset(end), priority=priority
    )


def test_register_broker_success() -> None:
    group = three_in_sync(own=False).group
    assert (group.master_id, group.master_epoch, group.sync_state_set_epoch) == (1, 1, 2)
    assert group.master is not None
    assert group.master.address == address(1)
    assert group.sync_state_set == (1, 2, 3)


def test_register_with_master_exist() -> None:
    world = World(own=False)
    world.join(1, 2)
    assert world.elect(1, live=[]).ok
    assert world.elect(2, live=[1, 2]).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    world.join(3)
    assert world.elect(3, live=[1, 2, 3]).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    group = world.group
    assert (group.master_id, group.master_epoch, group.sync_state_set_epoch) == (1, 1, 1)
    assert group.sync_state_set == (1,)


def test_register_with_old_master_inactive() -> None:
    world = three_in_sync(own=False)
    assert world.elect(3, live=[3]).ok
    group = world.group
    assert (group.master_id, group.master_epoch, group.sync_state_set_epoch) == (3, 2, 3)
    assert group.sync_state_set == (3,)


def test_elect_master_old_master_still_alive() -> None:
    world = three_in_sync(own=False)
    live = [java(1, 1, 1), java(2, 1, 2), java(3, 1, 3)]
    result = world.elect(live=live)
    assert result.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert result.remark == (
        "The old master 1 is still alive, not need to elect new master for broker broker-a"
    )


@pytest.mark.parametrize(
    ("live", "winner"),
    [
        pytest.param([java(2, 1, 2), java(3, 0, 3)], 2, id="higher epoch"),
        pytest.param([java(2, 1, 2), java(3, 1, 3)], 3, id="higher offset when epoch equals"),
        pytest.param(
            [java(2, 1, 3, 2), java(3, 1, 3, 1)], 3, id="higher priority when both are equal"
        ),
        pytest.param(
            [java(2, 1, 2**31 + 10), java(3, 1, 5)], 2, id="offset gap above 2^31 (int32 overflow)"
        ),
    ],
)
def test_elect_master_prefers(live: list[LiveMember], winner: int) -> None:
    world = three_in_sync(own=False)
    assert world.elect(live=live).ok
    assert (world.group.master_id, world.group.master_epoch) == (winner, 2)


def test_elect_master_by_the_controller_and_by_an_administrator() -> None:
    world = three_in_sync(own=False)
    assert world.elect(live=[2, 3]).ok
    group = world.group
    assert group.master_epoch == 2
    assert group.master_id == 2
    # Broker 1 died without having left the set; upstream's alter makes it a member again.
    assert world.alter([1, 2, 3], live=[1, 2, 3]).ok
    dead = world.elect(1, designate=True, live=[2, 3])
    assert dead.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    current = world.elect(2, designate=True, live=[1, 2, 3])
    assert current.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert world.elect(1, designate=True, live=[1, 3]).ok
    assert (world.group.master_id, world.group.master_epoch) == (1, 3)


def test_all_replicas_shut_down_and_restart() -> None:
    """Upstream drops the master and burns an epoch here; a failure changes nothing with us."""
    world = three_in_sync(own=False)
    assert world.alter([1], live=[1]).ok
    before = world.group
    failed = world.elect(live=[2, 3])
    assert failed.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    assert world.group == before
    assert world.elect(2, live=[2, 3]).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    # Broker 1 comes back: a new process, so a new epoch, though it was master all the time.
    assert world.register(1).ok
    assert world.elect(1, live=[1, 2, 3]).ok
    assert (world.group.master_id, world.group.master_epoch) == (1, 2)


def test_clean_broker_data() -> None:
    world = three_in_sync(own=False)
    alive = world.clean([1], live=[1, 2, 3])
    assert alive.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert alive.remark == f"Broker [{NAME},  1] is still alive, clean up failure"
    whole = world.clean()
    assert whole.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert whole.remark == f"Broker {NAME} is still alive, clean up failure"
    assert world.clean([1]).ok
    assert world.clean([1, 2, 3]).ok
    unknown = world.clean([1, 2, 3], living=True)
    assert unknown.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert unknown.remark == f"Broker {NAME} is not existed,clean broker data failure."


def test_clean_living_takes_the_whole_group_whatever_is_listed() -> None:
    world = three_in_sync(own=False)
    assert world.clean([1], live=[1, 2, 3], living=True).ok
    assert world.group.removed
