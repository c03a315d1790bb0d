"""The watch: what a reader is owed, in which order, and when its stream ends."""

import asyncio

import pytest
from gantry_controller.admin.watch import CONFIRM_WITHIN_S, HEARTBEAT_S, Watcher, WatchHub
from gantry_controller.metadata.events import DeclareGroup, RemoveGroup
from support.controller_dispatcher import CLUSTER, NAME, Harness

Steps = tuple[list[tuple[str, int]], int | None]


def declare(harness: Harness, name: str = NAME, uid: str = "u1", replicas: int = 3) -> None:
    harness.apply(
        DeclareGroup(cluster=CLUSTER, name=name, uid=uid, replicas=replicas, min_in_sync_replicas=1)
    )


def hub_of(harness: Harness) -> WatchHub:
    return WatchHub(harness.machine, harness.quorum.read, harness.watchman.liveness_changes)


async def read(watcher: Watcher) -> Steps:
    groups, heartbeat = await watcher.next()
    return [(group.name, group.changed_index) for group in groups], heartbeat


async def test_first_every_group_in_order_of_change_then_a_heartbeat(harness: Harness) -> None:
    declare(harness, "b")
    declare(harness, "a")
    declare(harness, "b", replicas=5)
    assert await read(hub_of(harness).open(0)) == ([("a", 2), ("b", 3)], 3)


async def test_then_each_change(harness: Harness) -> None:
    hub = hub_of(harness)
    watcher = hub.open(0)
    assert await read(watcher) == ([], 0)
    declare(harness)
    assert await read(watcher) == ([(NAME, 1)], None)


async def test_resumes_after_its_index(harness: Harness) -> None:
    declare(harness, "a")
    declare(harness, "b")
    assert await read(hub_of(harness).open(1)) == ([("b", 2)], 2)


async def test_index_of_another_history_starts_anew(harness: Harness) -> None:
    declare(harness)
    assert await read(hub_of(harness).open(999)) == ([(NAME, 1)], 1)


async def test_removal_is_told_to_those_who_may_know_the_group(harness: Harness) -> None:
    declare(harness)
    harness.apply(RemoveGroup(cluster=CLUSTER, name=NAME, uid="u1"))
    hub = hub_of(harness)
    assert await read(hub.open(1)) == ([(NAME, 2)], 2)
    assert await read(hub.open(0)) == ([], 2)


async def test_slow_reader_gets_the_newest_of_each_group_only(harness: Harness) -> None:
    hub = hub_of(harness)
    watcher = hub.open(0)
    for replicas in range(1, 9):
        declare(harness, "a", replicas=replicas)
    declare(harness, "b")
    declare(harness, "a", replicas=9)
    assert await read(watcher) == ([("b", 9), ("a", 10)], 0)


@pytest.mark.looptime
async def test_heartbeats_follow_a_linearizable_read() -> None:
    harness = Harness()
    hub = hub_of(harness)
    hub.start()
    watcher = hub.open(0)
    await read(watcher)
    reads = harness.quorum.reads
    declare(harness)
    await asyncio.sleep(HEARTBEAT_S + 0.1)
    assert harness.quorum.reads == reads + 1
    assert await read(watcher) == ([(NAME, 1)], 1)
    hub.stop()
    await harness.close()


@pytest.mark.looptime
async def test_members_that_come_go_or_drain_are_told_with_the_heartbeat() -> None:
    harness = Harness()
    harness.watchman.start()
    declare(harness)
    harness.join(1)
    hub = hub_of(harness)
    hub.start()
    watcher = hub.open(0)
    lines = []

    async def one_second() -> list[tuple[str, int]]:
        await asyncio.sleep(HEARTBEAT_S)
        return (await read(watcher))[0]

    await read(watcher)
    harness.heartbeat(1, heartbeatTimeoutMills="2500")
    lines.append(await one_second())
    harness.heartbeat(1, heartbeatTimeoutMills="2500")
    lines.append(await one_second())
    harness.heartbeat(1, heartbeatTimeoutMills="2500", draining="true")
    lines.append(await one_second())
    lines += [await one_second(), await one_second()]
    told = [(NAME, harness.group.changed_index)]
    assert lines == [told, [], told, [], told]
    hub.stop()
    await harness.close()


@pytest.mark.looptime
async def test_leader_that_cannot_confirm_ends_its_streams() -> None:
    harness = Harness()
    hub = hub_of(harness)
    hub.start()
    watcher = hub.open(0)
    await read(watcher)
    harness.quorum.holding = True
    await asyncio.sleep(HEARTBEAT_S + CONFIRM_WITHIN_S + 2 * HEARTBEAT_S)
    assert watcher.ended
    assert await read(watcher) == ([], None)
    harness.quorum.release()
    assert not hub.watchers
    hub.stop()
    await harness.close()


@pytest.mark.looptime
async def test_a_confirmation_that_came_too_late_vouches_for_nobody_who_came_since() -> None:
    harness = Harness()
    hub = hub_of(harness)
    hub.start()
    hub.open(0)
    harness.quorum.holding = True
    await asyncio.sleep(HEARTBEAT_S + CONFIRM_WITHIN_S + HEARTBEAT_S)
    (late,) = harness.quorum.held
    watcher = hub.open(0)
    await read(watcher)
    declare(harness)
    await asyncio.sleep(HEARTBEAT_S)
    harness.quorum.held.remove(late)
    late()
    assert await read(watcher) == ([(NAME, 1)], None), "nothing was confirmed since it was told"
    harness.quorum.release()
    assert await read(watcher) == ([], 1)
    hub.stop()
    await harness.close()


async def test_deposed_leader_ends_its_streams(harness: Harness) -> None:
    hub = hub_of(harness)
    watcher = hub.open(0)
    hub.role_changed(leading=True)
    assert not watcher.ended
    hub.role_changed(leading=False)
    assert watcher.ended


@pytest.mark.looptime
async def test_an_error_instead_of_a_confirmation_ends_the_streams() -> None:
    """Another leads by now, and its changes do not come here."""
    harness = Harness()
    hub = hub_of(harness)
    hub.start()
    watcher = hub.open(0)
    await read(watcher)
    harness.quorum.follow(2)
    await asyncio.sleep(HEARTBEAT_S + 0.1)
    assert watcher.ended
    assert not hub.watchers
    hub.stop()
    await harness.close()


async def test_a_state_from_a_snapshot_ends_the_streams(harness: Harness) -> None:
    """Which groups have gone meanwhile no event has told."""
    hub = hub_of(harness)
    watcher = hub.open(0)
    declare(harness)
    harness.machine.restore(harness.machine.assemble(list(harness.machine.snapshot())))
    assert watcher.ended
    assert not hub.watchers
