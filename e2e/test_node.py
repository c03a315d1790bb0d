"""A whole node stops, with the master on it, and goes on later."""

from __future__ import annotations

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
def freeze_master(workers: list[str]) -> Callable[[Trial], float]:
    """Freeze the node of the replica that is alone, once it is master and the operator leads there.

    That is the worst node to lose: it takes both along with it.
    """
    request = count(1)

    def fault(trial: Trial) -> float:
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
        return freeze(alone)

    return fault


def test_node_of_the_master_paused(
    split: Trial, workers: list[str], freeze_master: Callable[[Trial], float]
) -> None:
    """Continued, the old master still has a client of its own epoch: it must accept nothing of it.

    The client on the frozen node goes on together with the broker and sends over the connection it
    had; whatever the old master acknowledged then would be missing in the account.
    """
    split.measure(
        "Node of the master and of the leading operator paused, later continued",
        freeze_master,
        runs=5,
        figures=[Figure(limit_ms=4000)],
        heal=lambda _: thaw(workers[1]),
    )
