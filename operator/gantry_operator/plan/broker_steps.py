"""Rules that take something away from a broker group, with the argument why each is safe.

All of them share these premises, which `next_step` checks first:

* the controllers were asked just now and know the group (no step rests on the absence of news);
* the StatefulSet's controller has seen its present spec;
* the shell reads pod, epoch and sync-state set once more before it carries the step out.

The controllers alone elect. A step can at worst cost a needless election inside the sync-state set:
every member of it holds every acknowledged record, so no step can lose one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gantry_operator.plan.actions import Action, ApplyObject, DeletePod, Elect, ScaleDown
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_protocol.admin import MemberView

    from gantry_operator.builders import Manifest
    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import PodView
    from gantry_operator.plan.workload import Workload


class PlanStep(msgspec.Struct, frozen=True):
    """The step under way: an action, or the thing that is waited for.

    Attributes:
        stalled: it waits for something that time alone may not bring.
    """

    reason: Reason
    message: str
    action: Action | None = None
    stalled: bool = False


def required_in_sync(min_in_sync: int, replicas: int) -> int:
    """The number of members that must stay in sync while one is taken away.

    The minimum, so that sends stay acknowledged. Where the minimum equals the number of replicas
    that is impossible, and one less is asked: acknowledgements pause for the restart, which is what
    such a minimum means.
    """
    return min(min_in_sync, replicas - 1)


def scale_down(
    group: ObservedGroup, load: Workload, *, wished: int, min_in_sync: int, manifest: Manifest
) -> PlanStep | None:
    """Rule: surplus replicas go one at a time, the highest ordinal first.

    Safe because the group keeps `min_in_sync` members in sync without the leaving one, which is
    counted out before it goes, and because the master never goes: the mastership moves first, and
    only to a replica that stays. Below that the step waits and says so. `manifest` is the
    StatefulSet with one replica less.
    """
    if load.replicas <= wished:
        return None
    leaving_ordinal = load.replicas - 1
    disturbance = load.disturbance()
    if disturbance:
        return PlanStep(Reason.SCALING_DOWN, f"Waiting to remove replicas: {disturbance}.")
    leaving = group.at_ordinal(leaving_ordinal)
    staying = group.in_sync() - ({leaving.broker_id} if leaving else set())
    if len(staying) < min_in_sync:
        return PlanStep(
            Reason.UNSAFE_SCALE_DOWN,
            f"Replica {leaving_ordinal} is kept: without it {len(staying)} replicas would be in "
            f"sync and minInSyncReplicas is {min_in_sync}. Wait until the others are in sync, or "
            "raise spec.replicas again.",
            stalled=True,
        )
    if leaving is not None and leaving.broker_id == group.view.master_broker_id:
        return _move_mastership(group, Reason.SCALING_DOWN, below_ordinal=wished)
    return PlanStep(
        Reason.SCALING_DOWN,
        f"Removing replica {leaving_ordinal}; {wished} are wished.",
        ScaleDown(
            manifest=manifest,
            master_epoch=group.view.master_epoch,
            sync_state_set=tuple(group.view.sync_state_set),
        ),
    )


def rolling_update(group: ObservedGroup, load: Workload, *, min_in_sync: int) -> PlanStep | None:
    """Rule: outdated pods are replaced one by one, replicas first, the master last.

    In this order: pods without a running process (nothing can be lost by replacing them), members
    that are not Ready or outside the sync-state set, the other replicas from the highest ordinal
    down, the master after the mastership has moved. Each step waits until the last one is finished
    and well, so a bad change breaks one pod and no more; if there is another change before that,
    the pod that is not well yet is the one that is replaced again.
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
    unwell = _unwell_current_pod(group, load)
    if unwell:
        return PlanStep(Reason.ROLLING_UPDATE, f"Waiting to replace pods: {unwell}.", stalled=True)
    if load.replicas == 1:
        return _replace_only(group, outdated[0])
    return _replace_next(group, load, outdated, min_in_sync)


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
            return f"{pod.name} has not registered with the controllers yet"
        if not pod.ready:
            return f"{pod.name} is not Ready yet"
        if member.broker_id not in in_sync:
            return f"{pod.name} is not in the sync-state set yet"
    return ""


def _replace_only(group: ObservedGroup, pod: PodView) -> PlanStep:
    """A single replica has nobody to hand over to; it restarts, and clients wait for it."""
    return PlanStep(
        Reason.ROLLING_UPDATE,
        f"Replacing {pod.name}, the only replica.",
        _delete(group, pod),
    )


def _replace_next(
    group: ObservedGroup, load: Workload, outdated: tuple[PodView, ...], min_in_sync: int
) -> PlanStep:
    in_sync, required = group.in_sync(), required_in_sync(min_in_sync, load.replicas)
    replicas: list[tuple[bool, int, PodView, MemberView]] = []
    for pod in outdated:
        member = group.member_in(pod)
        if member is None:
            return PlanStep(
                Reason.ROLLING_UPDATE,
                f"Waiting to replace pods: {pod.name} has not registered with the controllers, so "
                "its role is not known.",
                stalled=True,
            )
        if member.broker_id != group.view.master_broker_id:
            well = pod.ready and member.broker_id in in_sync
            replicas.append((well, -(pod.ordinal or 0), pod, member))
    if not replicas:
        return _move_mastership(group, Reason.ROLLING_UPDATE)
    _, _, pod, member = min(replicas, key=lambda candidate: candidate[:2])
    staying = in_sync - {member.broker_id}
    if len(staying) < required:
        return PlanStep(
            Reason.ROLLING_UPDATE,
            f"Waiting to replace {pod.name}: without it {len(staying)} replicas would be in sync "
            f"and {required} are needed.",
            stalled=True,
        )
    return PlanStep(Reason.ROLLING_UPDATE, f"Replacing {pod.name}.", _delete(group, pod))


def _delete(group: ObservedGroup, pod: PodView) -> DeletePod:
    return DeletePod(
        name=pod.name,
        uid=pod.uid,
        master_epoch=group.view.master_epoch,
        sync_state_set=tuple(group.view.sync_state_set),
    )


def _move_mastership(
    group: ObservedGroup, reason: Reason, *, below_ordinal: int | None = None
) -> PlanStep:
    """The mastership moves before its holder is taken away.

    Designated election inside the sync-state set, under compare-and-set on the epoch: if the
    controllers elected somebody else meanwhile, the request does nothing.
    """
    target = group.successor(below_ordinal=below_ordinal)
    master = group.master()
    if target is None or master is None:
        return PlanStep(
            reason,
            "Waiting to move the mastership: no other replica that may take it is Ready and in "
            "sync.",
            stalled=True,
        )
    pod = group.pod_of(target)
    return PlanStep(
        reason,
        f"Moving the mastership to {pod.name if pod else target.broker_id}.",
        Elect(broker_id=target.broker_id, master_epoch=group.view.master_epoch),
    )


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
