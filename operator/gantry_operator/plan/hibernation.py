"""Hibernation: all pods of a group stop, and what they were is kept.

They stop at once, by one write of the StatefulSet's size. One after the other would be worse: each
that leaves a serving group is struck from the sync-state set, and in the end the set is the last
one alone, so that a single volume would decide whether the group can wake. Together, the master
takes no write any more as soon as it is told to end, waits for its whole set to hold what it has,
and whoever is in the set at the end holds every acknowledged message. Only they can be elected when
the group wakes, as after any outage.

Rules protected:

* Nobody is stopped unless the minimum is in sync in each group, by the word of the controllers, so
  what is acknowledged sleeps on so many volumes at least.
* No claim goes: the policy that deletes those of replicas that scaling removes is off first.
* A group wakes with as many members as it had when it fell asleep, also if fewer are wished by
  then: one that is to leave may be the one that has to be elected. It leaves by the ordinary rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin import GroupView
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.plan.actions import ScaleDown
from gantry_operator.plan.broker_steps import PlanStep, counted_on
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.shards import each_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_operator.builders import Manifest
    from gantry_operator.models import BrokerGroup
    from gantry_operator.plan.conditions import Conditions
    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import Body, BrokerObserved
    from gantry_operator.plan.workload import Workload

_SERVING = ("Available", "InSync", "FullyReplicated")


def size_now(seen: BrokerObserved, group: BrokerGroup, load: Workload | None) -> int:
    """The number of pods that there are to be now; fewer of them are a step of their own."""
    running = load.replicas if load is not None else 0
    if group.spec.hibernated:
        return running
    if load is None or running:
        return max(group.spec.replicas, running)
    if isinstance(seen.view, Unreachable):
        return 0  # how many there were is known there, and nobody could be elected anyway
    return size_known(seen, group)


def size_known(seen: BrokerObserved, group: BrokerGroup) -> int:
    """The number of members that there are to be, and not fewer than there were."""
    declared = [
        part.view.replicas or 0 for part in each_group(seen) if isinstance(part.view, GroupView)
    ]
    return max([group.spec.replicas, *declared])


def hibernate(
    groups: Sequence[ObservedGroup],
    load: Workload,
    statefulset: Body,
    *,
    min_in_sync: int,
    manifest: Manifest,
    manager: str,
) -> PlanStep | None:
    """Rule: all pods stop at once, when enough members are in sync; see the module.

    Args:
        groups: all of the resource.
        load: the pods.
        statefulset: as it is now.
        min_in_sync: of each group.
        manifest: the StatefulSet without pods.
        manager: who applies it.
    """
    if load.replicas == 0:
        left = len(load.pods)
        text = f"Waiting for {left} {'pod' if left == 1 else 'pods'} to end."
        return PlanStep(Reason.HIBERNATING, text) if left else None
    if not keeps_claims(statefulset):
        return PlanStep(Reason.HIBERNATING, "The StatefulSet is told to keep all claims.")
    for group in groups:
        count = len(group.in_sync())
        if group.view.master_epoch > 0 and count < min_in_sync:
            return PlanStep(
                Reason.UNSAFE_HIBERNATION,
                f"The pods are kept: {count} replicas{group.named} are in sync and "
                f"minInSyncReplicas is {min_in_sync}. Wait until more are in sync, or set "
                "spec.hibernated to false.",
                stalled=True,
            )
    return PlanStep(
        Reason.HIBERNATING,
        f"Stopping {load.replicas} pods; volumes and members are kept.",
        ScaleDown(manifest=manifest, manager=manager, **counted_on(groups)),
    )


def keeps_claims(statefulset: Body) -> bool:
    """Whether the claims of pods that scaling removes stay."""
    policy = statefulset["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return bool(policy.get("whenScaled", "Retain") == "Retain")


def is_off(seen: BrokerObserved) -> bool:
    """Whether hibernation has stopped the pods, or is about to have."""
    if seen.group is None or not seen.group.spec.hibernated:
        return False
    live = seen.objects.get(("StatefulSet", names.broker_statefulset(seen.meta.name)))
    return live is not None and bool(live["spec"].get("replicas") == 0)


def report_off(conditions: Conditions, seen: BrokerObserved) -> None:
    """The conditions of a group that serves nobody, on purpose; no controller need be asked."""
    reason, text = Reason.HIBERNATED, "No pod runs, as spec.hibernated wishes."
    if seen.pods:
        reason, text = Reason.HIBERNATING, "The pods are being stopped."
    for name in _SERVING:
        conditions.set(name, "False", reason, text)


def report_hibernation(conditions: Conditions, seen: BrokerObserved) -> None:
    """Hibernated: no condition without the wish."""
    if seen.group is None or not seen.group.spec.hibernated:
        return
    if is_off(seen) and not seen.pods:
        text = "No pod runs; volumes and members are kept. Set spec.hibernated to false to wake it."
        conditions.set("Hibernated", "True", Reason.HIBERNATED, text)
        return
    text = "Pods still run; the condition Progressing says what is waited for."
    conditions.set("Hibernated", "False", Reason.HIBERNATING, text)
