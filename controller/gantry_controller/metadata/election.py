"""The election of a master: the whole policy, as one decision about one group.

Safety argument
---------------
*Acknowledged* means that the master's confirm offset covers the record, and confirm never passes
the end of any member of the sync-state set (a member without a connection counts as 0). So at any
time **every member of the set holds every acknowledged record**, and

1. electing any member of the set loses nothing. Nobody outside it is ever eligible: not for being
   further along, not when the set is dead, not when an administrator names it. (Upstream's
   ``enableElectUncleanMaster`` does not exist here.)
2. The new set is a subset of the old one that contains the winner, so the sentence above holds for
   it too. It is the winner and those of the old set that are alive and stay: upstream's {winner}
   leaves nobody to elect if the winner dies next (RIP-44 review), and dead or departing members
   would hold confirm back until the new master had struck them out.
3. The master epoch grows by one with each election, and the old master's acknowledgements need the
   members of its set, which follow the newer epoch; so two masters never both acknowledge.
4. The elected *process* is recorded. An epoch belongs to one incarnation: a broker that restarted
   may have lost the unacknowledged end of its log, and must not write other records at the same
   offsets under the same epoch. It is elected anew, under a new epoch, or another is.

Before the first election nothing has been acknowledged, but retained volumes may hold records. So
a declared group waits until all its members are there, or a majority is and the stated time is
over, and takes the one with the newest (epoch, end), whatever else speaks for another. A group that
had masters before all its members were struck, or it was removed, has acknowledged records; each is
on at least ``min_in_sync_replicas`` volumes, so it waits for as many members as meet any so many
volumes, however long that takes; empty ones do not count while others hold records. A group nobody
declared (Java brokers) follows upstream: the first to ask is the first master, unless a member that
lives has a newer log.

6. A disk may break its promise: a volume is put back from a copy. So the quorum remembers how far
   each group is known to have confirmed (``state.Floor``), and nobody below that is elected or
   stays in the set, whatever set it is in. The floor lags a little behind what is confirmed
   (``liveness.core.floors`` says how much), and it never falls, but by a person's word
   (``AcceptLoss``).

If an administrator has struck the *whole* set from the record while other members remain, what was
acknowledged may be gone. Then only a designated election, by name, goes on; it marks the group as
not clean for ever.

A member that people have fenced is outside the set (``metadata.fencing``), so nothing here has to
ask for it but that election by name.

What decides among the eligible: stays before draining, connected before merely not timed out, then
the place that the owner prefers (``metadata.preference``), then upstream's order (epoch, end,
priority), then the lowest id. Who is draining is not eligible at all while anybody who stays is.
"""

from collections.abc import Iterable, Mapping

import msgspec
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId

from gantry_controller.metadata.confirmed import Floor
from gantry_controller.metadata.events import ElectMaster, LiveMember
from gantry_controller.metadata.preference import rank
from gantry_controller.metadata.state import BrokerGroup

BELOW_FLOOR = "BelowConfirmed"
"""How the reason begins where those that live lack what was confirmed."""


class Elected(msgspec.Struct, frozen=True, gc=False):
    """``winner`` becomes master of ``sync_state_set`` (ascending)."""

    winner: BrokerId
    sync_state_set: tuple[BrokerId, ...]
    clean: bool = True


class Kept(msgspec.Struct, frozen=True, gc=False):
    """The recorded master is alive: nothing changes (upstream 2011)."""


class Refused(msgspec.Struct, frozen=True, gc=False):
    """Nobody may be elected, or the request is out of date."""

    code: ResponseCode
    remark: str


Decision = Elected | Kept | Refused


def decide(group: BrokerGroup, request: ElectMaster, floor: Floor | None = None) -> Decision:
    """The outcome of ``request`` for ``group``, which has confirmed up to ``floor``; pure."""
    if request.expected_epoch is not None and request.expected_epoch != group.master_epoch:
        return Refused(
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"The group is in master epoch {group.master_epoch}, not {request.expected_epoch}",
        )
    live = believable(group, request.live)
    if not group.had_master:
        return _at_floor(_first_election(group, request, live), group, request, live, floor)
    if not group.sync_state_set:
        return _at_floor(_election_without_a_set(group, request, live), group, request, live, floor)
    return _election_in_the_set(group, request, live, floor)


def holds(member: LiveMember, floor: Floor | None) -> bool:
    """Whether a member may hold all that is known to be confirmed; who says nothing does not."""
    return floor is None or floor.reached_by(member.epoch, member.max_offset)


def is_gone_for_good(
    group: BrokerGroup, live: Mapping[BrokerId, LiveMember], floor: Floor | None
) -> bool:
    """Whether all members of a struck group are there, and their volumes are empty."""
    wish = group.declaration
    return (
        floor is not None
        and not group.had_master
        and wish is not None
        and len(live) >= wish.replicas
        and all(item.max_offset == 0 for item in live.values())
    )


def _at_floor(
    decision: Decision,
    group: BrokerGroup,
    request: ElectMaster,
    live: dict[BrokerId, LiveMember],
    floor: Floor | None,
) -> Decision:
    """``decision``, unless its winner lacks what was confirmed."""
    if (
        not isinstance(decision, Elected)
        or floor is None
        or (decision.winner in live and holds(live[decision.winner], floor))
        or is_gone_for_good(group, live, floor)
    ):
        return decision
    return _nobody(request, below_floor(live.values(), floor, ()))


def below_floor(live: Iterable[LiveMember], floor: Floor, away: Iterable[BrokerId]) -> str:
    """The reason why no living member is elected, for people; ``away``: who may hold the rest."""
    ends = ", ".join(
        f"broker {item.broker_id} ends at {item.max_offset} of epoch {item.epoch}"
        if item.max_offset >= 0
        else f"broker {item.broker_id} has not said how far its log goes"
        for item in live
    )
    holders = ", ".join(str(item) for item in away)
    awaited = f"; waiting for broker {holders}" if holders else ""
    return (
        f"{BELOW_FLOOR}: the group has confirmed its log up to {floor.offset} of epoch "
        f"{floor.epoch}, {ends}{awaited}"
    )


def believable(group: BrokerGroup, live: Iterable[LiveMember]) -> dict[BrokerId, LiveMember]:
    """The evidence that is about registered processes, by id.

    Evidence about an earlier process of a member that has since registered anew says nothing about
    the new one.
    """
    found: dict[BrokerId, LiveMember] = {}
    for evidence in live:
        member = group.member(evidence.broker_id)
        if member is not None and member.is_incarnation(evidence.incarnation):
            found[evidence.broker_id] = evidence
    return found


def staying(pool: Iterable[LiveMember]) -> list[LiveMember]:
    """Those of ``pool`` that do not drain; all of it if all drain."""
    members = list(pool)
    return [member for member in members if not member.draining] or members


def best(pool: Iterable[LiveMember], group: BrokerGroup) -> LiveMember:
    """The preferred one of a pool that is not empty.

    A preferred place comes before a longer log: all of the pool hold what was acknowledged, and
    what others hold beyond that was not.
    """
    places = () if group.declaration is None else group.declaration.preferred
    return max(
        pool,
        key=lambda item: (
            item.connected,
            -rank(places, item.broker_id),
            item.epoch,
            item.max_offset,
            -item.priority,
            -item.broker_id,
        ),
    )


def newest(pool: Iterable[LiveMember], group: BrokerGroup) -> LiveMember:
    """The one of a pool that is not empty whose log none exceeds; among those, the preferred."""
    members = list(pool)
    furthest = max(map(_log_of, members))
    return best(staying(member for member in members if _log_of(member) == furthest), group)


def _log_of(member: LiveMember | None) -> tuple[int, int]:
    return (-1, -1) if member is None else (member.epoch, member.max_offset)


def majority(replicas: int) -> int:
    """The smallest number of members that is more than half."""
    return replicas // 2 + 1


def first_election_is_due(group: BrokerGroup, alive: int, *, first_wait_over: bool) -> bool:
    """Whether a declared group has enough members for its first election."""
    if group.declaration is None:
        return False
    replicas = group.declaration.replicas
    enough = majority(replicas)
    if group.base_epoch:
        enough = max(enough, replicas - group.declaration.min_in_sync_replicas + 1)
    return alive >= replicas or (first_wait_over and alive >= enough)


def _may_begin(group: BrokerGroup, live: Iterable[LiveMember], *, first_wait_over: bool) -> bool:
    """Whether those who live are enough for the first election.

    Of a group that had masters, who has not said how far its log goes is not there yet. If some
    hold records, an empty volume stands for none of those that acknowledged any.
    """
    there = list(live)
    if group.base_epoch:
        there = [item for item in there if item.max_offset >= 0]
    if first_election_is_due(group, len(there), first_wait_over=False):
        return True
    if group.base_epoch:
        there = [item for item in there if item.max_offset > 0] or there
    return first_election_is_due(group, len(there), first_wait_over=first_wait_over)


def _first_election(
    group: BrokerGroup, request: ElectMaster, live: dict[BrokerId, LiveMember]
) -> Decision:
    requester = request.requester
    if group.declaration is None:
        if requester is None:
            return _nobody(request, "a group nobody declared elects who asks first")
        member = group.member(requester)
        if member is None or member.registrations == 0:
            return _nobody(request, f"broker {requester} is not registered")
        further = newest(live.values(), group) if live else None
        if further is not None and _log_of(further) > _log_of(live.get(requester)):
            return _nobody(request, f"broker {further.broker_id} has the newest log")
        return Elected(requester, (requester,))
    if not _may_begin(group, live.values(), first_wait_over=request.first_wait_over):
        return _nobody(
            request,
            f"the first election waits for {group.declaration.replicas} members, "
            f"{len(live)} are alive",
        )
    winner = newest(live.values(), group).broker_id
    if request.designate and winner != requester:
        return _nobody(request, f"broker {winner} has the newest log")
    return Elected(winner, (winner,))


def _election_without_a_set(
    group: BrokerGroup, request: ElectMaster, live: dict[BrokerId, LiveMember]
) -> Decision:
    named = request.requester if request.designate else None
    if named is None or named not in live:
        return _nobody(
            request, "the sync-state set was cleaned away; designate a live member by its id"
        )
    if named in group.fenced:
        return _nobody(request, f"broker {named} is fenced; let it in again, or name another")
    return Elected(named, (named,), clean=False)


def _election_in_the_set(
    group: BrokerGroup,
    request: ElectMaster,
    live: dict[BrokerId, LiveMember],
    floor: Floor | None,
) -> Decision:
    pool = [live[broker_id] for broker_id in group.sync_state_set if broker_id in live]
    master_lives = group.master_is_current and group.master_id in live
    if master_lives and (not request.designate or request.requester == group.master_id):
        return Kept()
    candidates = staying(item for item in pool if holds(item, floor))
    if not candidates and pool and floor is not None:
        away = [broker_id for broker_id in group.sync_state_set if broker_id not in live]
        return _nobody(request, below_floor(pool, floor, away))
    if request.designate:
        candidates = [
            candidate for candidate in candidates if candidate.broker_id == request.requester
        ]
    if not candidates:
        return _nobody(request, "no eligible member of the sync-state set is alive")
    winner = best(candidates, group)
    heirs = [item for item in pool if item is winner or not (item.draining or _lacks(item, floor))]
    return Elected(winner.broker_id, tuple(heir.broker_id for heir in heirs))


def _lacks(member: LiveMember, floor: Floor | None) -> bool:
    """Whether a member has said that it does not hold what is known to be confirmed."""
    return member.max_offset >= 0 and not holds(member, floor)


def _nobody(request: ElectMaster, reason: str) -> Refused:
    if request.requester is None:
        return Refused(
            ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
            f"Old master has down and failed to elect a new broker master: {reason}",
        )
    return Refused(
        ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, f"Failed to elect a new master: {reason}"
    )
