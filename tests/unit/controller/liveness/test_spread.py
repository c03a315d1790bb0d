"""Masters are spread evenly over processes of many groups: what moves, when, and what does not."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from gantry_controller.liveness.core import spread as spread_module
from gantry_controller.liveness.core.overseer import Overseer, Trigger
from gantry_controller.liveness.core.rules import Clock
from gantry_controller.liveness.core.spread import (
    ACTS_WITHIN_S,
    BACK_S,
    BY_HAND_S,
    GROUPS_PER_STEP,
    MOVES_AT_ONCE,
    REASON,
    REST_S,
    RETRY_FIRST_S,
    Spread,
    goals,
    surplus,
    ways,
)
from gantry_controller.liveness.core.table import Heartbeat, HeartbeatTable
from gantry_controller.metadata.apply import apply
from gantry_controller.metadata.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    DeclareGroup,
    ElectMaster,
    Event,
    LiveMember,
    RegisterBroker,
    RetireGroup,
    SetWritable,
    decode_event,
    encode_event,
)
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, Drain, GroupKey, MetadataState
from gantry_protocol.types import BrokerId, Epoch, Index, Offset
from hypothesis import given, settings
from hypothesis import strategies as st

CLUSTER = "c"
TIMEOUT_S = 2.5
BEAT_S = 0.5
WAIT_S = max(BACK_S, REST_S) + 2  # after which whatever may move has begun to

Seen = Callable[[str, int, Heartbeat], Heartbeat | None]


def name_of(number: int) -> str:
    return f"g-{number:03d}"


class Fleet:
    """Processes 1 to n that all host the same groups; the broker id in each is its number.

    Attributes:
        down: processes that say nothing.
        said: changes what a member of a group in a process says; None: nothing.
        moves: from where to where, in order.
        lost: groups whose elections get no answer.
    """

    def __init__(self, leaders: Sequence[int], processes: int, *, enough: int = 2) -> None:
        self.state = MetadataState()
        self.table = HeartbeatTable()
        self.overseer = Overseer(self.state, self.table, default_timeout_s=TIMEOUT_S)
        self.spread = Spread(self.state, self.table, self.overseer)
        self.now_s = 100.0
        self.processes = list(range(1, processes + 1))
        self.down: set[int] = set()
        self.starts: Counter[int] = Counter()
        self.said: Seen = lambda name, process, beat: beat
        self.moves: list[tuple[str, int | None, int | None]] = []
        self.lost: set[str] = set()
        self.refused: set[str] = set()
        self.most_at_once = 0
        self.overseer.lead(self.now_s)
        for number, leader in enumerate(leaders):
            self.add(name_of(number), leader, enough)
        self.beat()

    def add(self, name: str, leader: int, enough: int = 2) -> None:
        count = len(self.processes)
        self.apply(
            DeclareGroup(
                cluster=CLUSTER,
                name=name,
                uid=name,
                replicas=count,
                min_in_sync_replicas=min(enough, count),
            )
        )
        for process in self.processes:
            self.apply(
                ApplyBrokerId(
                    cluster=CLUSTER,
                    name=name,
                    broker_id=BrokerId(process),
                    check_code=f"{name};{process}",
                )
            )
            self.register(name, process)
        live = tuple(
            LiveMember(BrokerId(one), self.incarnation(one), priority=int(one != leader))
            for one in self.processes
        )
        self.apply(ElectMaster(cluster=CLUSTER, name=name, live=live))
        self.sync(name, *self.processes)
        assert self.group(name).master_id == leader

    def group(self, name: str) -> BrokerGroup:
        return self.state.groups[CLUSTER, name]

    def incarnation(self, process: int) -> str:
        return f"{process}-{self.starts[process]}"

    def apply(self, event: Event) -> Result:
        result = apply(self.state, Index(self.state.index + 1), decode_event(encode_event(event)))
        assert result.ok, result
        self.overseer.applied(event, result, self.now_s)
        self.spread.applied(event, result, self.now_s)
        return result

    def register(self, name: str, process: int) -> None:
        self.apply(
            RegisterBroker(
                cluster=CLUSTER,
                name=name,
                broker_id=BrokerId(process),
                address=f"10.0.0.{process}:{10911 + int(name[-3:])}",
                incarnation=self.incarnation(process),
                ha_port=10912,
            )
        )

    def sync(self, name: str, *processes: int) -> None:
        """These are the set from now on, if they are not yet."""
        group = self.group(name)
        assert group.master_id is not None
        if group.sync_state_set != processes:
            members = [group.member(BrokerId(one)) for one in processes]
            self.apply(
                AlterSyncStateSet(
                    cluster=CLUSTER,
                    name=name,
                    master_id=group.master_id,
                    master_epoch=group.master_epoch,
                    new_set=tuple(BrokerId(one) for one in processes),
                    expected_set_epoch=group.sync_state_set_epoch,
                    live=tuple(
                        LiveMember(one.broker_id, one.incarnation) for one in members if one
                    ),
                )
            )

    def beat(self) -> None:
        for cluster, name in self.state.all_keys():
            group = self.group(name)
            for process in self.processes:
                if process in self.down:
                    continue
                beat = self.said(
                    name,
                    process,
                    Heartbeat(
                        BrokerId(process),
                        TIMEOUT_S,
                        self.incarnation(process),
                        epoch=group.master_epoch,
                        max_offset=Offset(10),
                    ),
                )
                if beat is not None:
                    connection = 100 * self.starts[process] + process
                    self.table.heard((cluster, name), beat, now_s=self.now_s, connection=connection)

    def go_on(self, seconds: float) -> None:
        """Time passes; what the rule proposes comes true."""
        for _ in range(round(seconds / BEAT_S)):
            self.now_s += BEAT_S
            self.beat()
            for trigger in self.spread.step(self.now_s):
                self._propose(trigger)
            self.most_at_once = max(self.most_at_once, len(self.spread._moves))

    def _propose(self, trigger: Trigger) -> None:
        name = trigger.key[1]
        event = trigger.event
        assert trigger.reason == REASON
        assert event.expected_epoch == self.group(name).master_epoch
        self.moves.append((name, self.group(name).master_id, event.requester))
        if name in self.lost:
            return
        if name not in self.refused:
            self.apply(event)
        ok = name not in self.refused
        self.overseer.settled(trigger.key, self.now_s, ok=ok)
        self.spread.settled(trigger.key, self.now_s, ok=ok)

    def elect(self, name: str, process: int, asking: str = "") -> None:
        """A designated election that this node did not propose."""
        live = tuple(LiveMember(BrokerId(one), self.incarnation(one)) for one in self.processes)
        self.apply(
            ElectMaster(
                cluster=CLUSTER,
                name=name,
                requester=BrokerId(process),
                designate=True,
                incarnation=asking,
                live=live,
            )
        )

    def kill(self, process: int) -> None:
        """The process dies; its groups elect, and their masters go on without it."""
        self.down.add(process)
        self.table.closed(100 * self.starts[process] + process)
        for _, name in self.state.all_keys():
            rest = [one for one in self.processes if one not in self.down]
            if self.group(name).master_id == process:
                self.elect(name, rest[int(name[-3:]) % len(rest)], asking="the group")
            self.sync(name, *rest)

    def boot(self, process: int) -> None:
        self.down.discard(process)
        self.starts[process] += 1
        for _, name in self.state.all_keys():
            self.register(name, process)
            self.sync(name, *(one for one in self.processes if one not in self.down))

    def led(self) -> list[int]:
        """How many groups each process leads."""
        counts = Counter(self.group(name).master_id for _, name in self.state.all_keys())
        return [counts[BrokerId(process)] for process in self.processes]


def changed(process: int, name: str = "", **fields: object) -> Seen:
    """Members in ``process``, or one of them, say something else."""

    def said(group: str, at: int, beat: Heartbeat) -> Heartbeat | None:
        if at != process or name not in ("", group):
            return beat
        return Heartbeat(**{key: getattr(beat, key) for key in beat.__struct_fields__} | fields)

    return said


COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=6).map(
    lambda counts: {str(place): count for place, count in enumerate(counts)}
)


@given(COUNTS)
def test_goals_are_even_and_nobody_gives_who_also_takes(led: dict[str, int]) -> None:
    wanted = goals(led)
    assert sum(wanted.values()) == sum(led.values())
    assert max(wanted.values()) - min(wanted.values()) <= 1
    for giver, taker in ways(led):
        assert led[giver] - led[taker] >= 2
        after = {**led, giver: led[giver] - 1, taker: led[taker] + 1}
        assert surplus(after) == surplus(led) - 1
    assert (surplus(led) == 0) == (max(led.values()) - min(led.values()) <= 1) == (not ways(led))


@given(
    leaders=st.lists(st.integers(1, 4), min_size=1, max_size=24),
    processes=st.integers(4, 5),
    blocked=st.sets(st.integers(0, 23)),
    closed_s=st.integers(0, 20),
)
@settings(max_examples=40, deadline=None)
def test_it_ends_even_with_as_few_moves_as_that_takes(
    leaders: list[int], processes: int, blocked: set[int], closed_s: int
) -> None:
    """Some groups cannot move for a while; others that can may end up elsewhere, but none twice."""
    fleet = Fleet(leaders, processes)
    counts = {str(process): led for process, led in enumerate(fleet.led())}
    needed = surplus(counts)
    names = {name_of(number) for number in blocked}
    fleet.said = lambda name, process, beat: (
        changed(process, log_damage="damage")(name, process, beat) if name in names else beat
    )
    fleet.go_on(BACK_S + REST_S + closed_s)
    fleet.said = lambda name, process, beat: beat
    fleet.go_on(WAIT_S + 2 * needed)
    led = fleet.led()
    assert max(led) - min(led) <= 1
    assert len(fleet.moves) == needed
    assert len({name for name, _, _ in fleet.moves}) == needed, "no group moved twice"
    assert fleet.spread.moved == needed
    assert (fleet.spread.failed, fleet.spread.to_move) == (0, 0)
    assert fleet.most_at_once <= MOVES_AT_ONCE
    fleet.go_on(60)
    assert len(fleet.moves) == needed, "and then nothing moves any more"


def test_masters_come_back_to_a_process_that_returned() -> None:
    fleet = Fleet([1 + number % 3 for number in range(30)], 3)
    fleet.go_on(WAIT_S)
    assert (fleet.led(), fleet.moves) == ([10, 10, 10], [])
    fleet.kill(2)
    fleet.go_on(WAIT_S)
    assert fleet.led()[1] == 0
    assert sum(fleet.led()) == 30
    assert fleet.moves == []
    fleet.boot(2)
    fleet.go_on(BACK_S - 1)
    assert fleet.moves == [], "it has only just come back"
    fleet.go_on(25)
    assert fleet.led() == [10, 10, 10]
    assert len(fleet.moves) == 10
    assert {to for _, _, to in fleet.moves} == {2}


def test_two_at_a_time_and_the_next_when_they_act() -> None:
    fleet = Fleet([1] * 9, 3)
    stay = {name_of(number): fleet.group(name_of(number)).master_epoch for number in range(9)}

    def said(name: str, process: int, beat: Heartbeat) -> Heartbeat | None:
        return changed(process, epoch=stay[name])(name, process, beat)

    fleet.said = said  # nobody has acted in a new epoch yet
    fleet.go_on(WAIT_S + 2)
    assert len(fleet.moves) == MOVES_AT_ONCE
    assert fleet.spread.moved == 0
    fleet.said = lambda name, process, beat: beat
    fleet.go_on(BEAT_S)
    assert fleet.spread.moved == MOVES_AT_ONCE
    fleet.go_on(2)
    assert len(fleet.moves) > MOVES_AT_ONCE


def test_a_difference_of_one_moves_nothing() -> None:
    fleet = Fleet([1, 1, 2], 2)
    fleet.go_on(2 * WAIT_S)
    assert fleet.moves == []


def test_groups_of_other_processes_do_not_count() -> None:
    """A process of one group, or Java brokers, that say nothing of where they replicate."""
    fleet = Fleet([1, 2, 3], 3)
    for name, group in {name: fleet.group(name) for _, name in fleet.state.all_keys()}.items():
        apart = [
            type(one)(one.broker_id, one.address, one.check_code, one.incarnation, 1, None, address)
            for one, address in zip(
                group.members,
                [f"{name}-{one}" if name != name_of(2) else None for one in range(3)],
                strict=True,
            )
        ]
        fleet.state.put(group, members=tuple(apart))
    fleet.elect(name_of(0), 2, asking="the group")
    fleet.elect(name_of(2), 2, asking="the group")
    assert fleet.led() == [0, 3, 0]
    fleet.go_on(2 * WAIT_S)
    assert (fleet.moves, fleet.spread.to_move) == ([], 0)


@pytest.mark.parametrize(
    "fields",
    [{"draining": True}, {"disk_stuck": "slow"}],
    ids=["drains", "cannot write"],
)
def test_one_member_that_goes_speaks_for_its_process(fields: dict[str, object]) -> None:
    fleet = Fleet([1, 1, 1, 1, 1, 1, 3], 3)
    fleet.said = changed(2, name_of(6), **fields)
    fleet.go_on(WAIT_S + 10)
    assert {to for _, _, to in fleet.moves} == {3}, "nothing goes to process 2"
    assert fleet.led() == [4, 0, 3]


def test_a_process_whose_connection_closed_takes_nothing() -> None:
    fleet = Fleet([1] * 6, 2)
    fleet.go_on(REST_S - 1)
    fleet.table.closed(2)
    fleet.down.add(2)
    fleet.go_on(TIMEOUT_S - BEAT_S)
    assert (fleet.moves, fleet.spread.to_move) == ([], 0)
    fleet.down.clear()
    fleet.go_on(10)
    assert len(fleet.moves) == 3


def test_a_process_that_goes_gives_nothing_either() -> None:
    """It hands over by itself, to whom it chooses."""
    fleet = Fleet([1] * 6, 3)
    fleet.said = changed(1, name_of(0), draining=True)
    fleet.go_on(2 * WAIT_S)
    assert fleet.moves == []


MEMBER: dict[str, dict[str, object]] = {
    "in another epoch": {"epoch": Epoch(0)},
    "damaged": {"log_damage": "damage"},
}


@pytest.mark.parametrize("process", [1, 2], ids=["the master", "who would take"])
@pytest.mark.parametrize("what", MEMBER)
def test_a_group_that_is_not_well_stays(process: int, what: str) -> None:
    fleet = Fleet([1, 1], 2)
    fleet.said = changed(process, **MEMBER[what])
    fleet.go_on(WAIT_S + 5)
    assert fleet.moves == []
    assert fleet.spread.to_move == 1
    fleet.said = changed(process, name_of(0), **MEMBER[what])
    fleet.go_on(5)
    assert [name for name, _, _ in fleet.moves] == [name_of(1)]


def test_nothing_moves_beside_a_member_that_catches_up() -> None:
    fleet = Fleet([1, 1, 1], 3)
    for number in range(3):
        fleet.sync(name_of(number), 1, 2)
    fleet.go_on(2 * WAIT_S)
    assert fleet.moves == []
    fleet.sync(name_of(1), 1, 2, 3)
    fleet.go_on(3)
    assert [name for name, _, _ in fleet.moves] == [name_of(1)]


def test_a_member_outside_the_set_does_not_take() -> None:
    """While it is dead nobody waits for it, and the others go on being spread."""
    fleet = Fleet([1] * 6, 3)
    fleet.kill(3)
    fleet.go_on(WAIT_S + 10)
    assert fleet.led() == [3, 3, 0]


def _drain(fleet: Fleet, key: GroupKey) -> None:
    fleet.state.put_plain("drains", key, Drain(1))


def _wipe(fleet: Fleet, key: GroupKey) -> None:
    fleet.apply(SetWritable(cluster=key[0], name=key[1], writable=False))


def _retire(fleet: Fleet, key: GroupKey) -> None:
    fleet.apply(RetireGroup(cluster=key[0], name=key[1], uid=key[1]))


def _propose(fleet: Fleet, key: GroupKey) -> None:
    assert fleet.overseer.claim(key)


@pytest.mark.parametrize("begin", [_drain, _wipe, _retire, _propose])
def test_nothing_moves_beside_something_else(begin: Callable[[Fleet, GroupKey], None]) -> None:
    fleet = Fleet([1, 1], 2)
    begin(fleet, (CLUSTER, name_of(0)))
    fleet.go_on(WAIT_S + 5)
    assert [name for name, _, _ in fleet.moves] == [name_of(1)]


def test_what_a_person_moved_stays_for_a_while() -> None:
    fleet = Fleet([1, 2, 2, 1], 2)
    fleet.go_on(WAIT_S)
    for number in (1, 2):
        fleet.elect(name_of(number), 1)
    fleet.go_on(REST_S + 5)
    assert {name for name, _, _ in fleet.moves} == {name_of(0), name_of(3)}, "others may go instead"
    fleet = Fleet([1, 2], 2)
    fleet.go_on(WAIT_S)
    fleet.elect(name_of(0), 2)
    fleet.elect(name_of(0), 1)
    fleet.elect(name_of(1), 1)
    began_s = fleet.now_s
    fleet.go_on(BY_HAND_S - 2)
    assert fleet.moves == []
    fleet.go_on(5)
    assert len(fleet.moves) == 1
    assert fleet.now_s > began_s + BY_HAND_S


def test_what_a_broker_handed_over_does_not() -> None:
    fleet = Fleet([1, 2], 2)
    fleet.go_on(WAIT_S)
    fleet.elect(name_of(1), 1, asking="2-0")
    fleet.go_on(REST_S + 3)
    assert len(fleet.moves) == 1


def test_what_this_moved_may_soon_move_again() -> None:
    fleet = Fleet([1, 1], 2)
    fleet.said = changed(2, name_of(1), log_damage="damage")
    fleet.go_on(WAIT_S)
    fleet.elect(name_of(0), 1, asking="2-0")
    fleet.go_on(REST_S + 3)
    assert [name for name, _, _ in fleet.moves] == [name_of(0), name_of(0)]


def test_a_mastership_rests_after_any_election() -> None:
    fleet = Fleet([1, 2], 2)
    fleet.go_on(WAIT_S)
    fleet.elect(name_of(1), 1, asking="2-0")
    fleet.elect(name_of(0), 2, asking="1-0")
    fleet.elect(name_of(0), 1, asking="2-0")
    fleet.go_on(REST_S - 1)
    assert fleet.moves == []


def test_a_new_leader_waits_and_so_does_one_that_stood_still() -> None:
    fleet = Fleet([1, 1], 2)
    fleet.go_on(REST_S - 1)
    assert fleet.moves == [], "it knows no elections before its own time"
    fleet.overseer.did_not_listen(fleet.now_s)
    fleet.go_on(BACK_S - 1)
    assert fleet.moves == []
    fleet.overseer.follow()
    fleet.spread.follow()
    fleet.overseer.lead(fleet.now_s)
    fleet.go_on(REST_S - 1)
    assert fleet.moves == []
    fleet.go_on(3)
    assert len(fleet.moves) == 1


@pytest.mark.parametrize("how", ["refused", "no answer", "does not act"])
def test_after_a_failure_group_and_process_wait_longer_each_time(how: str) -> None:
    fleet = Fleet([1] * 12, 2)
    names = {name_of(number) for number in range(12)}
    if how == "refused":
        fleet.refused = names
    elif how == "no answer":
        fleet.lost = names
    else:
        fleet.said = changed(2, epoch=Epoch(1))
    fleet.go_on(WAIT_S + RETRY_FIRST_S + ACTS_WITHIN_S - 3)
    assert len(fleet.moves) == 2
    fleet.go_on(120)
    assert 4 <= len(fleet.moves) <= 8
    assert fleet.spread.moved == 0
    assert fleet.spread.failed >= len(fleet.moves) - 2


def test_of_many_groups_that_cannot_move_none_keeps_the_others_from_being_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spread_module, "TRIES_MAX", 3)
    fleet = Fleet([1] * 12, 2)
    free = {name_of(7), name_of(11)}
    fleet.said = lambda name, at, beat: (
        beat if name in free else changed(at, log_damage="damage")(name, at, beat)
    )
    fleet.go_on(WAIT_S + 15)
    assert {name for name, _, _ in fleet.moves} == free


def test_a_look_at_many_groups_takes_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert GROUPS_PER_STEP == 200
    monkeypatch.setattr(spread_module, "GROUPS_PER_STEP", 4)
    looked: list[int] = []
    fleet = Fleet([1] * 8, 2)
    look = Spread._look

    def counted(self: Spread, group: BrokerGroup, clock: Clock) -> None:
        looked.append(1)
        look(self, group, clock)

    monkeypatch.setattr(Spread, "_look", counted)
    fleet.spread.step(fleet.now_s)
    assert len(looked) == 4
    fleet.go_on(2 * WAIT_S)
    assert fleet.led() == [4, 4]
