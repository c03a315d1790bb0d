"""The course of a change of master: what was noticed when, and nothing that nobody saw."""

import pytest
from gantry_controller.liveness.core.courses import ASKED, MasterChange
from gantry_controller.metadata.events import AlterSyncStateSet, ElectMaster, RemoveGroup
from gantry_protocol.types import BrokerId, Epoch
from support.metadata_world import CLUSTER, NAME, three_in_sync
from unit.controller.liveness.test_overseer import KEY, Watched

WALL_MS = 1_800_000_000_000


class Told(Watched):
    """A world whose courses are told, with a wall clock that goes like the other."""

    def __init__(self) -> None:
        super().__init__(three_in_sync())
        heard = self.world.apply

        def apply(event):  # type: ignore[no-untyped-def]
            result = heard(event)
            if result.group is not None and result.changed and self.overseer.leading:
                self.overseer.courses.applied(
                    event, result.group, now_s=self.now_s, wall_ms=self.wall_ms
                )
            return result

        self.world.apply = apply  # type: ignore[method-assign]

    @property
    def wall_ms(self) -> int:
        return WALL_MS + round(self.now_s * 1000)

    @property
    def course(self) -> MasterChange | None:
        return self.overseer.courses.of(self.world.state.groups[KEY])


@pytest.fixture
def told() -> Told:
    told = Told()
    told.beat(1, 2, 3)
    assert told.elect() is None
    return told


def test_a_failover_is_told_from_the_last_word_to_the_election(told: Told) -> None:
    heard_ms = told.wall_ms
    told.wait(0.3)
    told.beat(2, 3)
    told.die(1)
    noticed_ms = told.wall_ms
    (trigger,) = told.take()
    told.wait(0.02)
    assert told.world.apply(trigger.event).ok
    course = told.course
    assert course is not None
    assert (course.epoch, course.planned) == (told.world.state.groups[KEY].master_epoch, False)
    assert course.reason == trigger.reason
    assert (course.heard_ms, course.noticed_ms) == (heard_ms, noticed_ms)
    assert course.elected_ms == noticed_ms + 20
    told.wait(60.0)
    assert told.course == course, "who asks later is told the same"


def test_only_the_first_suspicion_counts(told: Told) -> None:
    told.wait(0.3)
    told.beat(2, 3)
    told.die(1)
    noticed_ms = told.wall_ms
    told.take()
    told.wait(0.2)
    told.overseer.settled(KEY, told.now_s, ok=False)
    told.wait(0.5)
    told.beat(2, 3)
    (trigger,) = told.take()
    assert told.world.apply(trigger.event).ok
    course = told.course
    assert course is not None
    assert course.noticed_ms == noticed_ms


def test_a_hand_over_is_planned_and_nobody_was_missed(told: Told) -> None:
    group = told.world.state.groups[KEY]
    event = ElectMaster(
        cluster=CLUSTER,
        name=NAME,
        requester=BrokerId(2),
        designate=True,
        expected_epoch=group.master_epoch,
        live=told.overseer.evidence(group, told.now_s),
    )
    assert told.world.apply(event).ok
    course = told.course
    assert course is not None
    assert (course.planned, course.reason) == (True, ASKED)
    assert (course.heard_ms, course.noticed_ms) == (None, None)
    assert course.elected_ms == told.wall_ms


def test_a_master_that_is_back_was_not_missed(told: Told) -> None:
    told.wait(3.0)
    told.beat(2, 3)
    assert told.take(), "it is silent"
    told.overseer.settled(KEY, told.now_s, ok=False)
    told.beat(1)
    told.wait(0.3)
    assert told.take() == []
    group = told.world.state.groups[KEY]
    event = ElectMaster(
        cluster=CLUSTER,
        name=NAME,
        requester=BrokerId(2),
        designate=True,
        expected_epoch=group.master_epoch,
        live=told.overseer.evidence(group, told.now_s),
    )
    assert told.world.apply(event).ok
    course = told.course
    assert course is not None
    assert course.planned is True


def test_a_change_of_the_set_is_no_course(told: Told) -> None:
    told.wait(0.3)
    told.beat(2, 3)
    told.die(1)
    assert told.elect() is not None
    before = told.course
    group = told.world.state.groups[KEY]
    assert group.master_id is not None
    event = AlterSyncStateSet(
        cluster=CLUSTER,
        name=NAME,
        master_id=group.master_id,
        master_epoch=group.master_epoch,
        new_set=(group.master_id,),
        expected_set_epoch=group.sync_state_set_epoch,
        live=told.overseer.evidence(group, told.now_s),
    )
    told.wait(1.0)
    told.world.apply(event)
    assert told.course == before


def test_who_begins_to_lead_knows_of_no_course(told: Told) -> None:
    told.wait(0.3)
    told.beat(2, 3)
    told.die(1)
    assert told.elect() is not None
    assert told.course is not None
    told.overseer.follow()
    told.overseer.lead(told.now_s)
    assert told.course is None


def test_a_course_goes_with_its_group(told: Told) -> None:
    told.wait(0.3)
    told.beat(2, 3)
    told.die(1)
    told.elect()
    courses = told.overseer.courses
    group = told.world.state.groups[KEY]
    wish = group.declaration
    assert courses.of(group) is not None
    assert wish is not None
    told.world.apply(RemoveGroup(cluster=CLUSTER, name=NAME, uid=wish.uid))
    assert courses.of(group) is None
    assert courses._suspicions == {}


def test_an_older_epoch_says_nothing_of_the_present_master(told: Told) -> None:
    told.wait(0.3)
    told.beat(2, 3)
    told.die(1)
    assert told.elect() is not None
    group = told.world.state.groups[KEY]
    newer = type("Newer", (), {"key": KEY, "master_epoch": Epoch(group.master_epoch + 1)})()
    assert told.overseer.courses.of(newer) is None
