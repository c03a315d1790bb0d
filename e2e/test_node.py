"""A whole node stops, with the master on it, and goes on later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from gantry_operator import names
from harness import installation, operators, placement, soak
from harness.kube import Kube
from harness.node import freeze, thaw
from harness.report import Report
from harness.trial import Figure, Trial
from harness.waiting import wait_until

NAMESPACE = "gantry-nodes"
CONTROLLERS, GROUP = "quorum", "payments"
READY_PATIENCE_S = 90.0
SWITCH_PATIENCE_S = 30.0
DRAIN_PATIENCE_S = 60
DRAINED_MS = 2000  # both the master and, perhaps, the leader of the quorum leave at once
THEIRS = f"{names.LABEL_INSTANCE} in ({CONTROLLERS},{GROUP})"


@pytest.fixture(scope="module")
def split(kube: Kube, workers: list[str], report: Report, operator: None) -> Iterator[Trial]:
    """Two brokers and two controllers on the first worker, one of each on the other."""
    within = kube.within(NAMESPACE)
    within.create_namespace()
    within.apply(*placement.two_and_one(CONTROLLERS, GROUP, two=workers[0]))
    within.wait_for("brokergroup", GROUP, "Available", READY_PATIENCE_S)
    placement.check(within, CONTROLLERS, GROUP, two=workers[0])
    soaks = soak.start_on(
        workers, within, image=installation.LAB_IMAGE, controllers=CONTROLLERS, group=GROUP
    )
    yield Trial(within, GROUP, CONTROLLERS, soaks, report)
    within.delete("namespace", NAMESPACE)


@pytest.fixture(scope="module")
def lead_alone(workers: list[str]) -> Callable[[Trial], str]:
    """Have the replica that is alone lead the group, and the operator lead there; its node.

    That is the worst node to lose: it takes both along with it.
    """
    request = count(1)

    def prepare(trial: Trial) -> str:
        alone = workers[1]
        pod = next(pod for pod in trial.brokers() if pod["spec"]["nodeName"] == alone)
        if trial.master()["metadata"]["uid"] != pod["metadata"]["uid"]:
            to = names.ordinal(pod["metadata"]["name"])
            assert to is not None
            placement.switch_over(trial.kube, GROUP, to=to, request=f"e2e-{next(request)}")
            wait_until(
                "the lonely replica is master",
                SWITCH_PATIENCE_S,
                lambda: trial.master()["metadata"]["uid"] == pod["metadata"]["uid"],
            )
            trial.settle()
        operators.lead_from(trial.kube, alone)
        return alone

    return prepare


def test_node_of_the_master_paused(
    split: Trial, workers: list[str], lead_alone: Callable[[Trial], str]
) -> None:
    """Continued, the old master still has a client of its own epoch: it must accept nothing of it.

    The client on the frozen node goes on together with the broker and sends over the connection it
    had; whatever the old master acknowledged then would be missing in the account.
    """
    split.measure(
        "Node of the master and of the leading operator paused, later continued",
        lambda trial: freeze(lead_alone(trial)),
        runs=10,
        figures=[Figure(limit_ms=4000)],
        heal=lambda _: thaw(workers[1]),
    )


def test_node_of_the_master_drained(
    split: Trial, workers: list[str], lead_alone: Callable[[Trial], str]
) -> None:
    """What leaves is the group's and its quorum's: others have a majority of theirs there."""

    def drain(trial: Trial) -> float:
        alone = lead_alone(trial)
        struck_s = time.monotonic()
        trial.kube.ctl(
            *("drain", alone, "--ignore-daemonsets", "--delete-emptydir-data"),
            *(f"--pod-selector={THEIRS}", f"--timeout={DRAIN_PATIENCE_S}s"),
            timeout_s=DRAIN_PATIENCE_S + 5,
        )
        return struck_s

    split.measure(
        "Node of the master drained, later let in again",
        drain,
        runs=5,
        figures=[Figure(limit_ms=DRAINED_MS)],
        heal=lambda trial: _let_in(trial, workers[1]),
    )


def _let_in(trial: Trial, node: str) -> None:
    trial.kube.ctl("uncordon", node)
