"""Masters and controllers that go, with the operator there, away, or going at the same moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import faults, operators
from harness.kube import Kube
from harness.trial import WRITES, Figure, Trial

pytestmark = pytest.mark.usefixtures("operator")

KILLED = Figure(limit_ms=1500)
DELETED = Figure(limit_ms=700)
METADATA = Figure("gap in metadata commits", "commits")


@pytest.fixture
def no_operator(kube: Kube) -> Iterator[None]:
    operators.scale(kube, 0)
    yield
    operators.scale(kube, 2)


def test_master_process_killed(trial: Trial) -> None:
    trial.measure(
        "Master's process SIGKILLed", faults.kill_master_process, runs=5, figures=[KILLED]
    )


@pytest.mark.usefixtures("no_operator")
def test_master_process_killed_without_an_operator(trial: Trial) -> None:
    trial.measure(
        "Master's process SIGKILLed, operator scaled to zero",
        faults.kill_master_process,
        runs=5,
        figures=[KILLED],
    )


def test_master_process_killed_together_with_the_operator(trial: Trial) -> None:
    trial.measure(
        "Master's process and leading operator SIGKILLed",
        faults.with_operator_killed(faults.kill_master_process),
        runs=3,
        figures=[KILLED],
    )


def test_master_pod_deleted(trial: Trial) -> None:
    trial.measure(
        "Master's pod deleted gracefully", faults.delete_master_pod, runs=5, figures=[DELETED]
    )


def test_master_pod_deleted_while_the_operator_restarts(trial: Trial) -> None:
    trial.measure(
        "Master's pod deleted gracefully while all operators are replaced",
        faults.with_operator_restarted(faults.delete_master_pod),
        runs=3,
        figures=[DELETED],
    )


def test_master_pod_deleted_by_force(trial: Trial) -> None:
    trial.measure(
        "Master's pod deleted by force", faults.force_delete_master_pod, runs=5, figures=[KILLED]
    )


def test_master_pod_deleted_by_force_together_with_the_operator(trial: Trial) -> None:
    trial.measure(
        "Master's pod deleted by force, leading operator SIGKILLed",
        faults.with_operator_killed(faults.force_delete_master_pod),
        runs=2,
        figures=[KILLED],
    )


def test_controller_leader_killed(trial: Trial) -> None:
    trial.measure(
        "Controllers' leader SIGKILLed",
        faults.kill_controller_leader,
        runs=5,
        figures=[WRITES, METADATA],
    )


def test_controller_leader_killed_while_the_operator_restarts(trial: Trial) -> None:
    trial.measure(
        "Controllers' leader SIGKILLed while all operators are replaced",
        faults.with_operator_restarted(faults.kill_controller_leader),
        runs=2,
        figures=[WRITES, METADATA],
    )


def test_whole_quorum_deleted(trial: Trial) -> None:
    trial.measure(
        "All controllers deleted by force at once",
        faults.delete_all_controllers,
        runs=2,
        figures=[WRITES, METADATA],
    )


def test_whole_quorum_deleted_together_with_the_operator(trial: Trial) -> None:
    trial.measure(
        "All controllers deleted by force, leading operator SIGKILLed",
        faults.with_operator_killed(faults.delete_all_controllers),
        runs=1,
        figures=[WRITES, METADATA],
    )
