"""Owners of queues: whose report counts, in which order, and what is kept."""

from __future__ import annotations

import pytest
from gantry_controller.metadata import locks as module
from gantry_controller.metadata.clients import QueueOwner
from gantry_controller.metadata.events import RemoveGroup, ReportLocks, RetireGroup
from gantry_controller.metadata.results import Result
from gantry_protocol.codes import ResponseCode as Code
from gantry_protocol.types import BrokerId, Epoch
from support.metadata_world import CLUSTER, NAME, World, incarnation, three_in_sync

KEY = (CLUSTER, NAME)


def report(
    world: World,
    serial: int,
    *owners: tuple[int, str],
    group: str = "g",
    broker_id: int = 1,
    epoch: int = 1,
    start: int = 1,
) -> Result:
    changes = tuple(QueueOwner("t", queue_id, client) for queue_id, client in owners)
    return world.apply(
        ReportLocks(
            cluster=CLUSTER,
            name=NAME,
            broker_id=BrokerId(broker_id),
            master_epoch=Epoch(epoch),
            incarnation=incarnation(broker_id, start),
            serial=serial,
            groups={group: changes},
        )
    )


def owners(world: World, group: str = "g") -> dict[int, str]:
    found = world.state.lock_table(KEY).groups.get(group, ())
    return {item.queue_id: item.client_id for item in found}


def test_changes_are_taken_over_and_the_rest_stays() -> None:
    world = three_in_sync()
    assert report(world, 1, (1, "b"), (0, "a")).ok
    assert report(world, 2, (1, "c"), (2, "c")).ok
    assert list(owners(world).items()) == [(0, "a"), (1, "c"), (2, "c")]
    assert report(world, 3, (0, ""), (7, "")).ok
    assert report(world, 4, (0, "z"), group="h").ok
    assert owners(world) == {1: "c", 2: "c"}
    assert world.state.lock_table(KEY).count == 3
    assert report(world, 5, (1, ""), (2, "")).ok
    assert set(world.state.lock_table(KEY).groups) == {"h"}


def test_a_report_that_was_overtaken_changes_nothing() -> None:
    """It was given up for lost, and its queue has been granted to somebody else since."""
    world = three_in_sync()
    report(world, 1, (0, "a"))
    assert report(world, 3, (0, "c")).ok
    assert report(world, 2, (0, "b")).code == Code.INVALID_PARAMETER
    assert report(world, 3, (0, "c")).ok, "the same report, sent twice"
    assert owners(world) == {0: "c"}
    assert world.state.lock_table(KEY).version == 2


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        ({"broker_id": 2}, Code.CONTROLLER_INVALID_MASTER),
        ({"start": 2}, Code.CONTROLLER_INVALID_MASTER),
        ({"epoch": 2}, Code.CONTROLLER_FENCED_MASTER_EPOCH),
    ],
    ids=["replica", "later process", "other epoch"],
)
def test_only_the_master_reports(claim: dict[str, int], code: Code) -> None:
    world = three_in_sync()
    report(world, 1, (0, "a"))
    assert report(world, 2, (0, "b"), **claim).code == code
    assert owners(world) == {0: "a"}


def test_the_next_master_begins_its_own_count_and_finds_the_owners() -> None:
    world = three_in_sync()
    report(world, 9, (0, "a"), (1, "b"))
    world.elect(2, live=[2, 3])
    assert owners(world) == {0: "a", 1: "b"}
    assert report(world, 10, (0, "x")).code == Code.CONTROLLER_INVALID_MASTER
    assert report(world, 1, (1, "c"), broker_id=2, epoch=2).ok
    assert owners(world) == {0: "a", 1: "c"}


def test_what_is_kept_is_bounded_and_may_always_become_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOCKS_MAX", 2)
    world = three_in_sync()
    report(world, 1, (0, "a"), (1, "a"))
    assert report(world, 2, (2, "a")).code == Code.INVALID_PARAMETER
    assert report(world, 2, (0, ""), (2, "a")).ok
    assert owners(world) == {1: "a", 2: "a"}
    assert report(world, 3, (0, "a"), group="bad name").code == Code.INVALID_PARAMETER
    assert report(world, 3, (1, "x" * 1025)).code == Code.INVALID_PARAMETER


def test_owners_outlive_retirement_and_end_with_the_group() -> None:
    """Clients of a retired group finish what it still has."""
    world = three_in_sync()
    report(world, 1, (0, "a"))
    assert world.apply(RetireGroup(cluster=CLUSTER, name=NAME, uid="u1")).ok
    assert owners(world) == {0: "a"}
    assert world.apply(RemoveGroup(cluster=CLUSTER, name=NAME, uid="u1")).ok
    assert KEY not in world.state.locks
