"""Changes of the sync-state set: each refusal, upstream's order of checks, and the step itself."""

from typing import Any

import pytest
from gantry_controller.metadata.events import AlterSyncStateSet
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch
from support.metadata_world import CLUSTER, NAME, World, incarnation, three_in_sync

FAILED = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
REJECTING = "Rejecting alter syncStateSet request because"


def test_unknown_group() -> None:
    world = World()
    refused = world.apply(
        AlterSyncStateSet(
            cluster=CLUSTER,
            name=NAME,
            master_id=BrokerId(1),
            master_epoch=Epoch(0),
            new_set=(BrokerId(1),),
            expected_set_epoch=0,
        )
    )
    assert (refused.code, refused.remark) == (FAILED, "Broker metadata is not existed")


@pytest.mark.parametrize(
    ("new_set", "options", "code", "remark"),
    [
        pytest.param(
            [3, 2, 1],
            {"master": 2, "master_epoch": 9, "set_epoch": 9},
            FAILED,
            "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
            id="equal set comes before everything",
        ),
        pytest.param(
            [1],
            {"master": 2, "master_epoch": 9, "set_epoch": 9},
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"{REJECTING} the current leader is:{{1}}, not {{2}}",
            id="another master comes before epochs",
        ),
        pytest.param(
            [1],
            {"signed": incarnation(1, 2)},
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"{REJECTING} another process of broker 1 was elected",
            id="another process of the master",
        ),
        pytest.param(
            [1],
            {"master_epoch": 2, "set_epoch": 9},
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"{REJECTING} the current master epoch is:{{1}}, not {{2}}",
            id="master epoch comes before set epoch",
        ),
        pytest.param(
            [9],
            {"set_epoch": 1},
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"{REJECTING} the current syncStateSet epoch is:{{2}}, not {{1}}",
            id="set epoch comes before members",
        ),
        pytest.param(
            [1, 9],
            {},
            ResponseCode.CONTROLLER_INVALID_REPLICAS,
            f"{REJECTING} the replicas {{9}} don't exist",
            id="unknown member",
        ),
        pytest.param(
            [1, 3],
            {"live": [1, 2]},
            ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
            f"{REJECTING} the replicas {{3}} don't alive",
            id="dead member",
        ),
        pytest.param(
            [2, 3],
            {},
            FAILED,
            f"{REJECTING} the newSyncStateSet don't contains origin leader {{1}}",
            id="without the master",
        ),
        pytest.param(
            [],
            {},
            FAILED,
            f"{REJECTING} the newSyncStateSet don't contains origin leader {{1}}",
            id="empty",
        ),
    ],
)
def test_refusals_in_upstream_order(
    new_set: list[int], options: dict[str, Any], code: ResponseCode, remark: str
) -> None:
    world = three_in_sync()
    before = world.group
    refused = world.alter(new_set, **{"live": [1, 2, 3], **options})
    assert (refused.code, refused.remark) == (code, remark)
    assert world.group == before


def test_without_a_master_nobody_may() -> None:
    world = three_in_sync()
    world.clean([1])
    refused = world.alter([2], master=2, live=[2, 3])
    assert refused.code == ResponseCode.CONTROLLER_INVALID_MASTER


def test_shrink_and_expand() -> None:
    world = three_in_sync()
    assert world.alter([1, 1, 2], live=[1, 2], signed=incarnation(1)).ok
    assert (world.group.sync_state_set, world.group.sync_state_set_epoch) == ((1, 2), 3)
    assert world.alter([3, 2, 1], live=[1, 2, 3]).ok
    assert (world.group.sync_state_set, world.group.sync_state_set_epoch) == ((1, 2, 3), 4)
    assert world.group.master_epoch == 1


def test_proposal_of_a_deposed_master_is_refused() -> None:
    world = three_in_sync()
    group = world.group
    world.elect(live=[2, 3])
    late = world.alter(
        [1],
        master=1,
        master_epoch=group.master_epoch,
        set_epoch=group.sync_state_set_epoch,
        live=[1, 2, 3],
    )
    assert late.code == ResponseCode.CONTROLLER_INVALID_MASTER


def test_same_master_with_the_epoch_before_is_refused() -> None:
    world = three_in_sync()
    world.register(1, start=2, last_epoch=1)
    world.elect(live=[1])
    late = world.alter([1, 2], master=1, master_epoch=1, set_epoch=3, live=[1, 2])
    assert late.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
