"""A StatefulSet and its pods as rules see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gantry_operator import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.plan.observed import Body, PodView


class Workload(msgspec.Struct, frozen=True):
    """A StatefulSet's statements about its pods.

    Attributes:
        uid: of the StatefulSet.
        replicas: how many pods it is to have, by its own spec.
        revision: what a new pod would be made from; None until its controller has said so for the
            present spec, and then nobody can tell an outdated pod from a current one.
        pods: those that it has, by ordinal.
        fenced: ordinals of those that take no part; they are not replaced, and nobody waits for
            them to become Ready.
    """

    uid: str
    replicas: int
    revision: str | None
    pods: tuple[PodView, ...]
    fenced: frozenset[int] = frozenset()

    def unfenced(self) -> tuple[PodView, ...]:
        """Pods that take part."""
        return tuple(pod for pod in self.pods if pod.ordinal not in self.fenced)

    def outdated(self) -> tuple[PodView, ...]:
        """Pods made from an older template; none while the revision is unknown."""
        if self.revision is None:
            return ()
        return tuple(pod for pod in self.unfenced() if pod.revision != self.revision)

    def current(self) -> tuple[PodView, ...]:
        """Pods made from the present template."""
        return tuple(pod for pod in self.unfenced() if pod.revision == self.revision)

    def replaced(self) -> str:
        """The pods of the present template, of all that are to be; empty while it is unknown."""
        return "" if self.revision is None else f"{len(self.current())}/{self.replicas}"

    def disturbance(self) -> str:
        """The reason why no other pod may be taken away now; empty if nothing is in the way.

        A restart under way is finished first: two at once could be one too many, and which of them
        caused a fault could not be told.
        """
        for pod in self.pods:
            if pod.terminating:
                return f"{pod.name} is terminating"
        missing = self.replicas - len(self.pods)
        if missing > 0:
            return f"{missing} of {self.replicas} pods do not exist yet"
        if missing < 0:
            return f"{-missing} pods more than {self.replicas} still exist"
        return ""


def starting(load: Workload | None, name: str, ready: int, wished: int) -> str:
    """The number of Ready pods, and the place where it is said what the next one waits for.

    Pods that the API server refuses are told to the StatefulSet alone, and what a pod lacks to the
    pod: neither is news that the operator hears.
    """
    text = f"{ready} of {wished} pods are Ready."
    if load is None:
        return text
    there = {pod.ordinal for pod in load.pods}
    missing = next((n for n in range(load.replicas) if n not in there), None)
    waiting = next((pod for pod in load.unfenced() if not pod.ready), None)
    if missing is not None:
        what, place = f"{names.pod(name, missing)} does not exist", f"statefulset {name}"
    elif waiting is not None:
        is_going = "is being deleted" if waiting.terminating else "is not Ready"
        what, place = f"{waiting.name} {is_going}", f"pod {waiting.name}"
    else:
        return text
    return f"{text} {what}: if it stays so, `kubectl describe {place}` says why."


def fenced_in(resource: Body) -> frozenset[int]:
    """The ordinals that a BrokerGroup wishes to be fenced, as the API server has it."""
    return frozenset((resource.get("spec") or {}).get("fenced") or ())


def workload(
    statefulset: Body | None, pods: tuple[PodView, ...], fenced: Iterable[int] = ()
) -> Workload | None:
    """Joins a StatefulSet with its pods; None if there is no StatefulSet."""
    if statefulset is None:
        return None
    meta, status = statefulset["metadata"], statefulset.get("status") or {}
    seen_by_its_controller = status.get("observedGeneration") == meta.get("generation")
    known = sorted((p for p in pods if p.ordinal is not None), key=lambda p: p.ordinal or 0)
    return Workload(
        uid=meta.get("uid", ""),
        replicas=statefulset["spec"].get("replicas", 1),
        revision=status.get("updateRevision") if seen_by_its_controller else None,
        pods=tuple(known),
        fenced=frozenset(fenced),
    )
