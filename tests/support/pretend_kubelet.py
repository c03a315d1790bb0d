"""A kubelet without processes: every pod becomes Ready at once.

For tests of the operator over thousands of groups, where pods matter only as objects.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from gantry_local.controllers.direct import Direct, is_terminating
from gantry_local.kubelet.status import ContainerState, pod_status
from gantry_local.kubelet.worker import NODE_NAME, PODS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_local.apiserver.store import Event
    from gantry_local.controllers.runner import Key


class PretendKubelet:
    """A controller over pods."""

    name = "pretend-kubelet"

    def __init__(self, direct: Direct, network: str = "10.77.0.0/16") -> None:
        self._direct = direct
        self._addresses = ipaddress.IPv4Network(network)
        self._count = 0
        # Pods that are told not to become Ready, by name.
        self.unready: set[str] = set()

    def initial_keys(self) -> Iterable[Key]:
        """Every pod."""
        for pod in self._direct.all(*PODS):
            yield pod["metadata"]["namespace"], pod["metadata"]["name"]

    def keys_for(self, event: Event) -> Iterable[Key]:
        """The changed pod."""
        if event.record.resource == PODS and event.type != "DELETED":
            yield event.record.key

    def reconcile(self, key: Key) -> float | None:
        """Bind, run, or remove."""
        pod = self._direct.get(*PODS, *key)
        if pod is None:
            return None
        if is_terminating(pod):
            self._direct.delete(*PODS, pod, grace_s=0)
            return None
        if "nodeName" not in pod["spec"]:
            bound = self._direct.patch(*PODS, pod, {"spec": {"nodeName": NODE_NAME}})
            pod = bound or pod
        old = pod.get("status") or {}
        now = self._direct.ambient.now_text()
        ready = key[1] not in self.unready
        states = [
            ContainerState(c["name"], c["image"], running_since=now, started=True, ready=ready)
            for c in pod["spec"]["containers"]
        ]
        began = old.get("startTime", now)
        for state in states:
            state.running_since = began
        status = pod_status(
            pod, states, ip=old.get("podIP") or self._next(), started_at=began, now=now
        )
        self._direct.set_status(*PODS, pod, status)
        return None

    def _next(self) -> str:
        self._count = self._count % (self._addresses.num_addresses - 2) + 1
        return str(self._addresses[self._count])
