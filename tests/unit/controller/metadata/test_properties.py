"""Whatever happens in whatever order: the rules of mastership hold after every event.

A random world of one declared group: brokers join, restart, are elected, widen and narrow the set,
are cleaned or forgotten, the group is retired and comes back; requests arrive late, with stale
epochs and with stale evidence. Checked after every event, by looking at the outcome only:

* master epochs never fall, and one epoch has one master (and one process of it);
* the set changes only by an election, by a change with the right epochs, or by a cleaning;
* who is elected was in the set (after the first election), and the new set is part of the old one;
* ids are never issued twice, not even across removals;
* who is forgotten was dead, as far as the evidence went, and outside the set, of which one lived;
* a retired group is as it was but for that, and only its owner retires it;
* a refusal changes nothing at all;
* another controller that applies the same events has the same state.
"""

from collections.abc import Iterable
from typing import Any

from gantry_controller.metadata.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    DeclareGroup,
    ElectMaster,
    Event,
    FenceMember,
    ForgetMember,
    LiveMember,
    RegisterBroker,
    RemoveGroup,
    RetireGroup,
)
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch, Offset
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace
from support.metadata_world import CLUSTER, NAME, World

GROUP: dict[str, Any] = {"cluster": CLUSTER, "name": NAME}
IDS = st.integers(1, 4).map(BrokerId)
ALIVE = st.just([BrokerId(one) for one in (1, 2, 3, 4)]) | st.lists(IDS, unique=True)
CURRENT = st.just(0)
STALE = st.integers(-2, 1)
SELDOM = st.integers(0, 5)


class Mastership(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.twin = World()
        self.starts: dict[int, int] = {}
        self.masters: dict[Epoch, tuple[BrokerId, str]] = {}
        self.issued: dict[BrokerId, str] = {}
        self.applications = 0
        self.lives = 0

    def group(self) -> BrokerGroup:
        return self.world.state.groups.get((CLUSTER, NAME), BrokerGroup(CLUSTER, NAME))

    def apply(self, event: Event) -> Result:
        before, digest = self.group(), self.world.state.digest()
        result = self.world.apply(event)
        self.twin.apply(event)
        assert self.twin.state.digest() == self.world.state.digest()
        if not result.changed:
            assert self.world.state.digest() == digest
        self.judge(event, before, self.group())
        return result

    def judge(self, event: Event, before: BrokerGroup, after: BrokerGroup) -> None:
        assert after.master_epoch >= before.master_epoch
        elected = after.master_epoch > before.master_epoch
        if elected:
            assert isinstance(event, ElectMaster)
            assert after.master_epoch == before.master_epoch + 1
            assert after.master_id is not None
            assert after.master_id in after.sync_state_set
            assert after.master_epoch not in self.masters
            self.masters[after.master_epoch] = (after.master_id, after.master_incarnation)
            if before.had_master and before.sync_state_set:
                assert set(after.sync_state_set) <= set(before.sync_state_set)
            elif before.had_master:
                assert event.designate
                assert not after.clean
        if after.sync_state_set != before.sync_state_set and not elected:
            allowed = AlterSyncStateSet | CleanBrokerData | RemoveGroup | FenceMember
            assert isinstance(event, allowed)
        if isinstance(event, FenceMember) and after != before:
            assert set(before.sync_state_set) - {event.broker_id} == set(after.sync_state_set)
            assert after.master_id == before.master_id
            assert set(before.fenced) ^ set(after.fenced) == {event.broker_id}
        if elected:
            assert after.master_id not in before.fenced
        if isinstance(event, AlterSyncStateSet) and after != before:
            assert before.master_id == event.master_id
            assert before.master_epoch == event.master_epoch
            assert before.sync_state_set_epoch == event.expected_set_epoch
            assert after.sync_state_set_epoch == before.sync_state_set_epoch + 1
        gone = {one.broker_id for one in before.members} - {one.broker_id for one in after.members}
        assert not gone or isinstance(event, CleanBrokerData | RemoveGroup | ForgetMember)
        if isinstance(event, ForgetMember) and after != before:
            self.judge_forgotten(event, before, after)
        if after.retired != before.retired:
            assert isinstance(event, RetireGroup | DeclareGroup | RemoveGroup)
            assert after.retired == isinstance(event, RetireGroup)
        if isinstance(event, RetireGroup) and after != before:
            assert before.declaration is not None
            assert before.declaration.uid == event.uid
            assert after == replace(before, retired=True, changed_index=after.changed_index)

    def judge_forgotten(self, event: ForgetMember, before: BrokerGroup, after: BrokerGroup) -> None:
        kept = tuple(one for one in before.members if one.broker_id != event.broker_id)
        fenced = tuple(one for one in before.fenced if one != event.broker_id)
        assert after == replace(
            before, members=kept, fenced=fenced, changed_index=after.changed_index
        )
        assert event.broker_id not in before.sync_state_set
        alive = {
            one.broker_id
            for one in event.live
            for member in before.members
            if (member.broker_id, member.incarnation) == (one.broker_id, one.incarnation)
        }
        assert event.broker_id not in alive
        assert not before.had_master or alive & set(before.sync_state_set)
        registered = before.member(event.broker_id)
        assert registered is not None
        assert registered.incarnation in ("", event.incarnation)

    @initialize(declared=st.booleans(), first_set=st.sets(st.integers(1, 3)))
    def found(self, declared: bool, first_set: set[int]) -> None:
        """Three members and a master: from an empty state the random walk hardly gets that far."""
        if declared:
            self.declare(3)
        for broker_id in (1, 2, 3):
            self.take_an_id(0)
            self.start(BrokerId(broker_id))
        self.apply(ElectMaster(**GROUP, requester=BrokerId(1), live=self.evidence([1, 2, 3])))
        self.propose([1, *first_set])

    @rule(replicas=st.integers(1, 3))
    def declare(self, replicas: int) -> None:
        if self.group().removed:
            self.lives += 1
        event = DeclareGroup(
            **GROUP, uid=f"u{self.lives}", replicas=replicas, min_in_sync_replicas=1
        )
        if self.apply(event).ok:
            assert not self.group().retired

    @rule(offset=st.integers(-1, 1))
    def take_an_id(self, offset: int) -> None:
        wanted = BrokerId(self.group().next_broker_id + offset)
        self.applications += 1
        code = f"h:{wanted};{self.applications}"
        result = self.apply(ApplyBrokerId(**GROUP, broker_id=wanted, check_code=code))
        if result.ok:
            assert wanted not in self.issued
            self.issued[wanted] = code

    @rule(broker_id=IDS)
    def start(self, broker_id: BrokerId) -> None:
        start = self.starts.get(broker_id, 0) + 1
        event = RegisterBroker(
            **GROUP, broker_id=broker_id, address="h:1", incarnation=f"{broker_id}-{start}"
        )
        if self.apply(event).ok:
            self.starts[broker_id] = start

    def evidence(
        self,
        alive: Iterable[int],
        draining: Iterable[int] = (),
        stale: Iterable[int] = (),
    ) -> tuple[LiveMember, ...]:
        """``stale`` members are spoken of as they were before their last start."""
        return tuple(
            LiveMember(
                broker_id=BrokerId(one),
                incarnation=f"{one}-{self.starts.get(one, 1) - (one in stale)}",
                max_offset=Offset(10 - number),
                draining=one in draining,
            )
            for number, one in enumerate(alive)
        )

    @rule(
        requester=st.none() | IDS,
        designate=st.booleans(),
        lag=st.none() | CURRENT | STALE,
        alive=ALIVE,
        draining=st.lists(IDS, max_size=2),
        stale=st.lists(IDS, max_size=1),
        waited=st.booleans(),
    )
    def elect(
        self,
        requester: BrokerId | None,
        designate: bool,
        lag: int | None,
        alive: list[BrokerId],
        draining: list[BrokerId],
        stale: list[BrokerId],
        waited: bool,
    ) -> None:
        before = self.group()
        event = ElectMaster(
            **GROUP,
            requester=requester,
            designate=designate and requester is not None,
            expected_epoch=None if lag is None else Epoch(before.master_epoch + lag),
            live=self.evidence(alive, draining, stale),
            first_wait_over=waited,
        )
        result = self.apply(event)
        group = self.group()
        if result.ok:
            assert lag in (None, 0)
            assert group.master_is_current
            of_java = before.declaration is None and not before.had_master
            assert of_java or (group.master_id in alive and group.master_id not in stale)
        elif result.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
            assert group.master_is_current
            assert group.master_id in alive

    @rule(members=st.lists(IDS, min_size=1), lag=CURRENT | STALE, set_lag=CURRENT | STALE)
    def alter(self, members: list[BrokerId], lag: int, set_lag: int) -> None:
        self.propose([*members, self.group().master_id or members[0]], lag, set_lag)

    @rule(master=IDS, members=st.lists(IDS, min_size=1))
    def alter_as(self, master: BrokerId, members: list[BrokerId]) -> None:
        self.propose([*members, master], master=master)

    def propose(
        self,
        members: Iterable[int],
        lag: int = 0,
        set_lag: int = 0,
        master: BrokerId | None = None,
    ) -> None:
        group = self.group()
        event = AlterSyncStateSet(
            **GROUP,
            master_id=master or group.master_id or BrokerId(1),
            master_epoch=Epoch(group.master_epoch + lag),
            new_set=tuple(BrokerId(one) for one in members),
            expected_set_epoch=group.sync_state_set_epoch + set_lag,
            live=self.evidence(range(1, 7)),
        )
        self.apply(event)

    @rule(ids=st.none() | st.lists(IDS, max_size=2), living=st.integers(0, 5), rare=SELDOM)
    def clean(self, ids: list[BrokerId] | None, living: int, rare: int) -> None:
        if rare == 0:
            self.apply(
                CleanBrokerData(
                    **GROUP,
                    broker_ids=None if ids is None else tuple(ids),
                    clean_living=living == 5,
                )
            )

    @rule(
        broker_id=IDS,
        alive=st.lists(IDS, unique=True),
        stale=st.lists(IDS, max_size=1),
        late=st.booleans(),
    )
    def forget(
        self, broker_id: BrokerId, alive: list[BrokerId], stale: list[BrokerId], late: bool
    ) -> None:
        start = self.starts.get(broker_id, 1) - late
        self.apply(
            ForgetMember(
                **GROUP,
                broker_id=broker_id,
                incarnation=f"{broker_id}-{start}",
                live=self.evidence(alive, stale=stale),
            )
        )

    @rule(broker_id=IDS, alive=ALIVE, fenced=st.booleans())
    def fence(self, broker_id: BrokerId, alive: list[BrokerId], fenced: bool) -> None:
        live = self.evidence(alive)
        self.apply(FenceMember(**GROUP, broker_id=broker_id, fenced=fenced, live=live))

    @rule(life=st.integers(-1, 0))
    def retire(self, life: int) -> None:
        self.apply(RetireGroup(**GROUP, uid=f"u{self.lives + life}"))

    @rule(rare=SELDOM)
    def remove(self, rare: int) -> None:
        if rare == 0:
            self.apply(RemoveGroup(**GROUP, uid=f"u{self.lives}"))

    @invariant()
    def what_is_counted_as_it_changes_is_what_there_is(self) -> None:
        state = self.world.state
        living = list(state.living())
        assert state.living_count == len(living)
        assert state.retired_count == sum(one.retired for one in living)
        assert state.headless_count == sum(one.master_id is None for one in living)
        assert state.all_keys() == sorted(state.groups)

    @invariant()
    def recorded_master_is_the_one_of_its_epoch(self) -> None:
        group = self.group()
        if group.master_id is not None:
            assert self.masters[group.master_epoch] == (group.master_id, group.master_incarnation)


TestMastership = Mastership.TestCase
TestMastership.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
