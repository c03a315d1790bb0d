"""Fenced replicas: taken out of their group for a while, with pod and volume left as they are.

Who is fenced the controllers keep: a fenced member is outside the sync-state set, so nobody elects
it whoever else dies, with this operator away, too; its broker hears of it, follows nobody, and is
not Ready. Here the wish, by ordinal, is brought to them.

Rules protected:

* No write stops for it: as many as the minimum stay in sync without the member, in each group of
  its pod. Otherwise nothing is done, and the status says what to do.
* No master is fenced: the mastership moves first, to a replica that is not to be fenced.
* One member at a time, and each is judged by what the controllers say then; they judge again.
* Nobody is fenced before the first election, which needs all members.

A member is let in again at any time, since that takes nothing from anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gantry_operator.plan.actions import FenceMember, UnfenceMember
from gantry_operator.plan.broker_steps import PlanStep, move_masterships
from gantry_operator.plan.conditions import find
from gantry_operator.plan.minimum import minimum_now
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gantry_protocol.admin import MemberView

    from gantry_operator.models import BrokerGroupStatus
    from gantry_operator.plan.conditions import Conditions
    from gantry_operator.plan.members import ObservedGroup

CONDITION = "Fenced"
_WHAT_TO_DO = (
    "Wait until others are in sync, lower minInSyncReplicas, or take it out of spec.fenced."
)


def homes_before(previous: BrokerGroupStatus | None) -> dict[int, int]:
    """Ordinals by broker id as the status has them, for members whose pod is away."""
    members = previous.members if previous is not None else ()
    return {one.broker_id: one.replica for one in members if one.replica is not None}


def home_of(group: ObservedGroup, member: MemberView, before: Mapping[int, int]) -> int | None:
    """The ordinal of a member: its pod's, or the one it had if nobody else lives there now."""
    pod = group.pod_of(member)
    if pod is not None:
        return pod.ordinal
    ordinal = before.get(member.broker_id)
    return None if ordinal is None or group.at_ordinal(ordinal) is not None else ordinal


def unfence(
    groups: Sequence[ObservedGroup], wished: Collection[int], before: Mapping[int, int]
) -> list[UnfenceMember]:
    """Rule: a fenced member whose ordinal is not to be fenced is let in again."""
    return [
        UnfenceMember(broker_id=member.broker_id, group=group.shard)
        for group in groups
        for member in group.view.members
        if member.fenced
        and (ordinal := home_of(group, member, before)) is not None
        and ordinal not in wished
    ]


def fence(
    groups: Sequence[ObservedGroup],
    wished: Collection[int],
    before: Mapping[int, int],
    *,
    min_in_sync: int,
) -> PlanStep | None:
    """Rule: members whose ordinals are to be fenced are, one after the other; see the module.

    Args:
        groups: all of the resource.
        wished: ordinals.
        before: see `homes_before`.
        min_in_sync: of the spec.
    """
    for ordinal in sorted(wished):
        here = [
            (group, member)
            for group in groups
            for member in group.view.members
            if group.view.master_epoch > 0 and not member.fenced
            if home_of(group, member, before) == ordinal
        ]
        for group, member in here:
            short = _falls_short(group, member, minimum_now(group.view, min_in_sync))
            if short:
                text = f"Replica {ordinal} is not fenced: {short}. {_WHAT_TO_DO}"
                return PlanStep(Reason.UNSAFE_FENCE, text, stalled=True)
        led = [one for one, member in here if member.broker_id == one.view.master_broker_id]
        if led:
            return _hand_over(groups, led, ordinal, wished)
        for group, member in here:
            text = f"Fencing replica {ordinal}{group.named}."
            action = FenceMember(broker_id=member.broker_id, group=group.shard)
            return PlanStep(Reason.FENCING, text, action)
    return None


def _hand_over(
    groups: Sequence[ObservedGroup],
    led: Sequence[ObservedGroup],
    ordinal: int,
    wished: Collection[int],
) -> PlanStep:
    step = move_masterships(groups, led, Reason.FENCING, avoid=wished)
    if step.action is not None:
        return step
    text = (
        f"Replica {ordinal} is not fenced: it is the master{led[0].named}, and no other replica "
        f"that may take over is Ready and in sync. {_WHAT_TO_DO}"
    )
    return msgspec.structs.replace(step, reason=Reason.UNSAFE_FENCE, message=text)


def _falls_short(group: ObservedGroup, member: MemberView, minimum: int) -> str:
    """Why writes would stop without a member, or could not come back; empty if neither is so."""
    if member.broker_id in group.view.sync_state_set:
        staying, where = len(group.in_sync() - {member.broker_id}), "in sync"
    else:
        others = [one for one in group.view.members if one.alive and not one.fenced]
        staying = sum(one.broker_id != member.broker_id for one in others)
        where = "alive and not fenced"
    if staying >= minimum:
        return ""
    return (
        f"without it {staying} replicas{group.named} would be {where} and minInSyncReplicas is "
        f"{minimum}"
    )


def told_fenced(status: BrokerGroupStatus, ordinals: Iterable[int]) -> set[int]:
    """The ordinals that are fenced, by the status of a group that is well otherwise.

    That of one with shards tells of no members: whoever is not in sync in all of them is it.
    """
    if status.members:
        told = (one.replica for one in status.members if one.state == "Fenced")
        return {ordinal for ordinal in told if ordinal is not None}
    somebody = find(status.conditions, CONDITION) is not None
    return set(ordinals) - set(status.in_sync_replicas) if somebody else set()


def report_fenced(
    conditions: Conditions, groups: Sequence[ObservedGroup], before: Mapping[int, int]
) -> None:
    """Fenced: who takes no part; no condition while everybody does."""
    found: set[str] = set()
    for group in groups:
        for member in group.view.members:
            if member.fenced:
                ordinal = home_of(group, member, before)
                found.add(f"broker {member.broker_id}" if ordinal is None else f"replica {ordinal}")
    if found:
        names = ", ".join(sorted(found))
        text = f"Fenced: {names}; kubectl gantry unfence lets a replica in again."
        conditions.set(CONDITION, "True", Reason.MEMBERS_FENCED, text)
