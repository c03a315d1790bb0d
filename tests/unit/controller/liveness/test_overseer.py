"""The overseer: when the leader proposes an election, and when it must not."""

import pytest
from gantry_controller.liveness.core.overseer import FIRST_WAIT_S, RETRY_S, Overseer, Trigger
from gantry_controller.liveness.core.rules import UNHEARD_S
from gantry_controller.liveness.core.table import Heartbeat, HeartbeatTable
from gantry_controller.metadata.events import Event, RemoveGroup
from gantry_controller.metadata.results import Result
from gantry_protocol.types import BrokerId, Offset
from support.metadata_world import CLUSTER, NAME, World, incarnation, three_in_sync

KEY = (CLUSTER, NAME)
TIMEOUT_S = 2.5


class Watched:
    """A world whose events the overseer hears of, on a clock that the test turns."""

    def __init__(self, world: World, *, lead: bool = True) -> None:
        self.world = world
        self.now_s = 100.0
        self.table = HeartbeatTable()
        self.overseer = Overseer(world.state, self.table, default_timeout_s=TIMEOUT_S)
        self.connection = 0
        plain_apply = world.apply

        def apply(event: Event) -> Result:
            result = plain_apply(event)
            if result.changed:
                self.overseer.applied(event, result, self.now_s)
            return result

        world.apply = apply  # type: ignore[method-assign]  # the story is told through the same words
        if lead:
            self.overseer.lead(self.now_s)

    def beat(self, *broker_ids: int, start: int = 1, end: int = 10) -> None:
        for broker_id in broker_ids:
            heartbeat = Heartbeat(
                broker_id=BrokerId(broker_id),
                timeout_s=TIMEOUT_S,
                incarnation=incarnation(broker_id, start),
                max_offset=Offset(end),
            )
            connection = broker_id * 10 + start
            if self.table.heard(KEY, heartbeat, now_s=self.now_s, connection=connection):
                self.overseer.heard(KEY, self.now_s, heartbeat)

    def die(self, broker_id: int, start: int = 1) -> None:
        """The connection closes and the address refuses."""
        connection = broker_id * 10 + start
        self.table.closed(connection)
        self.table.refuse((*KEY, BrokerId(broker_id)), connection)
        self.overseer.look(KEY, self.now_s)

    def take(self) -> list[Trigger]:
        return self.overseer.take(self.now_s, 100)

    def elect(self) -> str | None:
        """What the overseer proposes now, applied; the reason, or None."""
        triggers = self.take()
        assert len(triggers) <= 1
        for trigger in triggers:
            result = self.world.apply(trigger.event)
            assert result.ok, result
            self.overseer.settled(trigger.key, self.now_s, ok=True)
            assert self.take() == []
            return trigger.reason
        return None

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def watched() -> Watched:
    watched = Watched(three_in_sync())
    watched.beat(1, 2, 3)
    assert watched.elect() is None
    return watched


def test_living_master_is_left_alone(watched: Watched) -> None:
    for _ in range(20):
        watched.wait(1.0)
        watched.beat(1)
        assert watched.elect() is None


def test_refused_master_is_replaced_at_once(watched: Watched) -> None:
    watched.die(1)
    assert watched.elect() == "refused"
    assert (watched.world.group.master_id, watched.world.group.sync_state_set) == (2, (2, 3))


def test_silent_master_is_replaced_at_its_time_out(watched: Watched) -> None:
    watched.wait(TIMEOUT_S)
    watched.beat(2, 3)
    assert watched.elect() is None
    due_s = watched.overseer.next_due()
    assert due_s is not None
    assert 0 < due_s - watched.now_s < 0.01
    watched.now_s = due_s
    assert watched.elect() == "silent"


def test_replica_that_dies_triggers_nothing(watched: Watched) -> None:
    watched.die(2)
    assert watched.elect() is None


def test_restarted_master_is_elected_anew(watched: Watched) -> None:
    watched.world.register(1, start=2, last_epoch=1)
    watched.beat(1, start=2, end=50)
    assert watched.elect() == "replaced"
    assert watched.world.group.master_incarnation == incarnation(1, 2)
    assert watched.world.group.master_epoch == 2


def test_a_replica_that_comes_back_calls_for_no_look_and_its_master_for_one(
    watched: Watched,
) -> None:
    time_out_s = watched.overseer.next_due()
    watched.wait(0.1)
    watched.world.register(2, start=2, last_epoch=1)
    assert watched.overseer.next_due() == time_out_s  # the master's, as it was
    watched.world.register(1, start=2, last_epoch=1)
    assert watched.overseer.next_due() == watched.now_s


def test_group_without_anybody_waits_for_a_member_of_the_set(watched: Watched) -> None:
    watched.world.alter([1], live=[1])
    watched.die(1)
    assert watched.take() == []
    watched.beat(2, 3)
    assert watched.take() == []
    assert watched.world.group.master_epoch == 1
    watched.world.register(1, start=2, last_epoch=1)
    watched.beat(1, start=2)
    assert watched.elect() == "replaced"


def test_master_heard_again_before_anybody_could_be_elected_stays(watched: Watched) -> None:
    watched.world.alter([1], live=[1])
    watched.wait(TIMEOUT_S + 1)
    assert watched.take() == []
    watched.beat(1)
    assert watched.take() == []
    assert watched.world.group.master_epoch == 1


def test_one_proposal_at_a_time_and_a_pause_after_failure(watched: Watched) -> None:
    watched.die(1)
    (trigger,) = watched.take()
    watched.overseer.look(KEY, watched.now_s)
    assert watched.take() == []
    watched.overseer.settled(trigger.key, watched.now_s, ok=False)
    assert watched.take() == []
    watched.wait(RETRY_S)
    assert len(watched.take()) == 1


def test_a_leader_remembers_no_proposal_of_an_earlier_term(watched: Watched) -> None:
    watched.die(1)
    assert len(watched.take()) == 1
    watched.overseer.follow()
    watched.overseer.lead(watched.now_s)
    assert len(watched.take()) == 1


def test_proposal_is_bound_to_the_epoch_it_was_made_in(watched: Watched) -> None:
    watched.die(1)
    (trigger,) = watched.take()
    assert watched.world.elect(3, designate=True, live=[3]).ok
    assert not watched.world.apply(trigger.event).ok
    assert watched.world.group.master_id == 3


@pytest.mark.parametrize(
    ("heard", "grace_s"), [([1, 2, 3], TIMEOUT_S), ([], UNHEARD_S)], ids=["heard before", "unheard"]
)
def test_new_leader_gives_everybody_a_grace(heard: list[int], grace_s: float) -> None:
    watched = Watched(three_in_sync(), lead=False)
    watched.beat(*heard)
    watched.wait(100)
    assert watched.overseer.next_due() is None
    watched.overseer.lead(watched.now_s)
    assert watched.elect() is None
    watched.wait(grace_s - 0.1)
    watched.beat(2, 3)
    assert watched.elect() is None
    watched.wait(0.2)
    assert watched.elect() == "silent"


def test_new_leader_acts_at_once_on_what_it_knows() -> None:
    watched = Watched(three_in_sync(), lead=False)
    watched.beat(1, 2, 3)
    watched.die(1)
    assert watched.take() == []
    watched.overseer.lead(watched.now_s)
    assert watched.elect() == "refused"


def test_stalled_process_does_not_blame_others(watched: Watched) -> None:
    watched.wait(60)
    watched.overseer.did_not_listen(watched.now_s)
    assert watched.elect() is None
    watched.wait(TIMEOUT_S - 0.1)
    assert watched.elect() is None


def test_follower_is_silent(watched: Watched) -> None:
    watched.overseer.follow()
    watched.die(1)
    assert watched.take() == []
    assert watched.overseer.next_due() is None


def test_first_election_when_all_members_are_there() -> None:
    watched = Watched(World())
    watched.world.declare()
    watched.world.join(1, 2, 3)
    watched.beat(1, 2)
    assert watched.elect() is None
    watched.beat(3)
    assert watched.elect() == "first election"


def test_first_election_by_a_majority_after_the_wait() -> None:
    watched = Watched(World())
    watched.world.declare()
    watched.world.join(1, 2)
    began_s = watched.now_s
    watched.beat(1, 2)
    assert watched.elect() is None
    watched.wait(FIRST_WAIT_S - 0.1)
    watched.beat(1, 2)
    assert watched.elect() is None
    assert watched.overseer.next_due() == began_s + FIRST_WAIT_S
    watched.wait(0.1)
    assert watched.elect() == "first election"


def test_first_wait_begins_anew_when_a_snapshot_brought_the_group() -> None:
    """The event that began it is not in the log any more; without it nobody would be elected."""
    world = World()
    world.declare()
    world.join(1, 2)
    watched = Watched(world)
    watched.overseer.restored(watched.now_s)
    watched.beat(1, 2)
    assert watched.elect() is None
    watched.wait(FIRST_WAIT_S)
    watched.beat(1, 2)
    assert watched.elect() == "first election"


def test_first_wait_is_forgotten_with_the_first_election() -> None:
    """Else it would be remembered for each group for ever."""
    watched = Watched(World())
    watched.world.declare()
    watched.world.join(1, 2, 3)
    watched.wait(FIRST_WAIT_S)
    watched.beat(1, 2, 3)
    assert watched.overseer.first_wait_over(watched.world.group, watched.now_s)
    assert watched.elect() == "first election"
    assert not watched.overseer.first_wait_over(watched.world.group, watched.now_s)
    watched.world.register(2, start=2, last_epoch=1)
    watched.wait(FIRST_WAIT_S)
    assert not watched.overseer.first_wait_over(watched.world.group, watched.now_s)


def test_first_wait_of_the_next_life_begins_anew() -> None:
    watched = Watched(three_in_sync())
    watched.world.apply(RemoveGroup(cluster=CLUSTER, name=NAME, uid="u1"))
    watched.wait(10)
    watched.world.declare(uid="u2")
    assert not watched.overseer.first_wait_over(watched.world.group, watched.now_s)
    watched.world.join(4)
    watched.wait(FIRST_WAIT_S)
    assert watched.overseer.first_wait_over(watched.world.group, watched.now_s)


def test_undeclared_group_is_left_to_its_brokers() -> None:
    watched = Watched(World(own=False))
    watched.world.join(1)
    watched.beat(1)
    assert watched.elect() is None
    assert watched.overseer.next_due() is None


def test_cleaned_master_is_replaced(watched: Watched) -> None:
    watched.world.clean([1])
    assert watched.elect() == "no master"
    assert watched.table.row(KEY, BrokerId(1)) is None


def test_work_of_one_turn_is_bounded() -> None:
    watched = Watched(three_in_sync())
    watched.overseer.look(("c", "other"), watched.now_s)
    assert watched.overseer.take(watched.now_s, 1) == []
    assert watched.overseer.next_due() == watched.now_s
