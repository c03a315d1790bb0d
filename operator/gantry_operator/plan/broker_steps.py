"""Rules that take something away from a broker group, with the argument why each is safe.

All of them share these premises, which `next_step` checks first:

* the controllers were asked just now and know the group (no step rests on the absence of news);
* the StatefulSet's controller has seen its present spec;
* the shell reads pod, epoch and sync-state set once more before it carries the step out.

The controllers alone elect. A step can at worst cost a needless election inside the sync-state set:
every member of it holds every acknowledged record, so no step can lose one.

A pod holds one member of each group of the resource, mostly of a single one; it is taken away when
every group can spare it, and masters none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gantry_operator import names
from gantry_operator.plan.actions import (
    Action,
    ApplyObject,
    Counted,
    DeletePod,
    Elect,
    ElectEach,
    ScaleDown,
)
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gantry_operator.builders import Manifest
    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import PodView
    from gantry_operator.plan.workload import Workload

    Groups = Sequence[ObservedGroup]


_REPLACED_NEXT = 1_000
"""The burden of a pod that will have to give its masterships up soon; more than any has."""
_TOLD_MAX = 5


class PlanStep(msgspec.Struct, frozen=True):
    """The step under way: an action, or the thing that is waited for.

    Attributes:
        stalled: it waits for something that time alone may not bring.
        short: of a deletion, the message in a few words.
    """

    reason: Reason
    message: str
    action: Action | None = None
    stalled: bool = False
    short: str = ""


def required_in_sync(min_in_sync: int, replicas: int) -> int:
    """The number of members that must stay in sync while one is taken away.

    The minimum, so that sends stay acknowledged. Where the minimum equals the number of replicas
    that is impossible, and one less is asked: acknowledgements pause for the restart, which is what
    such a minimum means.
    """
    return min(min_in_sync, replicas - 1)


def scale_down(
    groups: Groups,
    load: Workload,
    *,
    wished: int,
    min_in_sync: int,
    manifest: Manifest,
    manager: str = names.FIELD_MANAGER,
) -> PlanStep | None:
    """Rule: surplus replicas go one at a time, the highest ordinal first.

    Safe because each group keeps `min_in_sync` members in sync without the leaving one, which is
    counted out before it goes, and because no master goes: the mastership moves first, and only to
    a replica that stays. Below that the step waits and says so. `manifest` is the StatefulSet with
    one replica less, and `manager` who applies it.
    """
    if load.replicas <= wished:
        return None
    leaving_ordinal = load.replicas - 1
    disturbance = load.disturbance()
    if disturbance:
        return PlanStep(Reason.SCALING_DOWN, f"Waiting to remove replicas: {disturbance}.")
    led: list[ObservedGroup] = []
    for group in groups:
        leaving = group.at_ordinal(leaving_ordinal)
        staying = group.in_sync() - ({leaving.broker_id} if leaving else set())
        if len(staying) < min_in_sync:
            return PlanStep(
                Reason.UNSAFE_SCALE_DOWN,
                f"Replica {leaving_ordinal} is kept: without it {len(staying)} replicas"
                f"{group.named} would be in sync and minInSyncReplicas is {min_in_sync}. Wait "
                "until the others are in sync, or raise spec.replicas again.",
                stalled=True,
            )
        if leaving is not None and leaving.broker_id == group.view.master_broker_id:
            led.append(group)
    if led:
        return move_masterships(groups, led, Reason.SCALING_DOWN, below_ordinal=wished)
    return PlanStep(
        Reason.SCALING_DOWN,
        f"Removing replica {leaving_ordinal}; {wished} are wished.",
        ScaleDown(manifest=manifest, manager=manager, **counted_on(groups)),
    )


def rolling_update(groups: Groups, load: Workload, *, min_in_sync: int) -> PlanStep | None:
    """Rule: outdated pods are replaced one by one, replicas first, the master last.

    In this order: pods without a running process (nothing can be lost by replacing them), members
    that are not Ready or outside the sync-state set, the other replicas from the highest ordinal
    down, the master after the mastership has moved. Each step waits until the last one is finished
    and well in every group, so a bad change breaks one pod and no more; if there is another change
    before that, the pod that is not well yet is the one that is replaced again.
    """
    outdated = load.outdated()
    if not outdated:
        return None
    disturbance = load.disturbance()
    if disturbance:
        return PlanStep(Reason.ROLLING_UPDATE, f"Waiting to replace pods: {disturbance}.")
    dead = next((pod for pod in reversed(outdated) if not pod.running), None)
    if dead is not None:
        return _replace_dead(dead)
    unwell = next(filter(None, (_unwell_current_pod(group, load) for group in groups)), "")
    if unwell:
        return PlanStep(Reason.ROLLING_UPDATE, f"Waiting to replace pods: {unwell}.", stalled=True)
    if load.replicas == 1:
        return _replace_only(groups, outdated[0])
    return _replace_next(groups, load, outdated, min_in_sync)


def _replace_dead(pod: PodView) -> PlanStep:
    """A pod whose container does not run serves nobody, whatever the controllers last heard.

    Its volume stays, so its member stays what it was. This is what gets a group out of a bad
    change that broke it entirely.
    """
    return PlanStep(
        Reason.ROLLING_UPDATE,
        f"Replacing {pod.name}, whose container does not run.",
        DeletePod(name=pod.name, uid=pod.uid, only_if_dead=True),
    )


def _unwell_current_pod(group: ObservedGroup, load: Workload) -> str:
    """Why an already replaced pod is not well yet; empty if all are in sync."""
    in_sync = group.in_sync()
    for pod in load.current():
        member = group.member_in(pod)
        if member is None:
            return f"{pod.name} has not registered{_as(group)} with the controllers yet"
        if not pod.ready:
            return f"{pod.name} is not Ready yet"
        if member.broker_id not in in_sync:
            return f"{pod.name} is not in the sync-state set{group.named} yet"
    return ""


def _as(group: ObservedGroup) -> str:
    return f" its member of {group.shard}" if group.shard else ""


def _replace_only(groups: Groups, pod: PodView) -> PlanStep:
    """A single replica has nobody to hand over to; it restarts, and clients wait for it."""
    return PlanStep(
        Reason.ROLLING_UPDATE,
        f"Replacing {pod.name}, the only replica.",
        _delete(groups, pod),
    )


class _Candidate(msgspec.Struct, frozen=True):
    """An outdated pod, with the groups whose master lives in it.

    Attributes:
        well: it is Ready, and in sync in every group.
    """

    pod: PodView
    well: bool
    led: tuple[ObservedGroup, ...]

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The order in which pods that are as well as each other are replaced."""
        return self.well, len(self.led), -(self.pod.ordinal or 0)


def _replace_next(
    groups: Groups, load: Workload, outdated: tuple[PodView, ...], min_in_sync: int
) -> PlanStep:
    candidates = []
    for pod in outdated:
        led, well = [], pod.ready
        for group in groups:
            member = group.member_in(pod)
            if member is None and not pod.hosts(group.shard):
                continue
            if member is None:
                return PlanStep(
                    Reason.ROLLING_UPDATE,
                    f"Waiting to replace pods: {pod.name} has not registered{_as(group)} with the "
                    "controllers, so its role is not known.",
                    stalled=True,
                )
            well &= member.broker_id in group.in_sync()
            if member.broker_id == group.view.master_broker_id:
                led.append(group)
        candidates.append(_Candidate(pod, well, tuple(led)))
    # The master of a single group goes last; of many groups each pod has some, and what lacks
    # something goes first.
    last = [one for one in candidates if len(one.led) == len(groups) == 1]
    chosen = min([one for one in candidates if one not in last] or last, key=lambda one: one.rank)
    unable = None if chosen in last else _cannot_spare(groups, load, chosen.pod, min_in_sync)
    if unable is not None:
        return unable
    if chosen.led:
        return move_masterships(groups, chosen.led, Reason.ROLLING_UPDATE, outdated=outdated)
    text = f"Replacing {chosen.pod.name}."
    return PlanStep(Reason.ROLLING_UPDATE, text, _delete(groups, chosen.pod))


def _cannot_spare(
    groups: Groups, load: Workload, pod: PodView, min_in_sync: int
) -> PlanStep | None:
    """The wait for a group that would have too few members in sync without a pod's."""
    required = required_in_sync(min_in_sync, load.replicas)
    for group in groups:
        member = group.member_in(pod)
        if member is None:
            continue  # a shard that the pod gets by being replaced loses nothing
        staying = group.in_sync() - {member.broker_id}
        if len(staying) < required:
            return PlanStep(
                Reason.ROLLING_UPDATE,
                f"Waiting to replace {pod.name}: without it {len(staying)} replicas{group.named} "
                f"would be in sync and {required} are needed.",
                stalled=True,
            )
    return None


def _delete(groups: Groups, pod: PodView) -> DeletePod:
    return DeletePod(name=pod.name, uid=pod.uid, **counted_on(groups))


def counted_on(groups: Groups) -> dict[str, Any]:
    """Epochs and sets at the time of a decision, in the fields of its action."""
    counted = tuple(
        Counted(group.shard, group.view.master_epoch, tuple(group.view.sync_state_set))
        for group in groups
    )
    if all(one.group for one in counted):
        return {"shards": counted}
    (only,) = counted
    return {"master_epoch": only.master_epoch, "sync_state_set": only.sync_state_set}


def move_masterships(
    groups: Groups,
    led: Sequence[ObservedGroup],
    reason: Reason,
    *,
    below_ordinal: int | None = None,
    avoid: Collection[int] = (),
    outdated: tuple[PodView, ...] = (),
) -> PlanStep:
    """The masterships of a pod move before it is taken away, to none of the ordinals to `avoid`.

    Designated elections inside the sync-state set, under compare-and-set on the epoch: if the
    controllers elected somebody else meanwhile, the request does nothing. Of many groups each goes
    where there are fewest masters, and to a pod that is not replaced next, if there is one.
    """
    many = bool(led[0].shard)
    burdens = masters_per_pod(groups) if many else {}
    for pod in outdated if many else ():
        burdens[pod.name] = burdens.get(pod.name, 0) + _REPLACED_NEXT
    elections, told = [], []
    for group in led:
        target = group.successor(below_ordinal=below_ordinal, burdens=burdens, avoid=avoid)
        master = group.master()
        if target is None or master is None:
            return PlanStep(
                reason,
                f"Waiting to move the mastership{group.named}: no other replica that may take it "
                "is Ready and in sync.",
                stalled=True,
            )
        there = group.pod_of(target)
        name = there.name if there else str(target.broker_id)
        burdens[name] = burdens.get(name, 0) + 1
        told.append(f"{group.shard} to {name}".strip())
        elections.append(
            Elect(
                broker_id=target.broker_id,
                master_epoch=group.view.master_epoch,
                group=group.shard,
            )
        )
    if not many:
        return PlanStep(reason, f"Moving the mastership {told[0]}.", elections[0])
    more = f" and {len(told) - _TOLD_MAX} more" if len(told) > _TOLD_MAX else ""
    text = f"Moving masterships: {', '.join(told[:_TOLD_MAX])}{more}."
    return PlanStep(reason, text, ElectEach(elections=tuple(elections)))


def masters_per_pod(groups: Groups) -> dict[str, int]:
    """The number of groups whose master lives in a pod, by its name; pods without any are there."""
    counts: dict[str, int] = {pod.name: 0 for group in groups[:1] for pod in group.pods}
    for group in groups:
        master = group.master()
        pod = None if master is None else group.pod_of(master)
        if pod is not None:
            counts[pod.name] += 1
    return counts


def may_tell_crash(step: PlanStep | None) -> bool:
    """Whether a crash loop is the better news than a step: than none, or a roll-out that waits."""
    return step is None or (step.action is None and step.reason == Reason.ROLLING_UPDATE)


def taking_in(actions: Sequence[Action], load: Workload | None) -> PlanStep | None:
    """The wait until a StatefulSet and its controller know the present wish; None when they do.

    Until then all pods may be Ready and in sync, and none of them as wished: whoever waits for a
    change to be carried out must not be told that nothing is under way.
    """
    on_its_way = any(
        isinstance(action, ApplyObject) and action.manifest["kind"] == "StatefulSet"
        for action in actions
    )
    if not on_its_way and load is not None and load.revision is not None:
        return None
    return PlanStep(Reason.APPLYING, "The StatefulSet takes the change in.")
