"""Failover needs no DNS: it is away while a controller and the master are killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import faults
from harness.kube import Kube
from harness.trial import Figure, Trial
from harness.waiting import wait_until

pytestmark = pytest.mark.usefixtures("operator")

DNS = "coredns"
SELECTOR = "k8s-app=kube-dns"
PATIENCE_S = 180.0  # also on a busy machine
METADATA = Figure("gap in metadata commits", "commits")


@pytest.fixture
def dns(kube: Kube) -> Iterator[Kube]:
    """The namespace in which DNS runs; it runs again afterwards."""
    found = kube.within("kube-system")
    yield found
    _serve(found)


def test_leader_and_master_killed_while_dns_is_away(trial: Trial, dns: Kube) -> None:
    """Whoever lost a connection finds the controllers where they were when DNS last answered."""
    replicas = len(_pods(dns))

    def fault(trial: Trial) -> float:
        dns.ctl("scale", "deployment", DNS, "--replicas=0")
        wait_until("DNS is away", PATIENCE_S, lambda: not _pods(dns))
        faults.kill_controller_leader(trial)
        return faults.kill_master_process(trial)

    trial.measure(
        "DNS away, then the controllers' leader and the master's process SIGKILLed",
        fault,
        runs=2,
        figures=[Figure(limit_ms=4000), METADATA],
        heal=lambda _: _serve(dns, replicas),
    )


def _serve(dns: Kube, replicas: int = 2) -> None:
    dns.ctl("scale", "deployment", DNS, f"--replicas={replicas}")
    timeout = f"--timeout={PATIENCE_S:.0f}s"
    dns.ctl("rollout", "status", "deployment", DNS, timeout, timeout_s=PATIENCE_S + 5)


def _pods(dns: Kube) -> list[dict[str, object]]:
    return dns.list("pods", SELECTOR)
