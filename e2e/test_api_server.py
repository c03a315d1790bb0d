"""Failover needs no API server: it is frozen while the master is killed."""

from __future__ import annotations

import time

import pytest
from harness.kube import Kube
from harness.node import freeze, process_of, signal, thaw
from harness.shell import CommandError
from harness.trial import Figure, Trial
from harness.waiting import wait_until

pytestmark = pytest.mark.usefixtures("operator")

FROZEN_S = 1.0  # until the master is killed
BACK_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def control_plane(kube: Kube) -> str:
    (node,) = kube.list("nodes", "node-role.kubernetes.io/control-plane")
    return str(node["metadata"]["name"])


def test_master_killed_while_the_api_server_stands_still(
    trial: Trial, kube: Kube, control_plane: str
) -> None:
    def fault(trial: Trial) -> float:
        process = process_of(trial.master())
        freeze(control_plane)
        time.sleep(FROZEN_S)
        struck_s = time.monotonic()
        signal(process, "KILL")
        return struck_s

    def heal(_: Trial) -> None:
        thaw(control_plane)
        wait_until("the API server answers", BACK_PATIENCE_S, lambda: _answers(kube))

    trial.measure(
        "API server stopped, then the master's process SIGKILLed",
        fault,
        runs=5,
        figures=[Figure(limit_ms=2000)],
        heal=heal,
    )


def _answers(kube: Kube) -> bool:
    try:
        return kube.ctl("get", "--raw", "/readyz", timeout_s=5.0) == "ok"
    except CommandError:
        return False
