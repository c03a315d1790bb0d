"""The operator's replicas: one leads, the other follows it, and a frozen leader does no harm."""

from __future__ import annotations

import time

import pytest
from gantry_operator import names
from harness import faults, operators
from harness.kube import Kube
from harness.node import process_of, signal
from harness.report import Report
from harness.trial import Trial
from harness.waiting import wait_until

pytestmark = pytest.mark.usefixtures("operator")

LEASE_LIMIT_S = 17.0  # 15 s until the Lease is stale, and one look every 2 s
LEASE_PATIENCE_S = 60.0
LABEL_PATIENCE_S = 30.0


def test_killed_leader_is_followed(kube: Kube, report: Report) -> None:
    before = operators.holder(kube)
    process = process_of(operators.leader(kube))
    began_s = time.monotonic()
    signal(process, "KILL")
    wait_until("the Lease has a new holder", LEASE_PATIENCE_S, lambda: _taken(kube, before))
    report.add(
        "Leading operator SIGKILLed",
        "Lease take-over",
        [time.monotonic() - began_s],
        unit="s",
        limit=LEASE_LIMIT_S,
    )


def test_frozen_leader_is_followed_and_ends_when_it_goes_on(
    kube: Kube, trial: Trial, report: Report
) -> None:
    before = operators.holder(kube)
    pod = operators.leader(kube)
    process = process_of(pod)
    began_s = time.monotonic()
    signal(process, "STOP")
    try:
        wait_until("the Lease has a new holder", LEASE_PATIENCE_S, lambda: _taken(kube, before))
        took_s = time.monotonic() - began_s
        old_master = trial.master()["metadata"]["uid"]
        faults.kill_master_process(trial)
        wait_until(
            "the new leader moves the role label",
            LABEL_PATIENCE_S,
            lambda: _labelled_master(trial) not in ("", old_master),
        )
    finally:
        signal(process, "CONT")
    wait_until(
        "the replica that lost the Lease ends and starts anew",
        LEASE_PATIENCE_S,
        lambda: _restarts(kube, pod["metadata"]["name"]) > 0,
    )
    assert _labelled_master(trial) == trial.master()["metadata"]["uid"]
    trial.settle()
    report.add(
        "Leading operator frozen (SIGSTOP), then the master killed",
        "Lease take-over",
        [took_s],
        unit="s",
        limit=LEASE_LIMIT_S,
        account=trial.account(),
    )


def _taken(kube: Kube, before: str) -> bool:
    return operators.holder(kube) not in ("", before)


def _labelled_master(trial: Trial) -> str:
    labelled = [
        pod["metadata"]["uid"]
        for pod in trial.brokers()
        if pod["metadata"]["labels"].get(names.LABEL_ROLE) == names.ROLE_MASTER
    ]
    return labelled[0] if len(labelled) == 1 else ""


def _restarts(kube: Kube, name: str) -> int:
    pod = kube.get("pod", name) or {"status": {}}
    statuses = pod["status"].get("containerStatuses", ())
    return sum(status["restartCount"] for status in statuses)
