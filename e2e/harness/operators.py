"""The operator's replicas: who leads, and how many there are to be."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gantry_operator.server import WARM_UP_S
from harness.installation import NAMESPACE
from harness.waiting import wait_until

if TYPE_CHECKING:
    from harness.kube import Kube, Object

DEPLOYMENT = "gantry-operator"
LEASE = "gantry-operator"
SELECTOR = "app.kubernetes.io/name=gantry,app.kubernetes.io/component=operator"
PATIENCE_S = 60.0
WATCHING_S = 5.0  # from the start of a standby's watches to its first look at every group


def pods(kube: Kube) -> list[Object]:
    """All replicas, wherever `kube` looks otherwise."""
    return kube.within(NAMESPACE).list("pods", SELECTOR)


def holder(kube: Kube) -> str:
    """Who holds the Lease: the pod's name, an underscore, and what makes this process unique."""
    lease = kube.within(NAMESPACE).get("lease", LEASE)
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


def leader(kube: Kube) -> Object:
    """The pod of the replica that leads."""

    def look() -> Object | None:
        name = holder(kube).partition("_")[0]
        return next((pod for pod in pods(kube) if pod["metadata"]["name"] == name), None)

    return wait_until("an operator leads", PATIENCE_S, look)


def scale(kube: Kube, replicas: int) -> None:
    """Wish for so many replicas and wait until they are all Ready, or all gone."""
    within = kube.within(NAMESPACE)
    within.ctl("scale", "deployment", DEPLOYMENT, f"--replicas={replicas}")
    if replicas:
        timeout = f"--timeout={PATIENCE_S:.0f}s"
        within.ctl("rollout", "status", "deployment", DEPLOYMENT, timeout, timeout_s=PATIENCE_S + 5)
    else:
        wait_until("all operators are gone", PATIENCE_S, lambda: not pods(kube))


def lead_from(kube: Kube, node: str) -> None:
    """See to it that the replica on `node` leads, and that the other one has warmed up.

    The leader is asked to go until it is the right one; a new replica prefers the free node.
    """
    pod = leader(kube)
    if pod["spec"]["nodeName"] == node:
        return
    deadline_s = time.monotonic() + PATIENCE_S
    while pod["spec"]["nodeName"] != node:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"no operator on {node} came to lead within {PATIENCE_S:g} s")
        gone = pod["metadata"]["name"]
        kube.within(NAMESPACE).delete("pod", gone, wait=True)
        pod = leader(kube)
    time.sleep(WARM_UP_S + WATCHING_S)


def delete_all(kube: Kube) -> None:
    """Delete every replica; the Deployment makes new ones."""
    kube.within(NAMESPACE).ctl("delete", "pod", "-l", SELECTOR, "--wait=false")
