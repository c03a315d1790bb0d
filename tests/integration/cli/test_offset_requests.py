"""A ConsumerGroup's request to reset offsets, at a whole local cluster in which access is on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli_cluster import CliCluster, cluster_with_group, settled

TOPIC, MESSAGES = "greetings", 20
SECRET = "a-secret-of-root"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliCluster]:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    with cluster_with_group(tmp_path / "local") as made:
        made.gantry("topics", "create", TOPIC, "--queues", "4")
        made.gantry("users", "create", "root", "--type", "super", "--secret-file", str(secret))
        made.gantry("access", "enable", "--yes")
        made.place |= {"GANTRY_ACCESS_KEY": "root", "GANTRY_SECRET_KEY_FILE": str(secret)}
        yield made


def apply(cluster: CliCluster, **spec: Any) -> None:
    body = {
        "apiVersion": "mq.gantry.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": "billing"},
        "spec": spec,
    }
    cluster.gantry_applies(json.dumps(body))


def lag(cluster: CliCluster) -> int:
    shown = cluster.shown("offsets", "show", "billing", "--topic", TOPIC, "--json")
    return sum(queue["lag"] for queue in json.loads(shown))


def condition(cluster: CliCluster, name: str) -> bool:
    body = cluster.object("consumergroup", "billing")
    found = {one["type"]: one for one in body.get("status", {}).get("conditions", ())}
    return (
        name in found
        and found[name]["status"] == "True"
        and found[name]["observedGeneration"] == body["metadata"]["generation"]
    )


def test_a_request_is_carried_out_once_whatever_dies_and_is_forgotten(cluster: CliCluster) -> None:
    cluster.gantry("produce", TOPIC, "--count", str(MESSAGES))
    reset = {"request": 1, "to": "Earliest", "topics": [TOPIC]}
    apply(cluster)
    cluster.wait_for(lambda: condition(cluster, "Ready"), "the settings are there")
    skip = ("offsets", "reset", "billing", TOPIC, "--to", "latest", "--yes")
    # Ready means that the controllers have the settings; brokers read them a moment later.
    cluster.wait_for(lambda: cluster.asked(*skip) is not None, "brokers know the group")
    assert lag(cluster) == 0
    apply(cluster, resetOffsets=reset)
    cluster.wait_for(lambda: condition(cluster, "OffsetsReset"), "it is carried out")
    assert lag(cluster) == MESSAGES
    assert cluster.object("consumergroup", "billing")["status"]["offsetReset"]["queues"] == 4
    cluster.gantry(*skip)
    epoch = cluster.wait_until(settled)["masterEpoch"]
    cluster.gantry("local", "kill", cluster.master_pod())
    cluster.wait_until(lambda group: settled(group) and group["masterEpoch"] > epoch)
    cluster.gantry("local", "delete", "consumergroup", "billing")
    apply(cluster, resetOffsets=reset)
    cluster.wait_for(lambda: condition(cluster, "OffsetsReset"), "it was carried out before")
    assert lag(cluster) == 0
    apply(cluster, resetOffsets=reset | {"request": 2})
    cluster.wait_for(lambda: condition(cluster, "OffsetsReset"), "the next one is carried out")
    assert lag(cluster) == MESSAGES
