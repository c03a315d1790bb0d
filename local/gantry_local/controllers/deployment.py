"""A Deployment controller without ReplicaSets: pods belong to the Deployment itself.

Both strategies are as in ``pkg/controller/deployment``: ``Recreate`` ends all old pods before the
first new one; ``RollingUpdate`` keeps to maxSurge and maxUnavailable. Not here are pauses,
rollbacks, minReadySeconds and progressDeadlineSeconds.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gantry_local.controllers.direct import (
    Direct,
    is_finished,
    is_ready,
    is_terminating,
    owner_reference,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gantry_local.apiserver.store import Event
    from gantry_local.controllers.runner import Key

DEPLOYMENTS = ("apps", "deployments")
PODS = ("", "pods")
HASH_LABEL = "pod-template-hash"


class DeploymentController:
    """Keeps the wanted number of pods of every Deployment."""

    name = "deployment"

    def __init__(self, direct: Direct) -> None:
        self._direct = direct

    def initial_keys(self) -> Iterable[Key]:
        """Every Deployment."""
        for item in self._direct.all(*DEPLOYMENTS):
            yield item["metadata"]["namespace"], item["metadata"]["name"]

    def keys_for(self, event: Event) -> Iterable[Key]:
        """The changed Deployment, or the one that owns the changed pod."""
        record = event.record
        if record.resource == DEPLOYMENTS:
            yield record.key
        elif record.resource == PODS:
            for owner in record.obj["metadata"].get("ownerReferences") or ():
                if owner["kind"] == "Deployment":
                    yield record.key[0], owner["name"]

    def reconcile(self, key: Key) -> float | None:
        """One step towards the right count and template; changes of pods call again."""
        item = self._direct.get(*DEPLOYMENTS, *key)
        if item is None or is_terminating(item):
            return None
        pods = self._direct.owned(item, *PODS)
        revision = template_hash(item)
        steps = plan(item["spec"], pods, revision)
        for pod in steps.delete:
            self._direct.delete(*PODS, pod)
        for _ in range(steps.create):
            self._direct.create(*PODS, new_pod(item, revision))
        self._direct.set_status(*DEPLOYMENTS, item, _status(item, pods, revision))
        return None


class Steps(NamedTuple):
    """Pods that end now, and how many of the present template begin."""

    delete: list[dict[str, Any]]
    create: int


def plan(spec: dict[str, Any], pods: list[dict[str, Any]], revision: str) -> Steps:
    """The next steps of a Deployment, a pure function.

    Args:
        spec: of the Deployment.
        pods: all that it owns.
        revision: the hash of the present template.
    """
    wanted = spec["replicas"]
    staying = [pod for pod in pods if not is_terminating(pod)]
    alive = [pod for pod in staying if not is_finished(pod)]
    finished = [pod for pod in staying if is_finished(pod)]
    new = [pod for pod in alive if _is_new(pod, revision)]
    old = [pod for pod in alive if not _is_new(pod, revision)]
    # Not-ready pods go first when there are too many.
    surplus = sorted(new, key=is_ready)[: max(0, len(new) - wanted)]
    if _strategy(spec) == "Recreate":
        ending = any(is_terminating(pod) and not _is_new(pod, revision) for pod in pods)
        missing = 0 if old or ending else wanted - len(new)
        return Steps([*finished, *old, *surplus], max(0, missing))
    surge, unavailable = bounds(spec)
    doomed = [*surplus, *_replaced(new, old, wanted - unavailable)]
    create = min(wanted - len(new), wanted + surge - len(alive))
    return Steps([*finished, *doomed], max(0, create))


def _replaced(
    new: list[dict[str, Any]], old: list[dict[str, Any]], least: int
) -> list[dict[str, Any]]:
    """Old pods that may end: first those that serve nobody, then Ready ones above the least."""
    idle = [pod for pod in old if not is_ready(pod)]
    ready = [pod for pod in old if is_ready(pod)]
    starting = sum(not is_ready(pod) for pod in new)
    spare = len(new) + len(old) - least - starting
    gone = idle[: max(0, spare)]
    serving = len(new) - starting + len(ready)
    return [*gone, *ready[: max(0, min(serving - least, spare - len(gone)))]]


def bounds(spec: dict[str, Any]) -> tuple[int, int]:
    """Pods above and below the wanted number; percentages are rounded up and down."""
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    surge = _share(rolling.get("maxSurge", "25%"), spec["replicas"], math.ceil)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), spec["replicas"], math.floor)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _share(value: int | str, whole: int, rounded: Callable[[float], int]) -> int:
    if isinstance(value, int):
        return value
    return rounded(int(value.removesuffix("%")) * whole / 100)


def _strategy(spec: dict[str, Any]) -> str:
    return str((spec.get("strategy") or {}).get("type", "RollingUpdate"))


def _is_new(pod: dict[str, Any], revision: str) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(HASH_LABEL) == revision)


def template_hash(item: dict[str, Any]) -> str:
    """Ten hex characters that change with the pod template."""
    text = msgspec.json.encode(item["spec"]["template"], order="sorted")
    return hashlib.sha256(text).hexdigest()[:10]


def new_pod(item: dict[str, Any], revision: str) -> dict[str, Any]:
    """A pod of the Deployment under a generated name."""
    template, meta = item["spec"]["template"], item["metadata"]
    given = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{meta['name']}-{revision[:5]}-",
            "namespace": meta["namespace"],
            "labels": {**(given.get("labels") or {}), HASH_LABEL: revision},
            "annotations": dict(given.get("annotations") or {}),
            "ownerReferences": [owner_reference(item)],
        },
        "spec": template["spec"],
    }


def _status(item: dict[str, Any], pods: list[dict[str, Any]], revision: str) -> dict[str, Any]:
    alive = [pod for pod in pods if not is_terminating(pod) and not is_finished(pod)]
    ready = sum(is_ready(pod) for pod in alive)
    return {
        "observedGeneration": item["metadata"]["generation"],
        "replicas": len(alive),
        "updatedReplicas": sum(_is_new(pod, revision) for pod in alive),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(0, item["spec"]["replicas"] - ready),
    }
