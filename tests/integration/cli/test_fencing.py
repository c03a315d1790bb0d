"""Fenced under load, and let in again: real brokers, controllers and operator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.session import session
from support.cli_cluster import CliCluster, Group, cluster_with_group, settled

TOPIC = "greetings"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CliCluster]:
    """A group of three."""
    with cluster_with_group(tmp_path / "local") as found:
        yield found


def kube(cluster: CliCluster, *args: str) -> tuple[int, str]:
    """`kubectl gantry ARGS`: its exit code, and all that it says."""
    config = str(cluster.directory / "kubeconfig")
    done = cluster.run("kube", *args, "--kubeconfig", config)
    return done.returncode, done.stdout + done.stderr


def status(cluster: CliCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.object("bg", "orders")["status"]
    return found


def ready(cluster: CliCluster, pod: str) -> bool:
    conditions = cluster.object("pod", pod)["status"]["conditions"]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def fenced_under_load(cluster: CliCluster, ordinal: str) -> tuple[int, str, list[str]]:
    """Fences a replica while somebody sends: its exit code, words, and sends that failed."""
    refused: list[str] = []
    over = asyncio.Event()
    name_servers = await asyncio.to_thread(lambda: cluster.status()["nameServers"])
    async with session(name_servers) as client:
        producer = Producer(client.routes, client.calls, send_timeout_s=60, give_up_after_s=0)

        async def send() -> int:
            count = 0
            while not over.is_set():
                try:
                    await producer.send(producer.message(TOPIC, b"probe"))
                    count += 1
                except SendFailedError as error:
                    refused.append(str(error))
                await asyncio.sleep(0.05)
            return count

        sending = asyncio.create_task(send())
        code, said = await asyncio.to_thread(kube, cluster, "fence", "orders", ordinal, "--wait")
        await asyncio.sleep(1)
        over.set()
        assert await sending > 0
    return code, said, refused


def test_the_master_is_fenced_under_load_and_stays_out(cluster: CliCluster) -> None:
    cluster.gantry("topics", "create", TOPIC)
    fenced = cluster.master_pod()
    ordinal = fenced.rpartition("-")[2]
    code, said, refused = asyncio.run(fenced_under_load(cluster, ordinal))
    assert code == 0, said
    assert f"Move the mastership from {fenced}" in said
    assert f"Fenced in BrokerGroup default/orders: replica {ordinal}." in said
    assert not refused, refused[0]
    cluster.wait_for(lambda: not ready(cluster, fenced), "its pod is not Ready")
    assert status(cluster)["summary"] == "Healthy (Fenced)"
    out = cluster.wait_until(_has_one_fenced)
    assert len(out["syncStateSet"]) == 2

    cluster.gantry("local", "kill", fenced)  # its process; the kubelet starts it again
    cluster.wait_for(lambda: _restarts(cluster, fenced) > 0, "it is started again")
    again = cluster.wait_until(_has_one_fenced)
    assert again["syncStateSet"] == out["syncStateSet"]
    assert again["masterEpoch"] == out["masterEpoch"], "nobody was elected for it"

    others = [one for one in range(3) if str(one) != ordinal]
    code, said = kube(cluster, "fence", "orders", str(others[0]), "--wait")
    assert code == 1
    assert "minInSyncReplicas is 2" in said
    code, said = kube(cluster, "unfence", "orders", str(others[0]), ordinal, "--wait")
    assert code == 0, said
    cluster.wait_until(settled)
    cluster.wait_for(lambda: ready(cluster, fenced), "its pod is Ready again")
    code, said = kube(cluster, "forget", "orders", "1")
    assert code != 0
    assert "only a member that is gone can be forgotten" in said


def _has_one_fenced(group: Group) -> bool:
    fenced = [one for one in group["members"] if one["fenced"]]
    return len(fenced) == 1 and fenced[0]["alive"] and not fenced[0]["inSync"]


def _restarts(cluster: CliCluster, pod: str) -> int:
    containers = cluster.object("pod", pod)["status"]["containerStatuses"]
    return max(int(one["restartCount"]) for one in containers)
