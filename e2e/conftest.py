"""One installation of Gantry for the whole run, as a user makes it, and the load on its example.

`make e2e` has brought the cluster up and loaded the image. Whatever an earlier run left is removed
first; GANTRY_E2E_REUSE=1 keeps it, which saves half a minute while a test is written. The report is
written and printed at the end, also when tests failed.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from harness import installation, operators, soak
from harness.quiet import Watch
from harness.report import Report
from harness.shell import run
from harness.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kube import Kube

REPORT_DIR = installation.ROOT / "build" / "e2e"
REUSE = os.environ.get("GANTRY_E2E_REUSE") == "1"
JAVA_IMAGE = installation.ROOT / "e2e" / "cluster" / "java-image.sh"
IMAGE_PATIENCE_S = 600.0
REFUSAL = "system:serviceaccount:"  # how the API server names whom it denies a right


def pytest_configure() -> None:
    """Keep looptime from making an event loop nobody closes, as for all other tests.

    It does so around a synchronous test on a thread that never had one, and the next asynchronous
    test lets go of it: its ResourceWarning would fail a test, or the end of the run.
    """
    asyncio.set_event_loop(None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nothing here is quick: each test has as long as its own waiting is bounded."""
    for item in items:
        item.add_marker(pytest.mark.timeout(1500))


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    """Where figures are entered."""
    found = Report(Watch().lap)
    yield found
    if found.rows:
        path = found.write(REPORT_DIR)
        print(f"\n\n{found.markdown()}\nwritten to {path.relative_to(installation.ROOT)}")


@pytest.fixture(scope="session")
def bare() -> Kube:
    """The cluster without Gantry; every node runs."""
    try:
        kube = installation.connect()
    except LookupError as error:
        pytest.exit(str(error), 2)
    installation.thaw_nodes()
    if not REUSE:
        installation.remove(kube)
    return kube


@pytest.fixture(scope="session")
def kube(bare: Kube, report: Report) -> Kube:
    """Gantry installed by Helm in namespace `gantry`, and the example's group Available."""
    ready_s = installation.install(bare)
    if not REUSE:
        report.add(
            "helm install and kubectl apply", "until Available", [ready_s], unit="s", limit=60
        )
        installation.wait_until_whole(bare)
        for component, limit_mb in installation.IDLE_RSS_MB.items():
            sizes = installation.idle_rss_mb(bare, component)
            report.add("Nothing", f"memory, {component}", sizes, unit="MB", limit=limit_mb)
    return bare


@pytest.fixture(scope="session")
def image() -> str:
    """The image under test, as the nodes know it."""
    return installation.IMAGE


@pytest.fixture(scope="session")
def java_image() -> str:
    """The image of the Java clients; `make e2e` has loaded it, else this does."""
    loaded = os.environ.get("GANTRY_E2E_JAVA_IMAGE")
    return loaded or run(str(JAVA_IMAGE), timeout_s=IMAGE_PATIENCE_S).strip()


@pytest.fixture(scope="session")
def workers(bare: Kube) -> list[str]:
    """The nodes that take pods, by name."""
    return installation.workers(bare)


@pytest.fixture(scope="session")
def trial(kube: Kube, workers: list[str], report: Report) -> Trial:
    """The example's group with a client on each worker."""
    group, controllers = installation.GROUP, installation.CONTROLLERS
    soaks = soak.start_on(
        workers, kube, image=installation.LAB_IMAGE, controllers=controllers, group=group
    )
    return Trial(kube, group, controllers, soaks, report)


@pytest.fixture(scope="module")
def operator(kube: Kube) -> Iterator[None]:
    """Two fresh operator replicas; none of them was ever refused a right that it needs."""
    operators.scale(kube, 0)
    operators.scale(kube, 2)
    yield
    for pod in operators.pods(kube):
        log = kube.ctl("logs", pod["metadata"]["name"])
        assert REFUSAL not in log, log


@pytest.fixture
def scratch(bare: Kube) -> Iterator[Kube]:
    """A namespace of its own, restricted, and deleted afterwards."""
    found = installation.new_namespace(bare)
    yield found
    found.delete("namespace", found.namespace)
