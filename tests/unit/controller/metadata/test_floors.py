"""What the quorum knows to be confirmed: it rises, it bars who holds less, a person gives it up."""

from __future__ import annotations

import pytest
from gantry_controller.metadata import snapshot
from gantry_controller.metadata.confirmed import Floor
from gantry_controller.metadata.election import BELOW_FLOOR
from gantry_controller.metadata.events import (
    AcceptLoss,
    AdoptGroup,
    CleanBrokerData,
    CreateTopic,
    DeleteTopic,
    FloorRow,
    LiveMember,
    PutSubscriptionGroup,
    RaiseFloors,
    RemoveGroup,
    ReportTopics,
)
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.metadata_world import CLUSTER, NAME, World, incarnation, three_in_sync

KEY = (CLUSTER, NAME)


def raise_floor(world: World, epoch: int, offset: int, *, of: int | None = None) -> Result:
    master_epoch = world.group.master_epoch if of is None else of
    row = FloorRow(CLUSTER, NAME, Epoch(master_epoch), Epoch(epoch), Offset(offset))
    return world.apply(RaiseFloors(rows=(row,)))


def accept(world: World, broker_id: int, floor: int, *live: LiveMember, epoch: int = 1) -> Result:
    return world.apply(
        AcceptLoss(
            cluster=CLUSTER,
            name=NAME,
            broker_id=BrokerId(broker_id),
            expected_epoch=Epoch(epoch),
            floor_offset=Offset(floor),
            live=live,
            at_ms=17,
        )
    )


def at(world: World, broker_id: int, epoch: int, end: int) -> LiveMember:
    return world.live(broker_id, epoch=Epoch(epoch), max_offset=Offset(end))


@pytest.fixture
def world() -> World:
    """Three in sync, confirmed up to 100 of epoch 1; the master has just started anew."""
    made = three_in_sync()
    assert raise_floor(made, 1, 100).changed
    made.register(1, start=2, last_epoch=1)
    return made


@pytest.mark.parametrize(
    ("epoch", "offset", "of", "after"),
    [
        (1, 101, 1, (1, 101)),
        (1, 100, 1, (1, 100)),
        (1, 99, 1, (1, 100)),
        (0, 200, 1, (1, 100)),
        (1, 200, 0, (1, 100)),
        (1, 200, 2, (1, 100)),
    ],
    ids=["rises", "equal", "back", "of an older line", "of an older master", "of a later master"],
)
def test_a_floor_only_rises_by_its_master(
    world: World, epoch: int, offset: int, of: int, after: tuple[int, int]
) -> None:
    raise_floor(world, epoch, offset, of=of)
    assert world.state.floors[KEY] == Floor(Epoch(after[0]), Offset(after[1]))


@pytest.mark.parametrize(
    ("logs", "wins", "heirs"),
    [
        ({3: (1, 99)}, None, ()),
        ({3: (1, 100)}, 3, (3,)),
        ({3: (0, 500)}, None, ()),
        ({2: (1, 120), 3: (1, 99)}, 2, (2,)),
        ({2: (1, 100), 3: (1, 120)}, 3, (2, 3)),
        ({3: (-1, -1)}, None, ()),
        ({2: (1, 100), 3: (-1, -1)}, 2, (2, 3)),
    ],
    ids=[
        "an older copy",
        "complete",
        "a copy with an end that nobody confirmed",
        "the older copy is no heir",
        "the furthest",
        "who says nothing holds nothing",
        "who says nothing may be an heir, as it connects before it counts",
    ],
)
def test_nobody_below_the_floor_is_elected(
    world: World, logs: dict[int, tuple[int, int]], wins: int | None, heirs: tuple[int, ...]
) -> None:
    result = world.elect(live=[at(world, number, *log) for number, log in logs.items()])
    if wins is None:
        assert not result.ok
        assert BELOW_FLOOR in (result.remark or "")
        assert world.group.master_epoch == 1
    else:
        assert (world.group.master_id, world.group.sync_state_set) == (wins, heirs)


def test_a_refusal_names_who_may_hold_the_rest(world: World) -> None:
    remark = world.elect(live=[at(world, 3, 1, 99)]).remark or ""
    assert "up to 100 of epoch 1" in remark
    assert "broker 3 ends at 99" in remark
    assert "waiting for broker 1, 2" in remark


def test_a_connection_does_not_speak_for_an_older_copy(world: World) -> None:
    whole = world.live(2, epoch=Epoch(1), max_offset=Offset(100), connected=False)
    assert world.elect(live=[whole, at(world, 3, 1, 99)]).ok
    assert world.group.master_id == 2


def test_not_even_by_name(world: World) -> None:
    result = world.elect(3, designate=True, live=[at(world, 3, 1, 99)])
    assert BELOW_FLOOR in (result.remark or "")


def test_a_master_that_lives_is_kept_whatever_it_said_last() -> None:
    made = three_in_sync()
    raise_floor(made, 1, 100)
    result = made.elect(live=[at(made, 1, 1, 5), at(made, 2, 1, 5)])
    assert "still alive" in (result.remark or "")


def struck(world: World) -> None:
    """All ids are struck; the volumes come back under new ones."""
    assert world.apply(CleanBrokerData(cluster=CLUSTER, name=NAME)).changed is False
    every = tuple(one.broker_id for one in world.group.members)
    assert world.apply(CleanBrokerData(cluster=CLUSTER, name=NAME, broker_ids=every)).ok
    world.join(4, 5, 6)


@pytest.mark.parametrize(
    ("ends", "wins"),
    [
        ({4: 99, 5: 98}, None),
        ({4: 99, 5: 100}, 5),
        ({4: 0, 5: 0}, None),
        ({4: 0, 5: 0, 6: 0}, 4),
        ({4: 99, 5: 0, 6: 0}, None),
    ],
    ids=["older copies", "one is whole", "one may be whole", "all are empty", "none is whole"],
)
def test_a_struck_group_keeps_its_floor(
    world: World, ends: dict[int, int], wins: int | None
) -> None:
    struck(world)
    live = [at(world, number, 1 if end else 0, end) for number, end in ends.items()]
    result = world.elect(live=live, waited=True)
    assert (world.group.master_id if result.ok else None) == wins
    assert (KEY in world.state.floors) == (wins != 4)


def test_a_removed_group_leaves_no_floor(world: World) -> None:
    world.apply(RemoveGroup(cluster=CLUSTER, name=NAME, uid="u1"))
    assert not world.state.floors


def test_a_snapshot_carries_it_and_one_without_it_is_read(world: World) -> None:
    slices = list(snapshot.take(world.state))
    assert snapshot.assemble(slices).floors == world.state.floors
    older = [data for data in slices if snapshot.decode(data).field != "floors"]
    assert len(older) == len(slices) - 1
    assert snapshot.assemble(older).floors == {}


def test_no_floor_is_written_that_an_older_program_would_stop_at() -> None:
    fields = {snapshot.decode(data).field for data in snapshot.take(three_in_sync().state)}
    assert fields.isdisjoint({"floors", "losses"})


# ---- giving it up


def test_a_person_accepts_a_loss(world: World) -> None:
    assert accept(world, 3, 100, at(world, 3, 1, 60)).ok
    group = world.group
    assert (group.master_id, group.master_epoch, group.sync_state_set) == (3, 2, (3,))
    assert not group.clean
    assert KEY not in world.state.floors
    loss = world.state.losses[KEY]
    assert (loss.master_epoch, loss.broker_id, loss.end, loss.at_ms) == (2, 3, 60, 17)
    assert loss.floor == Floor(Epoch(1), Offset(100))
    assert raise_floor(world, 1, 60).changed
    assert not raise_floor(world, 1, 100, of=1).changed, "a word from before"


@pytest.mark.parametrize(
    ("chosen", "floor", "epoch", "logs", "why"),
    [
        (3, 99, 1, {3: (1, 60)}, "look again"),
        (3, -1, 1, {3: (1, 60)}, "look again"),
        (3, 100, 2, {3: (1, 60)}, "master epoch 1"),
        (3, 100, 1, {2: (1, 60)}, "not alive"),
        (3, 100, 1, {3: (-1, -1)}, "how far its log goes"),
        (3, 100, 1, {2: (1, 70), 3: (1, 60)}, "newest log"),
        (3, 100, 1, {2: (1, 100), 3: (1, 60)}, "will be elected"),
        (3, 100, 1, {3: (1, 100)}, "will be elected"),
    ],
)
def test_a_loss_is_refused(
    world: World, chosen: int, floor: int, epoch: int, logs: dict[int, tuple[int, int]], why: str
) -> None:
    live = [at(world, number, *log) for number, log in logs.items()]
    result = accept(world, chosen, floor, *live, epoch=epoch)
    assert why in (result.remark or "")
    assert KEY not in world.state.losses
    assert KEY in world.state.floors


def test_a_loss_is_refused_while_the_master_lives() -> None:
    made = three_in_sync()
    raise_floor(made, 1, 100)
    live = (at(made, 1, 1, 100), at(made, 3, 1, 60))
    assert "is alive" in (accept(made, 3, 100, *live).remark or "")


def test_who_is_outside_the_set_is_taken_when_the_set_is_gone(world: World) -> None:
    made = three_in_sync()
    made.alter([1, 2], live=[1, 2])
    assert not made.elect(live=[at(made, 3, 1, 60)]).ok
    assert accept(made, 3, -1, at(made, 3, 1, 60)).ok
    assert (made.group.master_id, made.group.clean) == (3, False)


# ---- another quorum's groups


def new_quorum() -> World:
    made = World()
    made.declare()
    for number in (1, 2, 3):
        assert made.apply_id(number).ok
    return made


def adopt(world: World, epoch: int, expected: int = 0) -> Result:
    return world.apply(
        AdoptGroup(cluster=CLUSTER, name=NAME, epoch=Epoch(epoch), expected_epoch=Epoch(expected))
    )


def test_a_new_quorum_adopts_three_copies() -> None:
    made = new_quorum()
    refused = made.register(1, last_epoch=7)
    assert "gantry adopt" in (refused.remark or "")
    assert adopt(made, 7).changed
    for number in (1, 2, 3):
        assert made.register(number, last_epoch=7).ok
    assert not made.elect(live=[at(made, 1, 7, 50)], waited=True).ok
    assert made.elect(live=[at(made, 1, 7, 50), at(made, 2, 7, 60), at(made, 3, 6, 99)]).ok
    assert (made.group.master_id, made.group.master_epoch) == (2, 8)


def report(world: World, *topics: str, epoch: int = 8, more: bool = False) -> Result:
    event = ReportTopics(
        cluster=CLUSTER,
        name=NAME,
        broker_id=BrokerId(2),
        master_epoch=Epoch(epoch),
        incarnation=incarnation(2),
        topics=dict.fromkeys(topics, Topic(4, 4, 6)),
        more=more,
    )
    return world.apply(event)


def make(world: World, topic: str) -> None:
    event = CreateTopic(cluster=CLUSTER, name=NAME, topic=topic, config=Topic(9, 9, 6))
    assert world.apply(event).ok


def delete(world: World, topic: str, cluster: str = CLUSTER, name: str = NAME) -> Result:
    return world.apply(DeleteTopic(cluster=cluster, name=name, topic=topic))


def test_no_topic_is_deleted_that_the_log_of_an_adopted_group_may_have() -> None:
    """It would come back with the report of the group's master."""
    made = new_quorum()
    make(made, "t")
    assert adopt(made, 7).ok
    for number in (1, 2, 3):
        assert made.register(number, last_epoch=7).ok
    assert made.elect(live=[at(made, 1, 7, 50), at(made, 2, 7, 60), at(made, 3, 6, 99)]).ok
    for cluster, name in ((CLUSTER, NAME), (CLUSTER, ""), ("", "")):
        assert delete(made, "t", cluster, name).code == ResponseCode.SYSTEM_BUSY
    assert delete(made, "t", name="another").ok
    assert report(made, "t").changed
    assert delete(made, "t").changed
    assert not made.state.topic_table(KEY).topics


def test_settings_of_an_adopted_group_are_newer_than_all_that_its_brokers_remember() -> None:
    made = new_quorum()
    setting = PutSubscriptionGroup(cluster=CLUSTER, name=NAME, group="g", config=b"{}")
    assert made.apply(setting).subscriptions_version == 1
    assert adopt(made, 7).ok
    table = made.state.subscription_table(KEY)
    assert (table.version >= 7 << 32, table.groups) == (True, {"g": b"{}"})


def test_an_adopted_group_has_the_topics_of_its_log_and_those_made_since() -> None:
    made = new_quorum()
    make(made, "both")
    assert adopt(made, 7).ok
    for number in (1, 2, 3):
        assert made.register(number, last_epoch=7).ok
    assert made.elect(live=[at(made, 1, 7, 50), at(made, 2, 7, 60), at(made, 3, 6, 99)]).ok
    make(made, "since")
    assert made.state.topic_table(KEY).version > 7 << 32, "no log of the group is as far"
    assert report(made, "t", epoch=7).code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    assert report(made, "t", "both", more=True).changed
    assert made.state.topic_table(KEY).is_partial
    make(made, "meanwhile")
    assert report(made, "u").changed
    table = made.state.topic_table(KEY)
    assert not table.is_partial
    assert sorted(table.topics) == ["both", "meanwhile", "since", "t", "u"]
    assert (table.topics["both"].read_queue_nums, table.topics["both"].since) == (9, 0)
    assert made.state.groups_with("u") == [KEY]
    assert not report(made, "late").changed, "it may have been deleted"
    assert "late" not in made.state.topic_table(KEY).topics


def test_what_this_quorum_has_decided_is_not_given_up() -> None:
    made = three_in_sync()
    assert "elected masters" in (adopt(made, 7, 1).remark or "")
    fresh = new_quorum()
    assert not adopt(fresh, 7, 3).ok
    assert adopt(fresh, 7).ok
    assert adopt(fresh, 6, 7).ok
    assert fresh.group.master_epoch == 7, "epochs never fall"
