"""Announced, carried out, proved: a real cluster under load, its changes and its failovers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli_cluster import POLL_S, ROOT, CliCluster, settled
from support.patience import PATIENCE_S

GAP_MAX_MS = 30_000
"""Far above any gap of a machine that works, and far below the age of a record of another story."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    """A group of three."""
    found = CliCluster(tmp_path_factory.mktemp("cluster") / "local")
    try:
        found.gantry("local", "up")
        found.gantry_applies(manifest())
        found.wait_until(settled)
        yield found
    finally:
        found.gantry("local", "down", "--purge")


def manifest(**config: str) -> str:
    body = yaml.safe_load((ROOT / "examples/brokergroup.yaml").read_text("utf-8"))
    body["spec"]["config"] = config
    return yaml.safe_dump(body)


def status(cluster: CliCluster) -> dict[str, Any]:
    text = cluster.shown("local", "get", "bg", "orders", "-o", "json")
    found: dict[str, Any] = json.loads(text)["status"]
    return found


def until(cluster: CliCluster, name: str, *fields: str) -> dict[str, Any]:
    """A part of the status, once it has these fields."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found: dict[str, Any] = status(cluster).get(name, {})
        if found and all(field in found for field in fields):
            return found
        assert time.monotonic() < deadline, f"never {fields}: {found}"
        time.sleep(POLL_S)


@contextmanager
def load(cluster: CliCluster) -> Iterator[None]:
    """Some messages a second, for as long as it takes."""
    command = [sys.executable, "-m", "gantry_cli", "produce", "greetings"]
    process = subprocess.Popen(
        [*command, "--count", "100000", "--rate", "20"],
        env=os.environ | cluster.place,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(3.0)
        yield
    finally:
        process.kill()
        process.wait()


def test_a_failover_is_proved_by_those_who_saw_it(cluster: CliCluster) -> None:
    before = status(cluster)["master"]
    assert "lastFailover" not in status(cluster), "a first election is no failover"
    with load(cluster):
        cluster.gantry("local", "kill", before["pod"])
        told = until(cluster, "lastFailover", "firstWriteAt")
    assert told["epoch"] > before["epoch"]
    assert told["master"] != before["pod"]
    assert told["seen"]
    assert told["lastHeardAt"] <= told["noticedAt"] <= told["electedAt"]
    assert 0 < told["gapMs"] < GAP_MAX_MS
    assert told["lostBytes"] == 0
    cluster.wait_until(settled)
    assert until(cluster, "lastFailover", "gapMs") == told, "it holds still"


def test_a_change_is_announced_carried_out_and_proved(cluster: CliCluster, tmp_path: Path) -> None:
    cluster.wait_until(settled)
    wished = manifest(lock_wait_s="1")
    file = tmp_path / "orders.yaml"
    file.write_text(wished)
    kubeconfig = str(cluster.directory / "kubeconfig")
    plan = ("kube", "plan", "-f", str(file), "--kubeconfig", kubeconfig, "-o", "json")
    found = json.loads(cluster.gantry(*plan))
    announced = [step for step in found["course"]["steps"] if step["disruptive"]]
    assert (found["gapMs"], found["measured"]) == (500, False)
    with load(cluster):
        cluster.gantry_applies(wished)
        told = until(cluster, "lastChange", "finishedAt", "measuredGapMs")
    assert told["kind"] == "RollingUpdate"
    assert told["steps"] == len(announced) == 4
    assert told["predictedGapMs"] == 500
    assert 0 < told["measuredGapMs"] < GAP_MAX_MS
    assert told["lostBytes"] == 0
    assert told["toEpoch"] > told["fromEpoch"]
    file.write_text(manifest())
    again = json.loads(cluster.gantry(*plan))
    assert (again["gapMs"], again["measured"]) == (told["measuredGapMs"], True)


def pods(cluster: CliCluster) -> list[tuple[str, str, int]]:
    """Name, uid and restarts of each pod of the group."""
    found = json.loads(cluster.shown("local", "get", "pods", "-o", "json"))["items"]
    return sorted(
        (
            pod["metadata"]["name"],
            pod["metadata"]["uid"],
            sum(one["restartCount"] for one in pod["status"]["containerStatuses"]),
        )
        for pod in found
        if pod["metadata"]["name"].startswith("orders-broker-")
    )


def test_a_live_setting_is_announced_and_applied_while_running(
    cluster: CliCluster, tmp_path: Path
) -> None:
    """Retention and a setting of spec.config, in brokers whose processes stay."""
    cluster.wait_until(settled)
    body = yaml.safe_load(manifest(**(spec_of(cluster).get("config") or {})))
    body["spec"]["config"]["max_batch_messages"] = "77"
    body["spec"]["retention"] = {"hours": 5}
    file = tmp_path / "live.yaml"
    file.write_text(yaml.safe_dump(body))
    kubeconfig = str(cluster.directory / "kubeconfig")
    said = cluster.gantry("kube", "plan", "-f", str(file), "--kubeconfig", kubeconfig)
    names = "max_batch_messages, retention_hours"
    assert f"Change settings {names}: applied while running, no pod restarts." in said
    before, epoch = pods(cluster), status(cluster)["master"]["epoch"]
    cluster.gantry_applies(file.read_text())

    def is_applied() -> bool:
        change = status(cluster).get("lastChange", {})
        return change.get("kind") == "ApplySettings" and "finishedAt" in change

    cluster.wait_for(is_applied, "all brokers say that they have them")
    assert pods(cluster) == before
    assert status(cluster)["master"]["epoch"] == epoch
    for name, _, _ in before:
        lines = cluster.shown("local", "logs", name).splitlines()
        assert any(f"names={names.replace(' ', '')} " in line for line in lines), name


def spec_of(cluster: CliCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.shown("local", "get", "bg", "orders", "-o", "json"))[
        "spec"
    ]
    return found
