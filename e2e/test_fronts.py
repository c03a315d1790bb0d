"""Fronts on a real cluster: clients are led there, go on while fronts and a master end, and back.

A cluster of its own, whose brokers have their store ports from the start. Its clients are the
soak's, one on each worker, and an unmodified Java producer with its defaults.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from gantry_operator import names
from harness import client, faults, java, soak
from harness.installation import CONTROLLERS, GROUP, LAB_IMAGE, new_namespace
from harness.node import on_node, process_of, signal
from harness.report import Account
from harness.trial import RESUME_PATIENCE_S, Figure, Trial
from harness.waiting import wait_until
from harness.wishes import manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.java import JavaClient
    from harness.java_log import Refusal
    from harness.kube import Kube, Object
    from harness.report import Report

FRONTS = "clients"
DEPLOYMENT = names.front_deployment(FRONTS)
NAMESERVER = f"{names.nameserver_service(CONTROLLERS)}:{names.NAMESERVER_PORT}"
AUTOSCALING = {"enabled": True, "minReplicas": 2, "maxReplicas": 4}
TOPIC, PAUSE_MS = "java-fronts", 10
SIZE = {"size": "100Mi"}
SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}}  # beside the group that all tests share
PATIENCE_S = 240.0
FRONT_LIMIT_MS, MASTER_LIMIT_MS = 500.0, 1000.0
KILLED = "A front SIGKILLed"
LED_ON_MS = 3000.0  # nodes lead to a front that was killed until its kubelet has seen that
NOBODY = "RemotingConnectException"


class Split:
    """A group behind two fronts, with clients.

    Args:
        trial: the soak's.
        producer: Java's.
    """

    def __init__(self, trial: Trial, producer: JavaClient) -> None:
        self.kube = trial.kube
        self.trial = trial
        self.producer = producer
        self._struck_ms: list[tuple[str, float, float]] = []

    def measure(
        self, scenario: str, fault: Callable[[Trial], float], *, runs: int, limit_ms: float
    ) -> None:
        """As a trial does, and the Java producer goes on."""

        def noted(trial: Trial) -> float:
            struck_s = fault(trial)
            self._struck_ms.append((scenario, struck_s * 1000, limit_ms))
            wait_until(
                "the Java producer goes on",
                RESUME_PATIENCE_S,
                lambda: self.producer.flows(struck_s * 1000 + java.QUIET_MS),
            )
            return struck_s

        self.trial.measure(scenario, noted, runs=runs, figures=[Figure(limit_ms=limit_ms)])

    def account(self, consume: Callable[[int], set[str]]) -> None:
        """End the producer; what it saw is reported, and all that it was promised must be there."""
        sent = self.producer.stop()
        received = consume(len(sent.acks))
        lost = sent.acknowledged() - received
        by_scenario: dict[str, list[float]] = {}
        limits: dict[str, float] = {}
        for scenario, at_ms, limit_ms in self._struck_ms:
            by_scenario.setdefault(scenario, []).append(java.gap_ms(sent, at_ms))
            limits[scenario] = limit_ms
        account = Account(len(sent.acks), len(lost))
        for scenario, gaps in by_scenario.items():
            name = f"{scenario}, default Java producer"
            self.trial.report.add(name, "write gap", gaps, limit=limits[scenario], account=account)
            account = Account()
        assert not lost, sorted(lost)[:5]
        assert [nack for nack in sent.nacks if not self._met_a_killed_front(nack)] == []

    def _met_a_killed_front(self, refusal: Refusal) -> bool:
        """Whether its three tries, all at once, may have been led to a front that was killed."""
        struck = [at_ms for scenario, at_ms, _ in self._struck_ms if scenario == KILLED]
        soon = any(0 <= refusal.at_ms - at_ms <= LED_ON_MS for at_ms in struck)
        return soon and NOBODY in refusal.reason


@pytest.fixture(scope="module")
def split(
    kube: Kube, image: str, java_image: str, workers: list[str], report: Report
) -> Iterator[Split]:
    """See ``Split``."""
    found = new_namespace(kube)
    try:
        found.apply(
            manifest("ControllerGroup", CONTROLLERS, image=image, storage=SIZE, resources=SMALL),
            manifest("BrokerGroup", GROUP, storage=SIZE, resources=SMALL),
            manifest("FrontGroup", FRONTS, autoscaling=AUTOSCALING, resources=SMALL),
        )
        found.wait_for("brokergroup", GROUP, "FullyReplicated", PATIENCE_S)
        found.wait_for("frontgroup", FRONTS, "Ready", PATIENCE_S)
        wait_until(
            "the autoscaler's two fronts answer sends", PATIENCE_S, lambda: all_serve(found, 2)
        )
        pod = java.producer_pod("java-producer", java_image, NAMESERVER, TOPIC, PAUSE_MS)
        producer = java.start(found, pod)
        soaks = soak.start_on(workers, found, image=LAB_IMAGE, controllers=CONTROLLERS, group=GROUP)
        wait_until("the Java producer sends", PATIENCE_S, producer.flows)
        yield Split(Trial(found, GROUP, CONTROLLERS, soaks, report), producer)
    finally:
        found.delete("namespace", found.namespace)


def test_clients_are_led_to_the_fronts(split: Split) -> None:
    front = f"{cluster_ip(split.kube, DEPLOYMENT)}:{names.FIRST_FRONT_PORT}"
    assert client.addresses(split.kube, TOPIC) == {front}
    before = served(split.kube)
    wait_until("clients are served there", PATIENCE_S, lambda: served(split.kube) > before)


def test_fronts_are_rolled(split: Split) -> None:
    def roll(trial: Trial) -> float:
        began_s = time.monotonic()
        before = {pod["metadata"]["uid"] for pod in fronts(trial.kube)}
        wish = {"spec": {"template": {"metadata": {"annotations": {"roll": "once"}}}}}
        trial.kube.patch("frontgroup", FRONTS, wish)
        wait_until(
            "all fronts are replaced",
            PATIENCE_S,
            lambda: before.isdisjoint(pod["metadata"]["uid"] for pod in fronts(trial.kube)),
        )
        return began_s

    split.measure("Fronts rolled", roll, runs=1, limit_ms=FRONT_LIMIT_MS)


def test_a_front_is_deleted(split: Split) -> None:
    def delete(trial: Trial) -> float:
        name = busiest(trial.kube)["metadata"]["name"]
        struck_s = time.monotonic()
        trial.kube.delete("pod", name)
        return struck_s

    split.measure("A front deleted", delete, runs=2, limit_ms=FRONT_LIMIT_MS)


def test_a_front_is_killed(split: Split) -> None:
    def kill(trial: Trial) -> float:
        process = process_of(busiest(trial.kube))
        struck_s = time.monotonic()
        signal(process, "KILL")
        return struck_s

    split.measure(KILLED, kill, runs=2, limit_ms=FRONT_LIMIT_MS)


def test_the_master_behind_fronts_is_killed(split: Split) -> None:
    kill = faults.kill_master_process
    split.measure("Master behind fronts SIGKILLed", kill, runs=2, limit_ms=MASTER_LIMIT_MS)


def test_clients_are_led_back_before_the_fronts_go(split: Split, java_image: str) -> None:
    def delete(trial: Trial) -> float:
        began_s = time.monotonic()
        trial.kube.delete("frontgroup", FRONTS)
        wait_until("the fronts are gone", PATIENCE_S, lambda: not fronts(trial.kube))
        return began_s

    def consume(count: int) -> set[str]:
        pod = java.consumer_pod("java-consumer", java_image, NAMESERVER, TOPIC, count)
        return java.start(split.kube, pod).ended(PATIENCE_S).consumed()

    split.measure("FrontGroup deleted", delete, runs=1, limit_ms=FRONT_LIMIT_MS)
    led = {address.rpartition(":")[0] for address in client.addresses(split.kube, TOPIC)}
    assert led == {cluster_ip(split.kube, GROUP)}
    split.account(consume)


def cluster_ip(kube: Kube, service: str) -> str:
    found = kube.get("service", service)
    assert found is not None
    return str(found["spec"]["clusterIP"])


def fronts(kube: Kube) -> list[Object]:
    """The pods that are not about to end."""
    pods = kube.list("pods", names.selector_text(names.FRONT, FRONTS))
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def groups(pod: Object) -> list[dict[str, Any]]:
    """The groups of a front's status document; none while it does not answer."""
    address, node = pod["status"].get("podIP"), pod["spec"].get("nodeName")
    if not address or not node:
        return []
    url = f"http://{address}:{names.FRONT_HTTP_PORT}/status"
    said = on_node(node, "sh", "-c", f"curl -sS -m 2 {url} || true")
    found: list[dict[str, Any]] = json.loads(said)["groups"] if said else []
    return found


def served(kube: Kube) -> int:
    """Sends and pulls that fronts have answered."""
    return sum(group["served"] for pod in fronts(kube) for group in groups(pod))


def busiest(kube: Kube) -> Object:
    """The front with most connections of clients."""
    return max(fronts(kube), key=lambda pod: sum(one["connections"] for one in groups(pod)))


def all_serve(kube: Kube, count: int) -> bool:
    """Whether there are so many fronts, and each has the store of the group's master open."""
    found = [groups(pod) for pod in fronts(kube)]
    return len(found) == count and all(
        of_pod and all(group["storeAddress"] for group in of_pod) for of_pod in found
    )
