"""Gantry on the test cluster, installed as a user does it: Helm, then one `kubectl apply`."""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path

from gantry_operator import names
from harness.kube import Kube
from harness.node import process_of, rss_bytes, thaw
from harness.shell import CommandError, run
from harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "gantry"
RELEASE = "gantry"
CONTROLLERS = "gantry"
GROUP = "orders"
IMAGE = os.environ.get("GANTRY_E2E_IMAGE", "gantry:dev")
LAB_IMAGE = os.environ.get("GANTRY_LAB_IMAGE", "gantry-test/lab:dev")
CLUSTER = os.environ.get("CLUSTER_NAME", "gantry")
CRDS = (
    "brokergroups.mq.gantry.dev",
    "consumergroups.mq.gantry.dev",
    "controllergroups.mq.gantry.dev",
    "frontgroups.mq.gantry.dev",
    "messageusers.mq.gantry.dev",
    "topics.mq.gantry.dev",
)
IDLE_RSS_MB = {"controller": 80, "broker": 100, "door": 80, "operator": 140}
TEST_NAMESPACES = "e2e-"
INSTALL_PATIENCE_S = 120.0
DELETE_PATIENCE_S = 120.0


def connect() -> Kube:
    """The cluster that KUBECONFIG names, with the namespace of the installation.

    Raises:
        LookupError: KUBECONFIG is not set.
    """
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig:
        raise LookupError("KUBECONFIG is not set; use make e2e, or source e2e/cluster/lib.sh")
    return Kube(Path(kubeconfig), NAMESPACE)


def thaw_nodes() -> None:
    """Let every node run that an interrupted test left frozen."""
    for node in run("kind", "get", "nodes", "--name", CLUSTER).split():
        thaw(node)


def workers(kube: Kube) -> list[str]:
    """The nodes that take pods, by name."""
    nodes = kube.list("nodes", "!node-role.kubernetes.io/control-plane")
    return sorted(node["metadata"]["name"] for node in nodes)


def new_namespace(kube: Kube) -> Kube:
    """Make a namespace with a name of its own, restricted by the Pod Security Standards."""
    found = kube.within(f"{TEST_NAMESPACES}{secrets.token_hex(4)}")
    found.create_namespace()
    return found


def install(kube: Kube, source: Path = ROOT, image: str = IMAGE) -> float:
    """Install the chart and apply the example; seconds until its group is Available.

    Args:
        kube: the cluster.
        source: the checkout whose chart and example they are.
        image: that of the release.
    """
    began_s = time.monotonic()
    upgrade(kube, source, image, "--create-namespace")
    kube.apply_file(source / "examples" / "brokergroup.yaml")
    kube.wait_for("brokergroup", GROUP, "Available", INSTALL_PATIENCE_S)
    return time.monotonic() - began_s


def upgrade(kube: Kube, source: Path, image: str, *options: str) -> None:
    """`helm upgrade --install` of a checkout's chart, as a user types it."""
    repository, _, tag = image.rpartition(":")
    run(
        *("helm", "upgrade", "--install", RELEASE, str(source / "charts" / "gantry")),
        *(f"--kubeconfig={kube.kubeconfig}", "--namespace", NAMESPACE),
        *("--set", f"image.repository={repository},image.tag={tag}"),
        *("--set", "operator.allNamespaces=true"),  # tests have namespaces of their own
        *options,
    )


def wait_until_whole(kube: Kube) -> None:
    """Wait until every pod is Ready: a group is Available without its last replica."""
    kube.wait_for("controllergroup", CONTROLLERS, "FullyReplicated", INSTALL_PATIENCE_S)
    kube.wait_for("brokergroup", GROUP, "FullyReplicated", INSTALL_PATIENCE_S)
    kube.ctl(
        *("wait", "pods", "-l", f"{names.LABEL_NAME}={names.APP_NAME}", "--for=condition=Ready"),
        f"--timeout={INSTALL_PATIENCE_S:.0f}s",
        timeout_s=INSTALL_PATIENCE_S + 5,
    )


def idle_rss_mb(kube: Kube, component: str) -> list[float]:
    """Resident memory of every process of a component, in MB."""
    of_pod = names.BROKER if component == names.DOOR else component
    selector = f"{names.LABEL_NAME}={names.APP_NAME},{names.LABEL_COMPONENT}={of_pod}"
    return [rss_bytes(process_of(pod, component)) / 1e6 for pod in kube.list("pods", selector)]


def remove(kube: Kube) -> None:
    """Remove release, groups, volumes and definitions, whatever an earlier run left.

    The namespace goes as a whole, and the operator, which is in it, lets everything go at its end.
    A run that was interrupted has left namespaces of its tests, too.
    """
    delete = ("delete", "namespace", NAMESPACE, "--ignore-not-found")
    try:
        kube.ctl(*delete, timeout_s=DELETE_PATIENCE_S)
    except CommandError as error:
        print(f"no operator was there to let the namespace go: {error}", flush=True)
        _take_finalizers_off(kube)
        kube.ctl(*delete, timeout_s=DELETE_PATIENCE_S)
    _take_finalizers_off(kube)
    for namespace in kube.list("namespaces"):
        if namespace["metadata"]["name"].startswith(TEST_NAMESPACES):
            kube.delete("namespace", namespace["metadata"]["name"])
    for kind in ("clusterrole", "clusterrolebinding"):  # what a release has outside its namespace
        kube.delete(kind, f"{NAMESPACE}-{RELEASE}-operator")
    for definition in CRDS:
        kube.delete("crd", definition)
    wait_until(
        "the definitions of an earlier run are gone",
        DELETE_PATIENCE_S,
        lambda: not any(kube.get("crd", definition) for definition in CRDS),
    )


def _take_finalizers_off(kube: Kube) -> None:
    """In all namespaces, for an operator that crashed, or went before what a test had made."""
    for definition in CRDS:
        if kube.get("crd", definition) is None:
            continue
        found = json.loads(kube.ctl("get", definition, "--all-namespaces", "-o", "json"))
        for meta in (one["metadata"] for one in found["items"]):
            there = kube.within(meta["namespace"])
            there.patch(definition, meta["name"], {"metadata": {"finalizers": None}})
