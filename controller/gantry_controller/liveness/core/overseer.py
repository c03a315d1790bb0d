"""Groups that need an election now, by what this node has heard and what the log says.

The leader's overseer looks at a group when something about it may have changed: an event about it
was applied, evidence came in, its master's time-out is due, or a member of a group that waits for
somebody eligible was heard. It asks the election policy first and proposes only what would succeed
on the state it sees, so a group without anybody to elect costs no log entries. A proposal carries
the master epoch it was made in and is refused if another came first; one is under way per group.

What a wake-up costs follows from what is due, not from how many groups there are: a master's
time-out is looked at once per time-out however many heartbeats came (``due``), and an event that
can call for no election is not followed by a look.

After an outage of a whole group, a member of the set that comes back first may be a volume that was
put back from a copy, and what the quorum knows to be confirmed lags a little. So nobody is elected
before all of the set are there, or ``OUTAGE_WAIT_S`` is over, unless somebody lives whose process
was there under the master (``floors``). Waiting changes no rule of the election: it only decides
when one is asked for.
"""

import math
from collections import deque
from collections.abc import Iterable

import msgspec
from gantry_protocol.types import BrokerId, Epoch
from msgspec.structs import replace

from gantry_controller.liveness.core.courses import Courses
from gantry_controller.liveness.core.due import DueQueue
from gantry_controller.liveness.core.floors import HeardFloors
from gantry_controller.liveness.core.rules import (
    Clock,
    live_members,
    master_suspicion,
    row_of,
    silent_from,
)
from gantry_controller.liveness.core.table import Heartbeat, HeartbeatTable
from gantry_controller.metadata.election import BELOW_FLOOR, Elected, Refused, decide, holds
from gantry_controller.metadata.events import (
    AcceptLoss,
    AlterSyncStateSet,
    CleanBrokerData,
    ElectMaster,
    Event,
    FloorRow,
    LiveMember,
    RegisterBroker,
    RemoveGroup,
)
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, GroupKey, MetadataState

FIRST_WAIT_S = 3.0
"""How long the first election of a declared group waits for members beyond a majority."""

OUTAGE_WAIT_S = 3.0
"""How long the first member of the set that is back after an outage of all waits for the others."""

STALE_SHARE = 0.6
"""Of a heartbeat time-out. Who was not heard for so long, or whose connection has closed, may have
died with the master: it is not elected before it is heard again. Else, when all die at once, one
after the other is elected, and the sync-state set ends as the last one alone."""

RETRY_S = 0.2
"""Before a group is looked at again after a proposal of ours came to nothing."""

GRID_S = 0.005
"""Time-outs are looked at on this grid, strictly later than they end, so that those of many groups
share a wake-up."""

_NEVER = (Epoch(-1), 0.0)
_MEMBERS_LEAVE = CleanBrokerData, RemoveGroup


class Trigger(msgspec.Struct, frozen=True, gc=False):
    """An election to propose, and why.

    Attributes:
        floor: what the quorum has to know before; to be proposed first.
    """

    key: GroupKey
    event: ElectMaster
    reason: str
    floor: FloorRow | None = None


class Overseer:
    """One controller's judgement about all groups; silent unless told to ``lead``.

    Args:
        state: the applied metadata.
        table: what this node has heard.
        default_timeout_s: of brokers that have not told their own.

    Attributes:
        floors: how far groups have confirmed their logs, as this node has heard it.
        courses: how each group came to its master.
    """

    def __init__(
        self, state: MetadataState, table: HeartbeatTable, *, default_timeout_s: float
    ) -> None:
        self._state = state
        self._table = table
        self._default_timeout_s = default_timeout_s
        self._watching_since_s: float | None = None  # None: not leading
        self._due: DueQueue[GroupKey] = DueQueue()
        self._unseen: deque[GroupKey] = deque()  # groups not looked at since this node leads
        self._proposing: set[GroupKey] = set()
        self._waiting: set[GroupKey] = set()  # for somebody eligible
        self._first_heard_s: dict[GroupKey, tuple[Epoch, float]] = {}  # before their first election
        self.floors = HeardFloors(state, table)
        self.courses = Courses()
        self._why: dict[GroupKey, str] = {}  # of those that wait, for what was confirmed

    @property
    def leading(self) -> bool:
        """Whether this node acts on what it sees."""
        return self._watching_since_s is not None

    def clock(self, now_s: float) -> Clock:
        """The rules' view of time; to a node that does not lead, silence means nothing."""
        since_s = now_s if self._watching_since_s is None else self._watching_since_s
        return Clock(
            now_s=now_s, watching_since_s=since_s, default_timeout_s=self._default_timeout_s
        )

    def lead(self, now_s: float) -> None:
        """Begins to act, with a grace for everybody (``rules.silent_from``)."""
        self._watching_since_s = now_s
        self._unseen = deque(self._state.groups)

    def follow(self) -> None:
        """Stops acting."""
        self._watching_since_s = None
        self._due.clear()
        self._unseen.clear()
        self._proposing.clear()
        self._waiting.clear()
        self._why.clear()
        self.courses.forget()

    def did_not_listen(self, now_s: float) -> None:
        """The process stood still: everybody gets a new time-out to be heard in."""
        if self._watching_since_s is not None:
            self._watching_since_s = now_s

    def restored(self, now_s: float) -> None:
        """The state came from a snapshot: who waits for a first election begins to wait now.

        When its first member registered was an event that this node will not see again.
        """
        self.floors.restored(now_s)
        self._first_heard_s = {
            group.key: (group.base_epoch, now_s)
            for group in self._state.living()
            if not group.had_master and any(member.registrations for member in group.members)
        }

    def concerns(self, event: Event, result: Result) -> bool:
        """Whether ``applied`` has anything to take note of.

        A change of the sync-state set, the event that comes often, was asked for by the master.
        """
        group = result.group
        if group is None:
            return False
        return type(event) is not AlterSyncStateSet or group.key in self._waiting

    def applied(self, event: Event, result: Result, now_s: float) -> bool:
        """Takes note of a change of the metadata; whether there is something to look at."""
        group = result.group
        if group is None:
            return False
        key = group.key
        if type(event) is RegisterBroker:
            self._table.registered(key, event.broker_id, now_s)
            if not group.had_master:
                self._begin_first_wait(group, now_s)
        elif group.had_master or group.removed:
            self._first_heard_s.pop(key, None)
        if isinstance(event, _MEMBERS_LEAVE):
            self._table.keep_only(key, (member.broker_id for member in group.members))
        if isinstance(event, AcceptLoss | RemoveGroup):
            self.floors.forget(key, group_is_gone=group.removed)
        if group.removed or group.master_is_current:
            self._why.pop(key, None)
        if not self.leading or self._is_of_a_replica(event, group):
            return False
        self.look(key, now_s)
        return True

    def _is_of_a_replica(self, event: Event, group: BrokerGroup) -> bool:
        """A replica has started anew under a master; that calls for no election.

        When a thousand brokers come back at once, only those that lead or are waited for are
        looked at.
        """
        return (
            type(event) is RegisterBroker
            and group.master_id not in (None, event.broker_id)
            and group.key not in self._waiting
        )

    def _begin_first_wait(self, group: BrokerGroup, now_s: float) -> None:
        base, _ = self._first_heard_s.get(group.key, _NEVER)
        if base != group.base_epoch:
            self._first_heard_s[group.key] = (group.base_epoch, now_s)

    def heard(self, key: GroupKey, now_s: float, beat: Heartbeat | None = None) -> bool:
        """A member of ``key`` was heard; whether there is something to look at."""
        if beat is not None:
            self.floors.heard(key, beat, now_s)
        if key not in self._waiting:
            return False
        self.look(key, now_s)
        return True

    def look(self, key: GroupKey, now_s: float) -> None:
        """There may be news about ``key`` at ``now_s``."""
        if self.leading:
            self._due.hasten(key, now_s)

    def first_wait_over(self, group: BrokerGroup, now_s: float) -> bool:
        """Whether the group's first election has waited long enough for the last members."""
        ends_s = self._first_wait_ends(group)
        return ends_s is not None and now_s >= ends_s

    def evidence(
        self, group: BrokerGroup, now_s: float, asking: BrokerId | None = None
    ) -> tuple[LiveMember, ...]:
        """The evidence for an election of ``group``."""
        live = live_members(self._table, group, self.clock(now_s), asking=asking)
        marked = [
            replace(item, connected=False)
            if item.connected and item.broker_id != asking and self._may_be_dead(group, item, now_s)
            else item
            for item in live
        ]
        return self.floors.lifted(group, marked)

    def _may_be_dead(self, group: BrokerGroup, member: LiveMember, now_s: float) -> bool:
        row = self._table.row(group.key, member.broker_id)
        if row is None:
            return False
        stale_s = STALE_SHARE * row.beat.timeout_s
        registered_s = self._table.registered_at(group.key, member.broker_id)
        if registered_s is not None and registered_s > row.seen_s:
            return now_s > registered_s + stale_s  # a new process, which has not beaten yet
        return row.closed or now_s > row.seen_s + stale_s

    def objection(self, group: BrokerGroup, event: ElectMaster, now_s: float) -> str:
        """The objection to an election that somebody else asks for; mostly empty.

        That is so while only members live that lack what was confirmed, or that have to wait.
        """
        decision = decide(group, event, self.floors.floor(group.key))
        if isinstance(decision, Refused):
            return decision.remark if BELOW_FLOOR in decision.remark else ""
        if not isinstance(decision, Elected) or event.designate:
            return ""
        if decision.winner == event.requester and self.floors.is_vouched_for(
            group, decision.winner
        ):
            return ""
        _, why = self._wait(group, decision, event.live, now_s)
        return why

    def why_nobody(self, key: GroupKey) -> str:
        """The reason why a group with living members has no master; else empty."""
        return self._why.get(key, "")

    def who_wait(self) -> dict[GroupKey, str]:
        """The groups for which ``why_nobody`` says something."""
        return self._why

    def _wait(
        self,
        group: BrokerGroup,
        decision: Elected,
        live: Iterable[LiveMember],
        now_s: float,
    ) -> tuple[float | None, str]:
        """Until when the winner has to wait for the rest of the set, and a sentence; or None.

        Who may have died with the master is not there, though its time-out may not be over yet, and
        neither is who was heard by another controller alone: the election would pass it over.
        """
        floor = self.floors.floor(group.key)
        if not group.had_master:
            return None, ""
        row = self._table.row(group.key, decision.winner)
        here = {
            item.broker_id: item
            for item in live
            if item.broker_id in group.sync_state_set
            and item.connected
            and not self._may_be_dead(group, item, now_s)
        }
        if row is not None and not here:
            ends_s = row.silent_from_s + GRID_S  # it is silent strictly after that
            return ends_s, f"broker {decision.winner} may have died with the master"
        if self.floors.is_vouched_for(group, decision.winner):
            return None, ""
        away = [str(item) for item in group.sync_state_set if item not in here]
        if not away:
            return None, ""
        came_s = [
            self._table.registered_at(group.key, item.broker_id) or -math.inf
            for item in here.values()
            if holds(item, floor)
        ]
        since_s = max(self.clock(now_s).watching_since_s, min(came_s, default=-math.inf))
        ends_s = since_s + OUTAGE_WAIT_S
        if now_s >= ends_s:
            return None, ""
        return ends_s, (
            f"the whole group was away: broker {decision.winner} waits up to {OUTAGE_WAIT_S:.0f} s "
            f"for broker {', '.join(away)} of the sync-state set"
        )

    def next_due(self) -> float | None:
        """The time at which ``take`` has something to look at."""
        return self._watching_since_s if self._unseen else self._due.next_due()

    def take(self, now_s: float, limit: int) -> list[Trigger]:
        """Looks at up to ``limit`` groups that are due and returns the elections to propose.

        Each returned trigger must be answered by ``settled``.
        """
        keys = self._due.take(now_s, limit)
        while self._unseen and len(keys) < limit:
            keys.append(self._unseen.popleft())
        triggers = (self._judge(key, now_s) for key in keys)
        return [trigger for trigger in triggers if trigger is not None]

    def claim(self, key: GroupKey) -> bool:
        """Keeps a group free for one more election to propose; whether nothing was under way.

        To be answered by ``settled``.
        """
        if key in self._proposing or key in self._waiting:
            return False
        self._proposing.add(key)
        return True

    def settled(self, key: GroupKey, now_s: float, *, ok: bool) -> None:
        """The proposal for ``key`` ended; look at the group again, at once or after a while."""
        self._proposing.discard(key)
        self.look(key, now_s if ok else now_s + RETRY_S)

    def _judge(self, key: GroupKey, now_s: float) -> Trigger | None:
        group = self._state.groups.get(key)
        if group is None or group.removed or key in self._proposing:
            return None
        clock = self.clock(now_s)
        reason = self._reason(group, clock)
        self._waiting.discard(key)
        self._why.pop(key, None)
        if reason is None:
            self.courses.cleared(key)
            self._schedule_time_out(group, clock)
            return None
        if group.had_master:
            row = None if group.master is None else row_of(self._table, group, group.master)
            heard_s = None if row is None else row.seen_s
            self.courses.suspected(group, reason, heard_s=heard_s, now_s=now_s)
        event = ElectMaster(
            cluster=group.cluster,
            name=group.name,
            expected_epoch=group.master_epoch,
            live=self.evidence(group, now_s),
            first_wait_over=self.first_wait_over(group, now_s),
        )
        decision = decide(group, event, self.floors.floor(key))
        if isinstance(decision, Elected):
            wait_ends_s, why = self._wait(group, decision, event.live, now_s)
            if wait_ends_s is None:
                self._proposing.add(key)
                return Trigger(key, event, reason, self.floors.row(group))
            self._why[key] = why
            self._due.hasten(key, wait_ends_s)
        elif isinstance(decision, Refused) and BELOW_FLOOR in decision.remark:
            self._why[key] = decision.remark.partition(f"{BELOW_FLOOR}: ")[2]
        elif isinstance(decision, Refused) and group.sync_state_set and event.live:
            away = ", ".join(str(item) for item in group.sync_state_set)
            self._why[key] = f"nobody of the sync-state set lives; waiting for broker {away}"
        self._waiting.add(key)
        first_wait_ends_s = self._first_wait_ends(group)
        if not group.had_master and first_wait_ends_s is not None and first_wait_ends_s > now_s:
            self._due.hasten(key, first_wait_ends_s)
        return None

    def _reason(self, group: BrokerGroup, clock: Clock) -> str | None:
        if not group.had_master:
            return "first election" if group.declaration is not None else None
        if group.master_id is None:
            return "no master" if group.sync_state_set else None
        suspicion = master_suspicion(self._table, group, clock)
        return None if suspicion is None else suspicion.value

    def _schedule_time_out(self, group: BrokerGroup, clock: Clock) -> None:
        master = group.master
        if master is not None:
            silent_s = max(silent_from(self._table, group, master, clock), clock.now_s)
            self._due.hasten(group.key, (math.floor(silent_s / GRID_S) + 1) * GRID_S)

    def _first_wait_ends(self, group: BrokerGroup) -> float | None:
        base, heard_s = self._first_heard_s.get(group.key, _NEVER)
        return heard_s + FIRST_WAIT_S if base == group.base_epoch else None
