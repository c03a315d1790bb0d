"""A BrokerGroup with shards on a real cluster: killed, rolled, given more shards, and fewer.

A cluster of its own, whose load is the soak's, one client on each worker. It watches the first
shard; what is said of all of them is the resource's status.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from gantry_operator import names
from harness import client, faults, soak
from harness.installation import CONTROLLERS, LAB_IMAGE, new_namespace
from harness.trial import Figure, Trial
from harness.waiting import wait_until
from harness.wishes import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kube import Kube, Object
    from harness.report import Report

NAME = "payments"
SHARDS = 4
TOPIC = "shards"
SIZE = {"size": "200Mi"}
SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}}  # beside the group that all tests share
PATIENCE_S = 240.0
DRAIN_PATIENCE_S = 300.0
KILL_LIMIT_MS, ROLL_LIMIT_MS = 3000.0, 2000.0


@pytest.fixture(scope="module")
def sharded(kube: Kube, image: str, workers: list[str], report: Report) -> Iterator[Trial]:
    """The resource, Ready, under load."""
    found = new_namespace(kube)
    try:
        found.apply(
            manifest("ControllerGroup", CONTROLLERS, image=image, storage=SIZE, resources=SMALL),
            manifest("BrokerGroup", NAME, shards=SHARDS, storage=SIZE, resources=SMALL),
        )
        settle(found, SHARDS)
        group = names.shard(NAME, 0)
        soaks = soak.start_on(workers, found, image=LAB_IMAGE, controllers=CONTROLLERS, group=group)
        yield Trial(found, NAME, CONTROLLERS, soaks, report)
    finally:
        found.delete("namespace", found.namespace)


def test_clients_are_led_to_a_port_for_each_shard(sharded: Trial) -> None:
    assert client.addresses(sharded.kube, sharded.soaks[0].name) == service(sharded.kube, SHARDS)
    status = status_of(sharded.kube)
    masters = {one["pod"]: one["masters"] for one in status["shards"]["masters"]}
    assert sum(masters.values()) == SHARDS
    assert len(masters) == 3


def test_a_process_that_leads_shards_is_killed(sharded: Trial) -> None:
    def kill(trial: Trial) -> float:
        settle(trial.kube, SHARDS)
        return faults.kill_master_process(trial)

    figures = [Figure(limit_ms=KILL_LIMIT_MS)]
    sharded.measure("Master of shards SIGKILLed", kill, runs=3, figures=figures)
    settle(sharded.kube, SHARDS)


def test_pods_with_shards_are_rolled(sharded: Trial) -> None:
    def roll(trial: Trial) -> float:
        before = uids(trial)
        began_s = time.monotonic()
        wish = {"spec": {"template": {"metadata": {"annotations": {"roll": "once"}}}}}
        trial.kube.patch("brokergroup", NAME, wish)
        wait_until("all pods are replaced", PATIENCE_S, lambda: before.isdisjoint(uids(trial)))
        settle(trial.kube, SHARDS)
        return began_s

    figures = [Figure(limit_ms=ROLL_LIMIT_MS)]
    sharded.measure("Pods with shards rolled", roll, runs=1, figures=figures)


def test_shards_are_added(sharded: Trial) -> None:
    topic = sharded.soaks[0].name

    def add(trial: Trial) -> float:
        began_s = time.monotonic()
        trial.kube.patch("brokergroup", NAME, {"spec": {"shards": SHARDS + 2}})
        settle(trial.kube, SHARDS + 2)
        wait_until(
            "clients are led to the new ones",
            PATIENCE_S,
            lambda: client.addresses(trial.kube, topic) == service(trial.kube, SHARDS + 2),
        )
        return began_s

    figures = [Figure(limit_ms=ROLL_LIMIT_MS)]
    sharded.measure("Shards added", add, runs=1, figures=figures)


def test_shards_leave_once_they_are_read(sharded: Trial) -> None:
    """After the account of the last test: the load is quiet, and has consumed everything."""
    kube = sharded.kube
    kube.patch("brokergroup", NAME, {"spec": {"shards": 2}})
    wait_until("a drain is told", PATIENCE_S, lambda: status_of(kube).get("drain"))
    settle(kube, 2, DRAIN_PATIENCE_S)
    bodies = [f"after {number}" for number in range(20)]
    client.produce(kube, TOPIC, bodies)
    assert client.consume(kube, TOPIC) == sorted(bodies)
    assert client.addresses(kube, TOPIC) == service(kube, 2)


def settle(kube: Kube, count: int, patience_s: float = PATIENCE_S) -> None:
    """Wait until the resource is as its present spec wishes, with so many shards."""

    def is_ready() -> bool:
        shards = status_of(kube).get("shards") or {}
        return shards.get("ready") == f"{count}/{count}" and shards.get("count") == count

    wait_until(f"{count} shards are ready", patience_s, is_ready)
    kube.wait_for("brokergroup", NAME, "Ready", patience_s)


def status_of(kube: Kube) -> Object:
    found: Object = (kube.get("brokergroup", NAME) or {}).get("status") or {}
    return found


def service(kube: Kube, count: int) -> set[str]:
    """The address of each shard."""
    found = kube.get("service", NAME)
    assert found is not None
    host = found["spec"]["clusterIP"]
    return {f"{host}:{names.FIRST_SHARD_PORT + index}" for index in range(count)}


def uids(trial: Trial) -> set[str]:
    return {pod["metadata"]["uid"] for pod in trial.brokers()}
