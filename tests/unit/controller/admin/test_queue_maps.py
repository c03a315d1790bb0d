"""The admin API's routes about queue maps."""

from gantry_controller.liveness.core.table import Heartbeat
from gantry_controller.metadata.events import (
    ApplyBrokerId,
    DeclareGroup,
    ElectMaster,
    LiveMember,
    RegisterBroker,
)
from gantry_protocol.queue_map import MappedQueue, Segment
from gantry_protocol.types import BrokerId
from support.admin_api import GROUP, Api
from support.controller_dispatcher import CLUSTER, NAME

QUEUES = f"/v1/clusters/{CLUSTER}/queues"
REBALANCE = f"/v1/clusters/{CLUSTER}/queues-rebalance"


async def groups(admin: Api, *others: str) -> None:
    """Groups with a master each."""
    if (CLUSTER, NAME) not in admin.harness.machine.state.groups:
        await admin.three_in_sync()
    for name in others:
        key = {"cluster": CLUSTER, "name": name}
        one = BrokerId(1)
        for event in (
            DeclareGroup(**key, uid=name, replicas=1, min_in_sync_replicas=1),
            ApplyBrokerId(**key, broker_id=one, check_code=name),
            RegisterBroker(**key, broker_id=one, address=f"{name}:1", incarnation=name),
            ElectMaster(**key, live=(LiveMember(one, name),), first_wait_over=True),
        ):
            assert admin.harness.apply(event).ok


def die(admin: Api, name: str) -> None:
    """The only broker of a group speaks, closes its connection, and its address refuses."""
    watchman = admin.harness.watchman
    watchman.heard((CLUSTER, name), Heartbeat(BrokerId(1), 2.5, name), 99)
    watchman.table.closed(99)
    assert watchman.table.refuse((CLUSTER, name, BrokerId(1)), 99)


def goals(admin: Api, topic: str = "t") -> list[str]:
    found = admin.harness.machine.state.queue_map(CLUSTER, topic)
    assert found is not None
    return [queue.goal for queue in found.queues]


async def test_a_map_is_made_shown_and_changed(admin: Api) -> None:
    await groups(admin, "z")
    status, view = await admin.call("PUT", QUEUES + "/t", {"queues": 4})
    assert status == 200
    (topic,) = view["topics"]
    assert (topic["topic"], topic["queues"], topic["moving"]) == ("t", 4, 0)
    assert topic["byGroup"] == {NAME: 2, "z": 2}
    assert view["load"] == {NAME: 2, "z": 2}
    place = next(item["number"] for item in topic["detail"] if item["segments"][0]["group"] == "z")
    status, view = await admin.call(
        "PUT", QUEUES + "/t", {"queues": 4, "places": {str(place): NAME}}
    )
    moving = view["topics"][0]["detail"][place]
    assert (status, moving["target"]) == (200, NAME)
    assert moving["segments"] == [{"group": "z", "start": 0, "queueId": place}]
    _, listed = await admin.call("GET", QUEUES)
    assert [(item["topic"], item["moving"], item["detail"]) for item in listed["topics"]] == [
        ("t", 1, [])
    ]
    assert listed["load"] == {NAME: 3, "z": 1}
    _, unknown = await admin.call("GET", QUEUES + "?topic=unknown")
    assert unknown["topics"] == []


async def test_what_is_refused_is_said(admin: Api) -> None:
    await groups(admin)
    status, error = await admin.call("PUT", QUEUES + "/t", {"queues": 0})
    assert (status, "1 to 4096 queues" in error["message"]) == (409, True)
    status, error = await admin.call("PUT", QUEUES + "/t", {"queues": 1, "places": {"0": "gone"}})
    assert (status, "cannot go to gone" in error["message"]) == (409, True)
    status, _ = await admin.call("PUT", QUEUES + "/t", {"queue": 1})
    assert status == 400


async def test_queues_are_evened_out_over_a_new_group(admin: Api) -> None:
    await groups(admin)
    await admin.call("PUT", QUEUES + "/t", {"queues": 4})
    await groups(admin, "z")
    index = admin.harness.quorum.index
    status, dry = await admin.call("POST", REBALANCE, {"dryRun": True})
    assert (status, len(dry["moves"])) == (200, 2)
    assert admin.harness.quorum.index == index
    _, real = await admin.call("POST", REBALANCE, {})
    assert real == dry
    assert sorted(goals(admin)) == sorted([NAME, NAME, "z", "z"])
    _, again = await admin.call("POST", REBALANCE, {})
    assert again["moves"] == []
    _, empty = await admin.call("POST", REBALANCE, {"without": ["z"]})
    assert {move["target"] for move in empty["moves"]} <= {NAME}
    status, error = await admin.call("POST", REBALANCE, {"without": ["z", NAME]})
    assert (status, "is left that could have the queues" in error["message"]) == (409, True)


async def test_nothing_goes_to_a_group_that_nobody_serves_and_a_dead_one_keeps_its_own(
    admin: Api,
) -> None:
    await groups(admin, "y", "z")
    await admin.call("PUT", QUEUES + "/t", {"queues": 6, "places": {"0": "y", "1": "y", "2": "y"}})
    new = DeclareGroup(cluster=CLUSTER, name="new", uid="n", replicas=1, min_in_sync_replicas=1)
    assert admin.harness.apply(new).ok
    die(admin, "z")
    before = goals(admin)
    await admin.call("PUT", QUEUES + "/u", {"queues": 4})
    assert set(goals(admin, "u")) == {NAME, "y"}
    _, even = await admin.call("POST", REBALANCE, {})
    assert {move["target"] for move in even["moves"]} <= {NAME, "y"}
    assert [goal == "z" for goal in goals(admin)] == [goal == "z" for goal in before]


async def test_a_drain_is_not_done_before_the_queues_have_left(admin: Api) -> None:
    await groups(admin, "y", "z")
    await admin.call("PUT", QUEUES + "/t", {"queues": 6})
    index = admin.harness.quorum.index
    status, _ = await admin.call("PUT", GROUP + "/drain", {})
    assert status == 200
    assert admin.harness.quorum.index == index + 1, "the watchman has them move"
    admin.harness.heartbeat(1, incarnation="i1", drainDone="true")
    _, view = await admin.call("GET", GROUP)
    drain = view["members"][0]["drain"]
    assert drain["done"] is False
    assert drain["waitsFor"] == "queues of mapped topics that are still to move elsewhere: 2"
    left = {"drainDone": "false", "drainUnread": "4", "drainWaitsFor": "4 wait"}
    admin.harness.heartbeat(1, incarnation="i1", **left)
    _, view = await admin.call("GET", GROUP)
    assert view["members"][0]["drain"]["waitsFor"].startswith("4 wait; queues of mapped topics")
    state = admin.harness.machine.state
    known = state.queue_maps[CLUSTER, "t"]
    there = tuple(MappedQueue((Segment("z", 0, number),)) for number in range(6))
    state.put_queue_map(CLUSTER, "t", type(known)(known.epoch, known.changed, there))
    admin.harness.heartbeat(1, incarnation="i1", drainDone="true")
    _, view = await admin.call("GET", GROUP)
    assert (view["members"][0]["drain"]["done"], view["queues"]) == (True, 0)
    # New queues do not go there.
    await admin.call("PUT", QUEUES + "/u", {"queues": 4})
    assert NAME not in goals(admin, "u")
