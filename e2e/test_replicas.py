"""A broker group of one becomes one of three, of five and small again, with data and under load.

A group holds `GANTRY_E2E_DATA_MB` (default 256) before it grows, so each new member has something
to copy. Its minimum of members in sync is changed by the same edit.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from gantry_operator import names
from harness import client
from harness.report import Account
from harness.waiting import wait_until
from harness.wishes import GROUP, broker_group, resource

if TYPE_CHECKING:
    from harness.kube import Kube
    from harness.report import Report

START_PATIENCE_S = 180.0
SIZE_PATIENCE_S = 600.0
LOOK_S = 0.5
GAP_LIMIT_MS = 500.0
DATA_MB = int(os.environ.get("GANTRY_E2E_DATA_MB", "256"))
PART_MB = 16  # of it by one program, which has its time limit
BODY_BYTES = 64 * 1024
SMALL = {"requests": {"cpu": "50m", "memory": "96Mi"}}
STORAGE = {"size": "16Gi", "whenScaled": "Delete"}
TOPIC, BALLAST = "greetings", "ballast"
SIZES = ((3, 2), (5, 3), (3, 2), (1, 1))  # replicas, and how many must be in sync
CONTROLLERS = 1  # five brokers are enough for the machine


@pytest.mark.usefixtures("kube")
def test_one_three_five_three_one_and_no_send_fails(
    scratch: Kube, image: str, report: Report
) -> None:
    quorum = {"image": image, "replicas": CONTROLLERS, "resources": SMALL}
    group = {"image": image, "resources": SMALL, "storage": STORAGE, "replicas": 1}
    scratch.apply(
        resource("ControllerGroup", client.CONTROLLERS, **quorum),
        broker_group(**group, replication={"minInSyncReplicas": 1}),
    )
    scratch.wait_for("brokergroup", GROUP, "FullyReplicated", START_PATIENCE_S)
    part = ["x" * BODY_BYTES] * (PART_MB * 1024 * 1024 // BODY_BYTES)
    for _ in range(DATA_MB // PART_MB):
        client.produce(scratch, BALLAST, part)
    done = threading.Event()
    with ThreadPoolExecutor(2) as background:
        load = background.submit(_send_until, scratch, done)
        seen = background.submit(_watch_until, scratch, done)
        try:
            for replicas, minimum in SIZES:
                _resize(scratch, replicas, minimum)
        finally:
            done.set()
        sent, gaps = load.result()
    statuses = seen.result()
    assert "True" in statuses  # Unknown where the operator could not ask
    assert "False" not in statuses
    found = client.consume(scratch, TOPIC)
    assert sorted(set(found)) == sorted(sent)
    account = Account(acknowledged=len(sent), duplicated=len(found) - len(set(found)))
    scenario = f"replicas 1, 3, 5, 3, 1 with {DATA_MB} MB"
    report.add(scenario, "write gap", gaps, limit=GAP_LIMIT_MS, account=account)


def _resize(kube: Kube, replicas: int, minimum: int) -> None:
    change = {"replicas": replicas, "replication": {"minInSyncReplicas": minimum}}
    kube.patch("brokergroup", GROUP, {"spec": change})

    def reached() -> bool:
        found = kube.get("brokergroup", GROUP) or {"metadata": {}}
        status = found.get("status", {})
        current = status.get("observedGeneration") == found["metadata"].get("generation")
        pods = kube.list("pods", names.selector_text(names.BROKER, GROUP))
        is_whole = status.get("inSync") == f"{replicas}/{replicas}" and len(pods) == replicas
        return bool(current and is_whole)

    wait_until(f"{replicas} replicas are in sync", SIZE_PATIENCE_S, reached)


def _send_until(kube: Kube, stop: threading.Event) -> tuple[list[str], list[float]]:
    """Send without a failure until told to stop; what was sent, and the longest gap of each part.

    A part is a program of its own; between two of them nothing is sent.
    """
    sent: list[str] = []
    gaps: list[float] = []
    while not stop.is_set():
        messages = [f"{len(sent) + number:08}" for number in range(600)]
        summary = client.produce(kube, TOPIC, messages, "--rate=60")
        assert (summary["acknowledged"], summary["failed"]) == (len(messages), 0), summary
        sent += messages
        gaps.append(summary["longest_gap_ms"])
    return sent, gaps


def _watch_until(kube: Kube, stop: threading.Event) -> list[str]:
    """The statuses of the group's condition InSync until told to stop."""
    seen: list[str] = []
    while not stop.wait(LOOK_S):
        found = kube.condition("brokergroup", GROUP, "InSync")
        seen.append("missing" if found is None else found["status"])
    return seen
