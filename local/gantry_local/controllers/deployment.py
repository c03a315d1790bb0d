"""A Deployment controller without ReplicaSets: enough to run the operator as a Deployment.

Pods belong to the Deployment itself. A changed template replaces all pods at once (``Recreate``);
rolling updates of Deployments are not what this cluster is for.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from gantry_local.controllers.direct import (
    Direct,
    is_finished,
    is_ready,
    is_terminating,
    owner_reference,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        """Create or delete pods until count and template are right."""
        item = self._direct.get(*DEPLOYMENTS, *key)
        if item is None or is_terminating(item):
            return None
        pods = self._direct.owned(item, *PODS)
        revision = template_hash(item)
        alive = [pod for pod in pods if not is_terminating(pod)]
        fit = [p for p in alive if p["metadata"]["labels"].get(HASH_LABEL) == revision]
        wanted = item["spec"]["replicas"]
        running = [pod for pod in fit if not is_finished(pod)]
        # Not-ready pods go first when there are too many.
        surplus = sorted(running, key=is_ready)[: max(0, len(running) - wanted)]
        doomed = [pod for pod in alive if pod not in running] + surplus
        for pod in doomed:
            self._direct.delete(*PODS, pod)
        if not [pod for pod in pods if pod not in fit]:  # Recreate: old ones first
            for _ in range(wanted - len(running)):
                self._direct.create(*PODS, new_pod(item, revision))
        self._direct.set_status(*DEPLOYMENTS, item, _status(item, running))
        return None


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


def _status(item: dict[str, Any], running: list[dict[str, Any]]) -> dict[str, Any]:
    ready = sum(is_ready(pod) for pod in running)
    return {
        "observedGeneration": item["metadata"]["generation"],
        "replicas": len(running),
        "updatedReplicas": len(running),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(0, item["spec"]["replicas"] - ready),
    }
