"""What a controller hears of confirmed ends, when it tells the quorum, and whom it makes wait."""

from __future__ import annotations

import pytest
from gantry_controller.liveness.core import floors as module
from gantry_controller.liveness.core.floors import RAISE_EVERY_S, VOUCHED_AFTER_S
from gantry_controller.liveness.core.overseer import OUTAGE_WAIT_S, STALE_SHARE, Overseer
from gantry_controller.liveness.core.table import Heartbeat, HeartbeatTable
from gantry_controller.metadata.confirmed import Floor
from gantry_controller.metadata.events import (
    AcceptLoss,
    AlterSyncStateSet,
    ElectMaster,
    Event,
    RaiseFloors,
)
from gantry_controller.metadata.results import Result
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.metadata_world import CLUSTER, NAME, incarnation, three_in_sync

KEY = (CLUSTER, NAME)
TIMEOUT_S = 2.5


class Watched:
    """Three in sync on a clock that the test turns, as one controller sees them."""

    def __init__(self) -> None:
        self.world = three_in_sync()
        self.now_s = 100.0
        self.table = HeartbeatTable()
        self.overseer = Overseer(self.world.state, self.table, default_timeout_s=TIMEOUT_S)
        self.overseer.lead(self.now_s)
        plain_apply = self.world.apply

        def apply(event: Event) -> Result:
            result = plain_apply(event)
            if result.changed and result.group is not None:
                by_master = isinstance(event, AlterSyncStateSet)
                self.overseer.floors.changed(result.group, self.now_s, by_master=by_master)
                self.overseer.applied(event, result, self.now_s)
            return result

        self.world.apply = apply  # type: ignore[method-assign]  # the story is told through the same words

    def beat(
        self,
        broker_id: int,
        end: int,
        *,
        confirm: int = -1,
        start: int = 1,
        passed_on: bool = False,
    ) -> None:
        beat = Heartbeat(
            broker_id=BrokerId(broker_id),
            timeout_s=TIMEOUT_S,
            incarnation=incarnation(broker_id, start),
            epoch=Epoch(1),
            max_offset=Offset(end),
            confirm_offset=Offset(confirm),
            confirm_epoch=Epoch(1 if confirm >= 0 else -1),
        )
        connection = None if passed_on else broker_id * 10 + start
        if self.table.heard(KEY, beat, now_s=self.now_s, connection=connection):
            self.overseer.heard(KEY, self.now_s, beat)

    def die(self, broker_id: int, start: int = 1) -> None:
        connection = broker_id * 10 + start
        self.table.closed(connection)
        self.table.refuse((*KEY, BrokerId(broker_id)), connection)
        self.overseer.look(KEY, self.now_s)

    def come_back(self, broker_id: int, end: int, start: int = 2) -> None:
        assert self.world.register(broker_id, start=start, last_epoch=1).ok
        self.beat(broker_id, end, start=start)

    def elect(self) -> int | None:
        """The master that the overseer makes now, if it does."""
        for trigger in self.overseer.take(self.now_s, 10):
            if trigger.floor is not None:
                assert self.world.apply(RaiseFloors(rows=(trigger.floor,))).changed
            result = self.world.apply(trigger.event)
            assert result.ok, result.remark
            self.overseer.settled(trigger.key, self.now_s, ok=True)
            return self.world.group.master_id
        return None

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def floor(self) -> Floor | None:
        return self.world.state.floors.get(KEY)


@pytest.fixture
def watched() -> Watched:
    """Master 1 has confirmed 1000; what the others said of themselves is older than that."""
    made = Watched()
    for broker_id in (2, 3):
        made.beat(broker_id, 400)
    made.beat(1, 1000, confirm=1000)
    assert made.elect() is None
    return made


def all_die(watched: Watched) -> None:
    for broker_id in (1, 2, 3):
        watched.die(broker_id)


# ---- what is heard, and told


def test_only_the_elected_process_is_heard(watched: Watched) -> None:
    heard = watched.overseer.floors
    watched.beat(2, 5000, confirm=5000)
    assert heard.floor(KEY) == Floor(Epoch(1), Offset(1000))
    watched.beat(1, 1100, confirm=1100)
    watched.beat(1, 1100, confirm=900)
    assert heard.floor(KEY) == Floor(Epoch(1), Offset(1100))
    watched.beat(1, 5000, confirm=5000, start=9)
    assert heard.floor(KEY) == Floor(Epoch(1), Offset(1100))


def test_an_idle_group_costs_no_entries_and_a_busy_one_few(watched: Watched) -> None:
    events = []
    for second in range(60):
        for _ in range(10):
            watched.wait(0.1)
            event = watched.overseer.floors.due(watched.now_s)
            if event is not None:
                events.append(event)
                watched.world.apply(event)
        if second < 30:
            watched.beat(1, 2000 + second, confirm=2000 + second)
    assert len(events) <= 30 / RAISE_EVERY_S + 2
    assert watched.floor == Floor(Epoch(1), Offset(2029))


def test_a_batch_is_bounded(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_MAX", 1)
    heard = watched.overseer.floors
    heard._beyond["c", "gone"] = Floor(Epoch(1), Offset(5))
    first, second, third = (heard.due(watched.now_s) for _ in range(3))
    assert [len(one.rows) for one in (first, second) if one is not None] == [1]
    assert third is None
    assert ("c", "gone") not in heard._beyond


def test_a_loss_that_was_accepted_is_forgotten_here_as_well(watched: Watched) -> None:
    all_die(watched)
    watched.come_back(3, 10)
    row = watched.overseer.floors.row(watched.world.group)
    assert row is not None
    assert watched.world.apply(RaiseFloors(rows=(row,))).changed
    event = AcceptLoss(
        cluster=CLUSTER,
        name=NAME,
        broker_id=BrokerId(3),
        expected_epoch=Epoch(1),
        floor_offset=Offset(1000),
        live=watched.overseer.evidence(watched.world.group, watched.now_s),
    )
    assert watched.world.apply(event).ok
    assert watched.overseer.floors.floor(KEY) is None


# ---- a master dies


def test_a_replica_that_was_there_is_elected_at_once_whatever_it_said_last(
    watched: Watched,
) -> None:
    watched.die(1)
    assert watched.elect() == 2
    assert watched.world.group.sync_state_set == (2, 3)
    assert watched.floor == Floor(Epoch(1), Offset(1000)), "the quorum knew it before"


def test_a_replica_put_back_from_a_copy_meanwhile_is_not(watched: Watched) -> None:
    watched.wait(1)
    watched.come_back(2, 400)
    watched.die(1)
    watched.die(3)
    assert watched.elect() is None
    assert "broker 2 ends at 400" in watched.overseer.why_nobody(KEY)
    watched.beat(2, 1000, start=2)  # it had caught up, and says so
    watched.wait(OUTAGE_WAIT_S)
    watched.beat(2, 1000, start=2)
    assert watched.elect() == 2


def test_a_replica_that_started_anew_under_the_master_is_vouched_for(watched: Watched) -> None:
    watched.come_back(2, 400)
    watched.wait(VOUCHED_AFTER_S)
    watched.beat(1, 1000, confirm=1000)
    watched.die(1)
    watched.die(3)
    assert watched.elect() == 2


def test_a_replica_that_the_master_has_just_taken_in_is_vouched_for(watched: Watched) -> None:
    watched.world.alter([1, 3], live=[1, 3])
    watched.come_back(2, 400)
    watched.world.alter([1, 2, 3], live=[1, 2, 3])
    watched.die(1)
    watched.die(3)
    assert watched.elect() == 2


# ---- everybody dies


def test_a_corpse_is_not_elected_so_the_set_stays_whole(watched: Watched) -> None:
    """All die at once: their connections close, and one after the other refuses."""
    for broker_id in (1, 2, 3):
        watched.table.closed(broker_id * 10 + 1)
    watched.die(1)
    assert watched.elect() is None
    watched.die(2)
    assert watched.elect() is None
    watched.die(3)
    assert watched.elect() is None
    assert watched.world.group.sync_state_set == (1, 2, 3)


def test_nor_one_that_has_been_silent_for_as_long_as_the_master(watched: Watched) -> None:
    """All lose their power at once: no connection closes."""
    watched.wait(0.9)
    watched.beat(2, 1000)
    watched.wait(0.1)
    watched.beat(3, 1000)
    watched.wait(1.6)
    assert watched.elect() is None
    watched.wait(2)
    assert watched.elect() is None
    assert watched.world.group.sync_state_set == (1, 2, 3)


def test_one_that_is_heard_again_is(watched: Watched) -> None:
    for broker_id in (2, 3):
        watched.table.closed(broker_id * 10 + 1)
    watched.die(1)
    assert watched.elect() is None
    watched.beat(3, 1000)
    assert watched.elect() == 3


def test_an_older_copy_that_comes_first_waits_and_is_no_heir(watched: Watched) -> None:
    all_die(watched)
    watched.come_back(3, 400)
    assert watched.elect() is None
    watched.wait(600)
    watched.beat(3, 400, start=2)
    assert watched.elect() is None
    assert watched.world.group.master_epoch == 1
    assert "waiting for broker 1, 2" in watched.overseer.why_nobody(KEY)
    watched.come_back(2, 1000)
    watched.come_back(1, 1000)
    assert watched.elect() == 1
    assert watched.world.group.sync_state_set == (1, 2)
    assert watched.overseer.why_nobody(KEY) == ""


def test_the_first_complete_one_waits_for_the_others_for_seconds(watched: Watched) -> None:
    all_die(watched)
    watched.come_back(2, 1000)
    assert watched.elect() is None
    assert "waits up to" in watched.overseer.why_nobody(KEY)
    watched.wait(OUTAGE_WAIT_S - 0.1)
    watched.beat(2, 1000, start=2)
    assert watched.elect() is None
    watched.wait(0.1)
    due_s = watched.overseer.next_due()
    assert due_s is not None
    assert due_s <= watched.now_s
    assert watched.elect() == 2


def test_the_furthest_of_those_who_come_in_time_is_elected(watched: Watched) -> None:
    """What was confirmed after the last heartbeat is known to nobody but the members."""
    all_die(watched)
    watched.come_back(2, 1000)
    watched.wait(1)
    watched.come_back(3, 1300)
    assert watched.elect() is None
    watched.come_back(1, 1300)
    assert watched.elect() == 1


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "silent"])
def test_the_first_one_waits_for_those_that_may_have_died_too(
    watched: Watched, *, closed: bool
) -> None:
    """Their time-outs are not over yet; what they hold beyond the floor is known to nobody."""
    watched.wait(600)
    for broker_id in (1, 2, 3):
        watched.beat(broker_id, 1000)
    if closed:
        for broker_id in (1, 2, 3):
            watched.table.closed(broker_id * 10 + 1)
    else:
        watched.wait(STALE_SHARE * TIMEOUT_S + 0.1)
    watched.come_back(1, 1000)
    assert watched.elect() is None
    assert "for broker 2, 3 of" in watched.overseer.why_nobody(KEY)
    watched.wait(OUTAGE_WAIT_S - 0.1)
    watched.beat(1, 1000, start=2)
    assert watched.elect() is None
    watched.come_back(2, 1300)
    watched.come_back(3, 1300)
    assert watched.elect() == 2


def test_who_was_heard_by_another_controller_alone_is_waited_for(watched: Watched) -> None:
    """The election would pass it over: it has no connection that is known to live."""
    watched.wait(600)
    for broker_id in (1, 2, 3):
        watched.beat(broker_id, 1000)
        watched.table.closed(broker_id * 10 + 1)
    watched.come_back(1, 1000)
    assert watched.elect() is None
    watched.wait(0.1)
    for broker_id in (2, 3):
        assert watched.world.register(broker_id, start=2, last_epoch=1).ok
        watched.beat(broker_id, 1300, start=2, passed_on=True)
    assert watched.elect() is None
    for broker_id in (2, 3):
        watched.beat(broker_id, 1300, start=2)
    assert watched.elect() == 2


def test_nobody_waits_when_all_of_the_set_are_back(watched: Watched) -> None:
    all_die(watched)
    for broker_id in (1, 2, 3):
        watched.come_back(broker_id, 1000)
    assert watched.elect() == 1


def test_a_set_of_one_does_not_wait(watched: Watched) -> None:
    watched.world.alter([1], live=[1])
    all_die(watched)
    watched.come_back(1, 1000)
    assert watched.elect() == 1


def test_those_outside_the_set_wait_for_it_and_say_so(watched: Watched) -> None:
    watched.world.alter([1, 2], live=[1, 2])
    all_die(watched)
    watched.come_back(3, 5000)
    assert watched.elect() is None
    assert watched.overseer.why_nobody(KEY).endswith("waiting for broker 1, 2")


def test_who_asks_for_an_election_is_told_to_wait(watched: Watched) -> None:
    all_die(watched)
    watched.come_back(3, 400)
    world, overseer = watched.world, watched.overseer

    def asked(broker_id: int) -> str:
        event = ElectMaster(
            cluster=CLUSTER,
            name=NAME,
            requester=BrokerId(broker_id),
            live=overseer.evidence(world.group, watched.now_s),
        )
        return overseer.objection(world.group, event, watched.now_s)

    assert "broker 3 ends at 400" in asked(3)
    watched.come_back(2, 1000)
    assert "waits up to" in asked(2)
    watched.come_back(1, 1000)
    assert asked(2) == ""
