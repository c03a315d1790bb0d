"""The zones in which the master is wished: declared to the controllers, and moved back to.

The controllers prefer these zones in every election with a choice, since the declaration says which
member lives where. What no election brings about is done here: while the master is elsewhere and
a replica in a better zone could take over, the mastership moves there by a planned election.

Rules protected:

* Nothing is concluded from a zone that is not known. A master whose zone is not known stays, and a
  replica whose zone is not known takes nothing over.
* A move is a gap in the writes of a group that serves, so it waits until everybody is well: no step
  under way or waiting, all replicas Ready and in sync, since so long as `wait_seconds` says.
* No ping-pong. The wait is `WAIT_S`. It doubles each time the master did not stay there for
  `LASTED_S`, and after each move that did not come true, up to `WAIT_MAX_S`.
* One group of the fleet at a time: a group that could move says so first (`Due`), and the turn is
  given by what others say (`reconcile.moves`).
* What a person asked for by `spec.switchover` wins for as long as the request stays in the spec and
  the master is the replica that it led to.

All that is remembered is in the status; without it the wait begins anew.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.admin_bodies import PreferredPlace

from gantry_operator.models.preference import MasterState, PreferredMasterStatus
from gantry_operator.plan.actions import CheckAgain, Elect
from gantry_operator.plan.broker_steps import PlanStep
from gantry_operator.plan.conditions import timestamp
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gantry_protocol.admin import MemberView

    from gantry_operator.models import BrokerGroupSpec, BrokerGroupStatus, SwitchoverStatus
    from gantry_operator.models.preference import PreferredMaster
    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import PodView
    from gantry_operator.plan.workload import Workload

WAIT_S = 300
WAIT_MAX_S = 14_400
LASTED_S = 3_600
"""A mastership in a preferred zone that lasts so long makes up for the moves before it."""
TRIES_S = 30
"""So long an election is asked for; then the wait begins anew."""
TURN_CHECK_S = 10.0
_AT_ONCE_S = 0.1
_HOW_TO_KNOW = (
    "Pods have the label topology.kubernetes.io/zone from Kubernetes 1.35 on; before that, let the "
    "operator read nodes (readNodes of its chart)."
)


_NOT_KNOWN = (
    "Not all controllers know zones of masters: finish their update, or wait until each is heard."
)


class Preference(msgspec.Struct, frozen=True):
    """The outcome of the rule at one moment.

    Attributes:
        status: for the group's status; None without a wish.
        step: the move; None while there is none to make.
        check_after_s: when only time is waited for, so long; None otherwise.
    """

    status: PreferredMasterStatus | None = None
    step: PlanStep | None = None
    check_after_s: float | None = None

    def with_check(self, again: list[CheckAgain]) -> list[CheckAgain]:
        """The looks that are planned, and that of this rule unless one comes sooner anyway."""
        planned = min((action.after_s for action in again), default=None)
        mine = self.check_after_s
        if mine is None or (planned is not None and planned <= mine):
            return again
        return [CheckAgain(after_s=mine)]


def places(group: ObservedGroup, wish: PreferredMaster | None) -> list[PreferredPlace]:
    """The declaration: which members live in which of the wished zones; empty without a wish.

    A member whose pod or zone is not seen now, as in a restart, stays where it was declared to be.
    Nothing is declared before all controllers know such places.
    """
    view = group.view
    if wish is None or view.preferred is None:
        return []
    before = {broker_id: one.zone for one in view.preferred for broker_id in one.broker_ids}
    homes: dict[str, list[int]] = {zone: [] for zone in wish.zones}
    for member in view.members:
        pod = group.pod_of(member)
        zone = (pod.zone if pod is not None else "") or before.get(member.broker_id, "")
        if zone in homes:
            homes[zone].append(member.broker_id)
    if not any(homes.values()):
        return []
    return [PreferredPlace(zone=zone, broker_ids=sorted(ids)) for zone, ids in homes.items()]


def prefer(
    group: ObservedGroup,
    spec: BrokerGroupSpec,
    load: Workload | None,
    previous: BrokerGroupStatus | None,
    switched: SwitchoverStatus | None,
    now: dt.datetime,
    *,
    busy: str,
    turn: bool,
) -> Preference:
    """Rule: the mastership moves to the first of the wished zones that could have it; see above.

    Args:
        group: the only group of the resource.
        spec: the wish.
        load: its pods.
        previous: the status so far.
        switched: what became of the request of `spec.switchover`.
        now: the time.
        busy: what else is under way or waits; empty for nothing.
        turn: whether it is this group's turn to move.
    """
    old = previous.preferred_master if previous is not None else None
    wish, master = spec.preferred_master, group.master()
    if wish is None:
        return Preference()
    if master is None:
        return Preference(old)
    pod = group.pod_of(master)
    here = pod.zone if pod is not None else ""
    case = _Case(group, wish, here, old, _elected_since(group, previous), now)
    if group.view.preferred is None:
        return case.says("Unknown", _NOT_KNOWN)
    if pod is None or not here:
        name = pod.name if pod is not None else "the master"
        return case.says("Unknown", f"The zone of {name} is not known. {_HOW_TO_KNOW}")
    if not case.better():
        return case.at_rest()
    asked = spec.switchover
    if (
        asked is not None
        and switched is not None
        and (switched.id, switched.state, switched.to) == (asked.id, "Completed", pod.ordinal)
    ):
        text = f"switchover {asked.id} asked for it there: remove spec.switchover to let it move."
        return case.by_hand(f"The master is in zone {here}; {text}")
    amiss = busy or _amiss(group, load)
    if not amiss and group.view.preferred != places(group, wish):
        amiss = "the controllers are being told of zones"
    target = case.target()
    if not amiss and target is None:
        amiss = "no replica there may take over"
    if amiss or target is None:
        text = f"The master is in zone {here} and may not move now: {amiss}."
        return case.says("Waiting", text)
    return case.towards(*target, turn=turn)


class _Case(msgspec.Struct, frozen=True):
    """A group whose master and zones are known.

    Attributes:
        since: of the master, as far as the status before says; None for one that is new to it.
    """

    group: ObservedGroup
    wish: PreferredMaster
    here: str
    old: PreferredMasterStatus | None
    since: dt.datetime | None
    now: dt.datetime

    def says(
        self, state: MasterState, message: str, since: dt.datetime | None = None
    ) -> Preference:
        """A state in which nothing is done."""
        return Preference(self._status(state, message, since))

    def by_hand(self, message: str) -> Preference:
        """The master is where a person wanted it; that it left a zone for that says nothing."""
        wait_s = WAIT_S if self.old is None else self.old.wait_seconds
        return Preference(self._status("Kept", message, None, wait_s))

    def _status(
        self, state: MasterState, message: str, since: dt.datetime | None, wait_s: int | None = None
    ) -> PreferredMasterStatus:
        return PreferredMasterStatus(
            zone=self.here or None,
            state=state,
            since=None if since is None else timestamp(since),
            wait_seconds=self._wait_s() if wait_s is None else wait_s,
            message=message,
        )

    def _wait_s(self) -> int:
        """The wait as it is now: longer once the master has not stayed where it was wished."""
        if self.old is None:
            return WAIT_S
        if self.old.state != "Preferred" or self.since is not None or not self.better():
            return self.old.wait_seconds
        began = moment(self.old.since)
        if began is None or self.now - began >= dt.timedelta(seconds=LASTED_S):
            return WAIT_S
        return doubled(self.old.wait_seconds)

    def better(self) -> list[str]:
        """The zones before the master's in which replicas are, the best first."""
        zones = self.wish.zones
        first = zones[: zones.index(self.here)] if self.here in zones else zones
        there = {pod.zone for pod in self.group.pods}
        return [zone for zone in first if zone in there]

    def at_rest(self) -> Preference:
        """Nowhere is better than here."""
        unknown = sorted(pod.name for pod in self.group.pods if not pod.zone)
        more = f" Not known: the zone of {', '.join(unknown)}. {_HOW_TO_KNOW}" if unknown else ""
        if self.here not in self.wish.zones:
            wanted = " or ".join(self.wish.zones)
            text = f"The master is in zone {self.here}: no replica is in {wanted}.{more}"
            return self.says("Kept", text)
        before = moment(self.old.since) if self.old is not None else None
        same = self.old is not None and self.old.state == "Preferred" and self.since is not None
        since = before if same and before is not None else self.now
        return self.says("Preferred", f"The master is in zone {self.here}, as wished.{more}", since)

    def target(self) -> tuple[MemberView, PodView] | None:
        """The replica to move to: of the best zone that has one that may, the furthest."""
        in_sync = self.group.in_sync()
        for zone in self.better():
            there = [
                (member, pod)
                for member in self.group.view.members
                if member.broker_id in in_sync
                and (pod := self.group.pod_of(member)) is not None
                and pod.zone == zone
                and pod.ready
            ]
            if there:
                return max(there, key=lambda one: (one[0].max_offset, -one[0].broker_id))
        return None

    def towards(self, member: MemberView, pod: PodView, *, turn: bool) -> Preference:
        """All is well: the wait, the turn, the move."""
        old, now, wait_s = self.old, self.now, self._wait_s()
        began = moment(old.since) if old is not None else None
        if old is not None and old.state == "Moving" and self.since is not None and began:
            if now - began <= dt.timedelta(seconds=TRIES_S):
                return self._move(member, pod, began, wait_s)
            began, wait_s = now, doubled(wait_s)
        elif old is None or old.state not in ("Waiting", "Due") or self.since is None:
            began = None
        # Who came back just now may be about to go again, whoever saw it go.
        start = max(filter(None, (began or now, moment(pod.ready_since))))
        due = start + dt.timedelta(seconds=wait_s)
        way = f"from zone {self.here} to {pod.name} in zone {pod.zone}"
        if now < due:
            text = f"The master moves {way} at {timestamp(due)}, if all stays well until then."
            status = self._status("Waiting", text, start, wait_s)
            return Preference(status, check_after_s=(due - now).total_seconds() + 1)
        if not turn:
            text = f"The master may move {way}, and waits for its turn: one group at a time."
            first = old is None or old.state != "Due"
            status = self._status("Due", text, start, wait_s)
            return Preference(status, check_after_s=_AT_ONCE_S if first else TURN_CHECK_S)
        return self._move(member, pod, now, wait_s)

    def _move(
        self, member: MemberView, pod: PodView, began: dt.datetime, wait_s: int
    ) -> Preference:
        text = f"Moving the mastership from zone {self.here} to {pod.name} in zone {pod.zone}."
        action = Elect(broker_id=member.broker_id, master_epoch=self.group.view.master_epoch)
        step = PlanStep(Reason.MOVING_TO_ZONE, text, action)
        return Preference(self._status("Moving", text, began, wait_s), step)


def doubled(wait_s: int) -> int:
    """The wait after a mastership that did not last, or a move that did not come true."""
    return min(2 * wait_s, WAIT_MAX_S)


def moment(text: str | None) -> dt.datetime | None:
    """A moment as the API server writes it; None for none, or what is none."""
    try:
        found = dt.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def _elected_since(group: ObservedGroup, previous: BrokerGroupStatus | None) -> dt.datetime | None:
    """Since when the status knows the master; None for one that is new to it."""
    known = previous.master if previous is not None else None
    return moment(known.since) if known and known.epoch == group.view.master_epoch else None


def _amiss(group: ObservedGroup, load: Workload | None) -> str:
    """What is not as it should be in the group; empty if nothing is."""
    return next(_complaints(group, load), "")


def _complaints(group: ObservedGroup, load: Workload | None) -> Iterator[str]:
    if load is None or load.revision is None:
        yield "the StatefulSet takes a change in"
        return
    if load.disturbance():
        yield load.disturbance()
    if load.outdated():
        yield "pods are to be replaced"
    if group.view.retired or group.view.drain_began_ms is not None:
        yield "the group is being drained"
    if not group.serves():
        yield "the master does not serve"
    in_sync = group.in_sync()
    for pod in load.unfenced():
        member = group.member_in(pod)
        if member is None or not pod.ready or member.broker_id not in in_sync:
            yield f"{pod.name} is not Ready and in sync"
        elif member.disk_stuck or member.log_damage:
            yield f"the disk of {pod.name} is full, or its log is damaged"
