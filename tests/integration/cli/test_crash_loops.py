"""A broker that cannot start says why where people look first: in the group's status."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from gantry_operator import names
from support.cli_cluster import POLL_S, ROOT, CliCluster, settled
from support.patience import PATIENCE_S


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CliCluster]:
    """An empty cluster."""
    found = CliCluster(tmp_path / "local")
    try:
        found.gantry("local", "up")
        yield found
    finally:
        found.gantry("local", "down", "--purge")


def manifest(**config: str) -> str:
    body = yaml.safe_load((ROOT / "examples/brokergroup.yaml").read_text("utf-8"))
    # As of an image of another version, whose settings the operator does not judge.
    body["metadata"]["annotations"] = {names.ANNOTATION_UNCHECKED: "true"}
    # Not an empty one: an API server makes null of a map whose last entry is taken out.
    body["spec"] |= {"replicas": 1} | ({"config": config} if config else {})
    return yaml.safe_dump(body)


def shown(cluster: CliCluster, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.shown("local", "get", kind, name, "-o", "json"))
    return found


def ready(cluster: CliCluster) -> tuple[str, str]:
    conditions = shown(cluster, "bg", "orders").get("status", {}).get("conditions", ())
    (found,) = [one for one in conditions if one["type"] == "Ready"] or [{}]
    return found.get("reason", ""), found.get("message", "")


def restarts(cluster: CliCluster) -> int:
    status = shown(cluster, "pod", "orders-broker-0")["status"]
    return sum(
        one["restartCount"] for one in status["containerStatuses"] if one["name"] == "broker"
    )


def until(check: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline, "never"
        time.sleep(POLL_S)


@pytest.mark.parametrize(
    ("setting", "text"), [("quotas", "nobody:many"), ("delay_levels", "1s soon")]
)
def test_a_setting_that_does_not_parse_is_told_in_the_status(
    cluster: CliCluster, setting: str, text: str
) -> None:
    cluster.gantry_applies(manifest(**{setting: text}))
    until(lambda: ready(cluster)[0] == "PodCrashing")
    reason, message = ready(cluster)
    assert message.startswith("orders-broker-0 ended with code ")
    assert setting in message
    version = shown(cluster, "bg", "orders")["metadata"]["resourceVersion"]
    before = restarts(cluster)
    until(lambda: restarts(cluster) >= before + 2)
    assert ready(cluster) == (reason, message)
    assert shown(cluster, "bg", "orders")["metadata"]["resourceVersion"] == version, "keeps still"
    events = json.loads(cluster.shown("local", "get", "events", "-o", "json"))["items"]
    told = [event for event in events if event["reason"] == "PodCrashing"]
    assert [event["message"] for event in told] == [message]
    cluster.gantry_applies(manifest())
    cluster.wait_until(settled)
    until(lambda: ready(cluster)[0] == "AsWished")
