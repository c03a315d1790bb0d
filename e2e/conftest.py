"""One installation of Gantry for the whole run, as a user makes it, and the load on its example.

`make e2e` has brought the cluster up and loaded the image. Whatever an earlier run left is removed
first. The report is written and printed at the end, also when tests failed.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness import operators, soak
from harness.kube import Kube
from harness.node import thaw
from harness.report import Report
from harness.shell import run
from harness.trial import Trial
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
REPORT_DIR = ROOT / "build" / "e2e"
IMAGE = os.environ.get("GANTRY_E2E_IMAGE", "gantry:dev")
RELEASE = "gantry"
CONTROLLERS = "gantry"
GROUP = "orders"
CRDS = ("brokergroups.mq.gantry.dev", "controllergroups.mq.gantry.dev")
INSTALL_PATIENCE_S = 120.0
DELETE_PATIENCE_S = 120.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nothing here is quick: each test has as long as its own waiting is bounded."""
    for item in items:
        item.add_marker(pytest.mark.timeout(1500))


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    """Where figures are entered."""
    found = Report()
    yield found
    if found.rows:
        path = found.write(REPORT_DIR)
        print(f"\n\n{found.markdown()}\nwritten to {path.relative_to(ROOT)}")


@pytest.fixture(scope="session")
def bare() -> Kube:
    """The cluster without Gantry; every node runs."""
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig:
        pytest.exit("KUBECONFIG is not set; use make e2e, or source e2e/cluster/lib.sh", 2)
    kube = Kube(Path(kubeconfig), operators.NAMESPACE)
    for node in run("kind", "get", "nodes", "--name", os.environ["CLUSTER_NAME"]).split():
        thaw(node)
    _remove(kube)
    return kube


@pytest.fixture(scope="session")
def kube(bare: Kube, report: Report) -> Kube:
    """Gantry installed by Helm in namespace `gantry`, and the example's group Available."""
    began_s = time.monotonic()
    repository, _, tag = IMAGE.rpartition(":")
    run(
        *("helm", "install", RELEASE, str(ROOT / "charts" / "gantry")),
        *(f"--kubeconfig={bare.kubeconfig}", "--namespace", bare.namespace, "--create-namespace"),
        *("--set", f"image.repository={repository},image.tag={tag}"),
    )
    bare.apply_file(ROOT / "examples" / "brokergroup.yaml")
    bare.wait_for("brokergroup", GROUP, "Available", INSTALL_PATIENCE_S)
    ready_s = time.monotonic() - began_s
    report.add("helm install and kubectl apply", "until Available", [ready_s], unit="s", limit=60)
    return bare


@pytest.fixture(scope="session")
def image() -> str:
    """The image under test, as the nodes know it."""
    return IMAGE


@pytest.fixture(scope="session")
def workers(bare: Kube) -> list[str]:
    """The nodes that take pods, by name."""
    nodes = bare.list("nodes", "!node-role.kubernetes.io/control-plane")
    return sorted(node["metadata"]["name"] for node in nodes)


@pytest.fixture(scope="session")
def trial(kube: Kube, workers: list[str], report: Report) -> Trial:
    """The example's group with a client on each worker."""
    soaks = [
        soak.start(
            kube, f"soak-{node}", image=IMAGE, controllers=CONTROLLERS, group=GROUP, node=node
        )
        for node in workers
    ]
    return Trial(kube, GROUP, CONTROLLERS, soaks, report)


@pytest.fixture(scope="module")
def operator(kube: Kube) -> Iterator[None]:
    """Two fresh operator replicas; none of them was ever refused a right that it needs."""
    operators.scale(kube, 0)
    operators.scale(kube, 2)
    yield
    for pod in operators.pods(kube):
        log = kube.ctl("logs", pod["metadata"]["name"])
        assert "orbidden" not in log, log


@pytest.fixture
def scratch(bare: Kube) -> Iterator[Kube]:
    """A namespace of its own, restricted, and deleted afterwards."""
    found = bare.within(f"e2e-{secrets.token_hex(4)}")
    found.create_namespace()
    yield found
    found.delete("namespace", found.namespace, "--wait=false")


def _remove(kube: Kube) -> None:
    """Remove release, groups, volumes and definitions of an earlier run."""
    run(
        "helm",
        "uninstall",
        RELEASE,
        f"--kubeconfig={kube.kubeconfig}",
        "--ignore-not-found",
        "--namespace",
        kube.namespace,
    )
    kube.ctl(
        *("delete", "namespace", kube.namespace, "--ignore-not-found"),
        timeout_s=DELETE_PATIENCE_S,
    )
    for definition in CRDS:
        kube.delete("crd", definition)
    wait_until(
        "the definitions of an earlier run are gone",
        DELETE_PATIENCE_S,
        lambda: not any(kube.get("crd", definition) for definition in CRDS),
    )
