"""Volumes that grow: which claim is made larger next, and what the growth waits for.

A claim is patched, the driver makes the volume larger under a running pod, and nobody has to
restart. So this asks nothing of the processes, which may be stuck for want of room, nor of the
controllers, which may be unreachable: it goes by the claims alone.

One claim at a time, the master's last: a driver that spoils a volume spoils one that the group can
spare. What waits for something that does not come by itself is told, and holds up no other.

Claim templates of a StatefulSet are immutable. It stays as it is: a claim of a later replica is
made with the old size and grows before anything else (ADR 0097).

Rule protected: a volume never shrinks, and no pod restarts unless its claim says that the file
system waits for it, and then once.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gantry_operator import names
from gantry_operator.plan.actions import GrowClaim
from gantry_operator.plan.broker_steps import PlanStep
from gantry_operator.plan.objects import is_larger
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gantry_operator.models.parts import Storage
    from gantry_operator.plan.observed import (
        Body,
        BrokerObserved,
        ControllerObserved,
        PodView,
        RefusedGrowth,
        VolumeView,
    )
    from gantry_operator.plan.workload import Workload

FILE_SYSTEM_WAIT_S = 120.0
"""For so long a file system may be behind its volume before its pod restarts: a kubelet grows that
of a running pod by itself where the driver can, mostly within seconds."""
RETRY_S = 300.0
"""Between two attempts at what the API server refused; not less than what counts as repeated in
vain (`repeats`), since a StorageClass may stay as it is for ever."""


class Growth(msgspec.Struct, frozen=True):
    """The next part of a growth.

    Attributes:
        claims: to be made larger now.
        step: what is under way, or waited for; None once all is as wished.
        restart: the pods whose file systems wait for a restart.
        extent: how many volumes have the wished size, of all.
    """

    claims: tuple[GrowClaim, ...] = ()
    step: PlanStep | None = None
    restart: frozenset[str] = frozenset()
    extent: str = ""


NOTHING = Growth()


def claimed_size(statefulset: Body) -> str | None:
    """The size in the claim template; None where pods have no claim."""
    for template in statefulset["spec"].get("volumeClaimTemplates") or ():
        size: str = template["spec"]["resources"]["requests"]["storage"]
        return size
    return None


def wished_last(statefulset: Body | None) -> str | None:
    """The size that claims were last wished to have, where it is more than the template has."""
    annotations = (statefulset or {}).get("metadata", {}).get("annotations") or {}
    size: str | None = annotations.get(names.ANNOTATION_STORAGE_SIZE)
    return size


def template_size(
    storage: Storage, statefulset: Body | None, left: Sequence[VolumeView] = ()
) -> str:
    """The size in the claim template where more is wished; empty where the template has it all.

    A StatefulSet that is yet to be made gets the size of the smallest claim that is `left` of one
    that was deleted, so that this one grows, too.
    """
    if storage.type != "PersistentVolumeClaim":
        return ""
    if statefulset is not None:
        sizes = [claimed_size(statefulset) or storage.size]
    else:
        sizes = [volume.requested for volume in left]
    smallest = storage.size
    for size in sizes:
        smallest = size if is_larger(smallest, size) else smallest
    return smallest if is_larger(storage.size, smallest) else ""


def has_grown(volume: VolumeView, size: str) -> bool:
    """Whether nothing is left to do for a claim; one that is larger was made so by somebody."""
    asked = volume.bound and not is_larger(size, volume.requested)
    return asked and bool(volume.capacity) and not is_larger(size, volume.capacity)


def grow(
    seen: BrokerObserved | ControllerObserved,
    storage: Storage,
    load: Workload | None,
    now: dt.datetime,
    *,
    noted: str | None,
    last: Collection[str] = (),
) -> Growth:
    """The next part, by what is observed of the claims.

    Args:
        seen: the world.
        storage: the wish.
        load: the pods; without a StatefulSet there is nothing to grow yet.
        now: the time.
        noted: the size that the StatefulSet says was wished last (`wished_last`). Nothing is asked
            for before it is there: what a claim has got must not become less by a later wish.
        last: names of pods whose volumes come last, since a master or the leader lives there.
    """
    if seen.volumes is None or load is None:
        return NOTHING
    size, pods = storage.size, {pod.ordinal: pod for pod in load.pods}
    volumes = sorted(
        (volume for volume in seen.volumes if volume.ordinal in pods),
        key=lambda volume: (pods[volume.ordinal].name in last, -(volume.ordinal or 0)),
    )
    left = [volume for volume in volumes if not has_grown(volume, size)]
    if not left:
        return NOTHING
    found = {volume.name: _state(volume, pods[volume.ordinal], size, now) for volume in left}
    refused = {
        volume.name: refusal
        for volume in left
        if found[volume.name] == _SMALL
        and (refusal := seen.refused_growth.get(volume.name)) is not None
        and refusal.size == size
    }
    under_way = [v for v in left if found[v.name] in (_RESIZING, _FILE_SYSTEM, _RESTART)]
    untried = [v for v in left if found[v.name] == _SMALL and v.name not in refused]
    again = [v for v in left if v.name in refused and refused[v.name].due]
    asked = [] if under_way or noted != size else (untried or again)[:1]
    extent = f"{len(volumes) - len(left)}/{len(volumes)}"
    done = f"{len(volumes) - len(left)} of {len(volumes)} volumes have {size}"
    moving = under_way or untried
    if moving:
        text = f"{done}; {moving[0].name} {_words(found[moving[0].name])}."
        step = PlanStep(Reason.GROWING_VOLUMES, text)
    else:
        step = _stuck(left, found, refused, pods, done)
    return Growth(
        claims=tuple(GrowClaim(name=v.name, uid=v.uid, size=size) for v in asked),
        step=step,
        restart=frozenset(pods[v.ordinal].name for v in under_way[:1] if found[v.name] == _RESTART),
        extent=extent,
    )


_UNBOUND, _SMALL, _RESIZING, _FILE_SYSTEM, _RESTART, _FAILED, _IN_VAIN = range(7)
"""What a claim that has not grown is at."""


def _state(volume: VolumeView, pod: PodView, size: str, now: dt.datetime) -> int:
    if not volume.bound:
        return _UNBOUND
    if is_larger(size, volume.requested):
        return _SMALL
    if volume.pending_since:
        if not pod.created or pod.created > volume.pending_since:  # not in its very second
            return _IN_VAIN
        waited_s = (now - _moment(volume.pending_since, now)).total_seconds()
        return _RESTART if waited_s >= FILE_SYSTEM_WAIT_S else _FILE_SYSTEM
    return _FAILED if volume.trouble else _RESIZING


def _moment(text: str, now: dt.datetime) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return now


def _words(state: int) -> str:
    if state == _SMALL:
        return "is next"
    if state == _RESIZING:
        return "is being made larger by its driver"
    if state == _FILE_SYSTEM:
        return "is larger, and its file system grows"
    return "is larger, and its file system waits for a restart of the pod"


def _stuck(
    left: list[VolumeView],
    found: dict[str, int],
    refused: dict[str, RefusedGrowth],
    pods: dict[int | None, PodView],
    done: str,
) -> PlanStep:
    """What none of the rest comes over by itself, the first of each kind in full."""
    told: dict[str, str] = {}
    for volume in left:
        state = found[volume.name]
        if state == _SMALL:
            why = f"the API server refuses it: {refused[volume.name].message}"
        elif state == _FAILED:
            why = f"its driver could not: {volume.trouble}"
        elif state == _UNBOUND:
            why = "it has no volume yet, and takes another size only then"
        else:
            pod = pods[volume.ordinal].name
            why = f"its file system did not grow when {pod} restarted: look at the pod's events"
        told.setdefault(f"{state}", f"{volume.name}: {why.removesuffix('.')}.")
    return PlanStep(
        Reason.VOLUME_EXPANSION_REFUSED,
        f"{done}. {' '.join(told.values())} It is tried again; all else goes on.",
        stalled=True,
    )


def with_outdated(load: Workload, pods: frozenset[str]) -> Workload:
    """The same pods, of which these are to be replaced as if they had an older template."""
    return replace(
        load,
        pods=tuple(replace(p, revision=None) if p.name in pods else p for p in load.pods),
    )


def as_growth(step: PlanStep | None) -> PlanStep | None:
    """A step of a rolling update that a file system waits for."""
    if step is None:
        return None
    text = f"A file system grows with a restart. {step.message}"
    return replace(step, reason=Reason.GROWING_VOLUMES, message=text)
