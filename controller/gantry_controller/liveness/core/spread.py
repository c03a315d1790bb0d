"""Masters spread evenly over processes that hold the same groups; which mastership moves, and when.

A process that hosts many groups loses all its masterships when it ends, and nobody would give it
any back. So the leader looks at all groups in turns, about once a second. Groups whose members live
in the same processes are a *pool*; of each pool, all processes that are well are to lead equally
many, or one more. While one leads too many, a mastership moves from there to one that leads too
few: by an election that is designated, under compare on the epoch, inside the sync-state set, as an
administrator would ask for.

A process is known by the address that its members replicate at, which all its groups share. A group
alone in its processes is a pool of one, where nothing is ever uneven.

Rules protected:

* No storm. A process that leads too many only gives, one that leads too few only takes, and both
  end at their goals; so as many masterships move as were too many somewhere, whatever may not move
  meanwhile. ``MOVES_AT_ONCE`` are under way at a time, and a mastership rests for ``REST_S`` after
  any election. What a move came to counts: after a failure both the group and the process that was
  to lead it wait, twice as long each time.
* Nobody takes who may be about to go, or has just come: a member takes if it is heard on a
  connection, in the set, in the present epoch, and has been back for ``BACK_S``. A process of which
  any member drains, has lost its connection, or cannot write to its disk neither gives nor takes:
  what it leads it hands over by itself.
* Nothing moves while anything else is under way in the group: an election, a drain, a member that
  lives and is not in the set yet, damage.
* What a person moved stays there for ``BY_HAND_S``. Brokers that hand over say who they are in the
  event, and so does this; a person does not.

What it refuses: to act on silence. A leader that has just begun, or stood still, waits until
everybody has been heard for long enough again.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from gantry_protocol.types import BrokerId, Epoch

from gantry_controller.liveness.core import rules
from gantry_controller.liveness.core.overseer import Overseer, Trigger
from gantry_controller.liveness.core.rules import Clock
from gantry_controller.liveness.core.table import HeartbeatTable
from gantry_controller.metadata.election import Elected, decide
from gantry_controller.metadata.events import ElectMaster, Event
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, GroupKey, Member, MetadataState

REASON = "spread masters"

LOOK_EVERY_S = 1.0
GROUPS_PER_STEP = 200  # about 1 ms of work
TRIES_MAX = 100  # groups that one look tries to move; the next look tries others
MOVES_AT_ONCE = 2
BACK_S = 5.0
"""How long a process must have been registered before it takes a mastership."""
REST_S = 10.0
"""How long a mastership rests after an election, whoever asked for that."""
BY_HAND_S = 300.0
ACTS_WITHIN_S = 5.0
"""Within so much time the new master has to act in its epoch."""
RETRY_FIRST_S = 10.0
RETRY_MAX_S = 600.0

Pool = tuple[str, tuple[str, ...]]
"""A cluster, and the processes, ascending, that its groups have their members in."""


def goals(led: Mapping[str, int]) -> dict[str, int]:
    """The number of masterships that each of these processes, of which there are some, is to have.

    One more than the others is for those that lead most already.
    """
    each, left = divmod(sum(led.values()), len(led))
    order = sorted(led, key=lambda process: (-led[process], process))
    return {process: each + (place < left) for place, process in enumerate(order)}


def surplus(led: Mapping[str, int]) -> int:
    """The number of masterships that have to move until all lead equally many, or one more."""
    wanted = goals(led)
    return sum(max(0, count - wanted[process]) for process, count in led.items())


def ways(led: Mapping[str, int]) -> list[tuple[str, str]]:
    """Processes that may give one now, each with one that may take it; the most uneven first."""
    wanted = goals(led)
    beyond = {process: count - wanted[process] for process, count in led.items()}
    order = sorted(beyond, key=lambda process: (-beyond[process], process))
    givers = [process for process in order if beyond[process] > 0]
    takers = [process for process in reversed(order) if beyond[process] < 0]
    return [(giver, taker) for giver in givers for taker in takers]


class _Move(msgspec.Struct):
    """A move that is under way.

    Attributes:
        epoch: that the new master is to act in.
        until_s: it has failed if the new master does not by then.
    """

    process: str
    broker_id: BrokerId
    epoch: Epoch
    until_s: float


class _Pause(NamedTuple):
    """After a failure."""

    until_s: float
    wait_s: float


class _Tries:
    """The groups that one look tries: so many, and others than the look before."""

    def __init__(self, skip: int) -> None:
        self._skip = skip
        self._left = TRIES_MAX

    def take(self, keys: list[GroupKey]) -> Iterator[GroupKey]:
        """Some of ``keys``, round from where this look begins."""
        first = self._skip % max(1, len(keys))
        for key in keys[first:] + keys[:first]:
            if self._left == 0:
                return
            self._left -= 1
            yield key


class Spread:
    """The spreading of masters as one controller sees it; silent unless told to ``step``.

    Args:
        state: the applied metadata.
        table: what this node has heard.
        overseer: whose judgement of each group holds here, too.

    Attributes:
        moved: moves that came to an end, with the new master in its place.
        failed: those that did not.
        to_move: masterships that have to move until all are even, as of the last look.
    """

    def __init__(self, state: MetadataState, table: HeartbeatTable, overseer: Overseer) -> None:
        self.moved = 0
        self.failed = 0
        self.to_move = 0
        self._state = state
        self._table = table
        self._overseer = overseer
        self._moves: dict[GroupKey, _Move] = {}
        self._pauses: dict[GroupKey | str, _Pause] = {}
        self._by_hand_s: dict[GroupKey, float] = {}  # until when
        self._epochs: dict[GroupKey, tuple[Epoch, float]] = {}  # since when
        self._looks = 0
        self._next_look_s = float("-inf")
        self._begin_look()

    def _begin_look(self) -> None:
        self._at: GroupKey | None = None
        self._pools: dict[Pool, list[GroupKey]] = {}
        self._here: set[str] = set()
        self._unwell: set[str] = set()
        self._epochs_before, self._epochs = self._epochs, {}

    def follow(self) -> None:
        """This node leads no more; what it knows of hands and failures stays."""
        self._moves.clear()
        self.to_move = 0
        self._epochs = {}
        self._begin_look()

    def applied(self, event: Event, result: Result, now_s: float) -> None:
        """Takes note of a mastership that a person moved."""
        if (
            type(event) is ElectMaster
            and event.designate
            and not event.incarnation
            and result.changed
            and result.group is not None
        ):
            self._by_hand_s[result.group.key] = now_s + BY_HAND_S

    def settled(self, key: GroupKey, now_s: float, *, ok: bool) -> None:
        """The proposal for ``key`` was answered."""
        if not ok and key in self._moves:
            self._fail(key, now_s)

    def step(self, now_s: float) -> list[Trigger]:
        """Looks at some more groups; returns the elections to propose, mostly none.

        Each must be answered by ``settled``, here and at the overseer.
        """
        for key in list(self._moves):
            self._follow_up(key, now_s)
        if self._at is None and now_s < self._next_look_s:
            return []
        clock = self._overseer.clock(now_s)
        keys = self._state.keys_after(self._at, GROUPS_PER_STEP)
        for key in keys:
            self._look(self._state.groups[key], clock)
        if len(keys) == GROUPS_PER_STEP:
            self._at = keys[-1]
            return []
        self._next_look_s = now_s + LOOK_EVERY_S
        triggers = self._decide(clock)
        self._forget_old(now_s)
        self._begin_look()
        return triggers

    def _look(self, group: BrokerGroup, clock: Clock) -> None:
        processes = {member.ha_address for member in group.members if member.ha_address}
        if group.removed or not processes:
            return
        for member in group.members:
            row = rules.row_of(self._table, group, member)
            if row is None or not member.ha_address or clock.now_s > row.silent_from_s:
                continue
            if row.closed or row.beat.draining or row.beat.disk_stuck:
                self._unwell.add(member.ha_address)
            elif row.connected:
                self._here.add(member.ha_address)
        key = group.key
        known = self._epochs_before.get(key)
        same = known is not None and known[0] == group.master_epoch
        self._epochs[key] = known if same and known else (group.master_epoch, clock.now_s)
        self._pools.setdefault((group.cluster, tuple(sorted(processes))), []).append(key)

    def _decide(self, clock: Clock) -> list[Trigger]:
        self.to_move = 0
        triggers: list[Trigger] = []
        pools = list(self._pools.items())
        first = self._looks % max(1, len(pools))
        tries = _Tries(self._looks // max(1, len(pools)) * TRIES_MAX)
        self._looks += 1
        for (_, processes), keys in pools[first:] + pools[:first]:
            well = [item for item in processes if item in self._here - self._unwell]
            if len(keys) < 2 or len(well) < 2:
                continue
            led: dict[str, list[GroupKey]] = {process: [] for process in well}
            for key in keys:
                leads = self._led_by(key)
                if leads in led:
                    led[leads].append(key)
            counts = {process: len(keys) for process, keys in led.items()}
            self.to_move += surplus(counts)
            while len(self._moves) < MOVES_AT_ONCE:
                trigger = self._next_move(led, counts, clock, tries)
                if trigger is None:
                    break
                triggers.append(trigger)
        return triggers

    def _led_by(self, key: GroupKey) -> str | None:
        """The process that leads ``key``, or is about to."""
        move = self._moves.get(key)
        if move is not None:
            return move.process
        group = self._state.groups[key]
        master = group.master
        return master.ha_address if master is not None and group.master_is_current else None

    def _next_move(
        self, led: dict[str, list[GroupKey]], counts: dict[str, int], clock: Clock, tries: _Tries
    ) -> Trigger | None:
        """A move that is possible, if one of those that are tried is."""
        for giver, taker in ways(counts):
            for key in tries.take(led[giver]):
                trigger = self._try(key, taker, clock)
                if trigger is not None:
                    counts[giver] -= 1
                    counts[taker] += 1
                    return trigger
        return None

    def _try(self, key: GroupKey, taker: str, clock: Clock) -> Trigger | None:
        now_s = clock.now_s
        if key in self._moves or self._rests(key, taker, now_s):
            return None
        group = self._state.groups[key]
        target = self._member_at(group, taker, clock)
        if target is None or not self._may_move(group, clock):
            return None
        event = ElectMaster(
            cluster=group.cluster,
            name=group.name,
            requester=target.broker_id,
            designate=True,
            incarnation=group.master_incarnation,
            expected_epoch=group.master_epoch,
            live=self._overseer.evidence(group, now_s),
        )
        floors = self._overseer.floors
        decision = decide(group, event, floors.floor(key))
        if not isinstance(decision, Elected) or not self._overseer.claim(key):
            return None
        epoch = Epoch(group.master_epoch + 1)
        self._moves[key] = _Move(taker, target.broker_id, epoch, now_s + ACTS_WITHIN_S)
        return Trigger(key, event, REASON, floors.row(group))

    def _rests(self, key: GroupKey, taker: str, now_s: float) -> bool:
        """Whether it is too early to move ``key``, or to move anything to ``taker``."""
        _, since_s = self._epochs[key]
        paused = [self._pauses[item].until_s for item in (key, taker) if item in self._pauses]
        return now_s < max(since_s + REST_S, self._by_hand_s.get(key, 0.0), *paused)

    def _may_move(self, group: BrokerGroup, clock: Clock) -> bool:
        """Whether the group is served as it should be, and nothing is under way in it."""
        state, master = self._state, group.master
        if (
            group.declaration is None
            or group.retired
            or group.key in state.drains
            or group.key in state.wiped
            or master is None
            or not self._is_well(group, master, clock)
        ):
            return False
        return all(
            member.broker_id in group.sync_state_set
            for member in group.members
            if rules.is_alive(self._table, group, member, clock)
        )

    def _member_at(self, group: BrokerGroup, process: str, clock: Clock) -> Member | None:
        """The member of the group in ``process``, if it may become master."""
        for member in group.members:
            if member.ha_address == process and self._is_well(group, member, clock):
                came_s = self._table.registered_at(group.key, member.broker_id)
                since_s = max(clock.watching_since_s, came_s or clock.watching_since_s)
                in_sync = member.broker_id in group.sync_state_set
                if in_sync and clock.now_s >= since_s + BACK_S:
                    return member
        return None

    def _is_well(self, group: BrokerGroup, member: Member, clock: Clock) -> bool:
        """Whether the member is there to stay, and acts in the present epoch."""
        row = rules.row_of(self._table, group, member)
        return (
            row is not None
            and row.connected
            and rules.is_alive(self._table, group, member, clock)
            and not (row.beat.draining or row.beat.disk_stuck or row.beat.log_damage)
            and row.beat.epoch == group.master_epoch
        )

    def _follow_up(self, key: GroupKey, now_s: float) -> None:
        """Ends a move whose outcome is known."""
        move, group = self._moves[key], self._state.groups[key]
        member = group.member(move.broker_id)
        row = None if member is None else rules.row_of(self._table, group, member)
        if group.master_epoch == move.epoch and group.master_id == move.broker_id:
            if row is not None and row.beat.epoch == move.epoch:
                del self._moves[key]
                self.moved += 1
                self._pauses.pop(move.process, None)
                self._pauses.pop(key, None)
                return
        elif group.master_epoch >= move.epoch:
            self._fail(key, now_s)
            return
        if now_s >= move.until_s:
            self._fail(key, now_s)

    def _fail(self, key: GroupKey, now_s: float) -> None:
        self.failed += 1
        for item in (key, self._moves.pop(key).process):
            before = self._pauses.get(item)
            wait_s = RETRY_FIRST_S if before is None else min(2 * before.wait_s, RETRY_MAX_S)
            self._pauses[item] = _Pause(now_s + wait_s, wait_s)

    def _forget_old(self, now_s: float) -> None:
        """What is over, and of failures what was long ago."""
        pauses = self._pauses.items()
        self._pauses = {key: it for key, it in pauses if now_s < it.until_s + it.wait_s}
        self._by_hand_s = {key: it for key, it in self._by_hand_s.items() if now_s < it}
