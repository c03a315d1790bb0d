"""The operator and real processes under Kubernetes' own API server: from the first send to the end.

The tests are one story and run in their order.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from gantry_local.client import Client
from gantry_local.kubelet import identity
from gantry_local.state import StateDir
from support.cli_cluster import GROUP, ROOT, CliCluster, settled

TOPIC = "t"
EXAMPLE = (ROOT / "examples/brokergroup.yaml").read_text("utf-8")
GROWN = EXAMPLE.replace("20Gi", "21Gi")
"""The example's group on more space, which no volume gives back."""


@pytest.fixture(scope="module")
def group(real: CliCluster) -> CliCluster:
    """The example's group, all in sync."""
    real.gantry_applies(EXAMPLE)
    real.wait_until(settled)
    return real


def consumed(cluster: CliCluster) -> set[str]:
    args = ("consume", TOPIC, "--group", "reader", "--from", "earliest", "--idle", "3")
    return set(cluster.gantry(*args).splitlines())


def pods(cluster: CliCluster) -> dict[str, Any]:
    found = cluster.object("pods")["items"]
    return {pod["metadata"]["name"]: pod for pod in found}


def of_the_group(cluster: CliCluster) -> set[str]:
    return {name for name in pods(cluster) if name.startswith(GROUP)}


async def delete(cluster: CliCluster, propagation: str) -> None:
    async with Client.from_kubeconfig(cluster.directory / "kubeconfig") as api:
        resource = await api.resource("brokergroups")
        await api.delete(resource, GROUP, "default", propagation=propagation)


def test_its_api_server_is_kubernetes_own(group: CliCluster) -> None:
    async def version() -> dict[str, str]:
        async with Client.from_kubeconfig(group.directory / "kubeconfig") as api:
            found: dict[str, str] = await api.request("GET", "/version")
            return found

    said = asyncio.run(version())
    assert said["compiler"] == "gc"
    sets = group.object("statefulsets")["items"]
    assert all(one["status"]["currentRevision"] for one in sets)
    claims = group.object("persistentvolumeclaims")["items"]
    assert {claim["status"]["phase"] for claim in claims} == {"Bound"}


def test_its_secrets_are_its_owners(group: CliCluster) -> None:
    directory = StateDir(group.directory).real
    assert directory.stat().st_mode & 0o777 == 0o700
    for name in ("signing-key.pem", "tokens.csv"):
        assert (directory / name).stat().st_mode & 0o077 == 0


def test_the_api_server_gets_logs_from_the_kubelet(group: CliCluster) -> None:
    _, replicas = group.broker_pods()
    assert "broker" in group.gantry("local", "logs", replicas[0], "-c", "broker", "--tail", "5")


def test_a_killed_master_is_followed_by_another(group: CliCluster) -> None:
    group.gantry("produce", TOPIC, "--count", "20", "--body", "before")
    before = group.wait_until(settled)
    master = group.master_pod()
    group.gantry("local", "kill", master)
    group.gantry("produce", TOPIC, "--count", "20", "--body", "after")
    after = group.wait_until(
        lambda one: settled(one) and one["masterEpoch"] > before["masterEpoch"]
    )
    assert after["masterBrokerId"] != before["masterBrokerId"]
    group.wait_for(
        lambda: (
            sum(s["restartCount"] for s in pods(group)[master]["status"]["containerStatuses"]) == 1
        ),
        "the kubelet's restart is in the pod's status",
    )


def test_a_volume_grows_under_its_pod(group: CliCluster) -> None:
    before = pods(group)
    group.gantry_applies(GROWN)

    def has_grown() -> bool:
        claims = [c for c in group.object("pvc")["items"] if GROUP in c["metadata"]["name"]]
        return {c["status"]["capacity"]["storage"] for c in claims} == {"21Gi"}

    group.wait_for(has_grown, "the claims have what they ask for")
    group.wait_until(settled)
    assert {n: p["metadata"]["uid"] for n, p in pods(group).items()} == {
        n: p["metadata"]["uid"] for n, p in before.items()
    }


def test_a_deleted_pod_comes_back_with_its_volume(group: CliCluster) -> None:
    _, replicas = group.broker_pods()
    before = pods(group)[replicas[0]]["metadata"]["uid"]
    group.gantry("local", "delete", "pod", replicas[0])
    group.wait_for(
        lambda: (
            pods(group).get(replicas[0], {"metadata": {"uid": before}})["metadata"]["uid"] != before
        ),
        "another pod of its name",
    )
    group.wait_until(settled)


def nothing_was_refused(cluster: CliCluster) -> bool:
    """Whether the server took all that the kubelet has said since the daemon's start."""
    log = StateDir(cluster.directory).daemon_log.read_text("utf-8")
    return "the API server refuses" not in log


def test_all_is_there_after_a_restart_of_the_cluster(group: CliCluster) -> None:
    assert nothing_was_refused(group)
    port = StateDir(group.directory).open().port
    group.gantry("local", "down")
    group.gantry("local", "up")
    assert StateDir(group.directory).open() == StateDir(group.directory).open("real")
    assert StateDir(group.directory).open().port == port
    group.wait_until(settled)
    assert consumed(group) == {"before", "after"}


def test_a_group_whose_pods_are_kept_goes_on(group: CliCluster) -> None:
    """As by `kubectl delete --cascade=orphan`."""
    ids = {name: pod["metadata"]["uid"] for name, pod in pods(group).items()}
    asyncio.run(delete(group, "Orphan"))
    group.wait_for(lambda: group.object("brokergroups", GROUP) is None, "the resource is gone")
    group.gantry("produce", TOPIC, "--count", "5", "--body", "orphaned")
    kept = {name: pod["metadata"]["uid"] for name, pod in pods(group).items()}
    assert kept == ids
    found = group.group()
    assert found is not None
    assert not found.get("retired")
    group.gantry_applies(GROWN)
    group.wait_until(settled)
    assert {name: pod["metadata"]["uid"] for name, pod in pods(group).items()} == ids


def test_a_deleted_group_takes_its_pods_along_and_keeps_its_data(group: CliCluster) -> None:
    claims = {claim["metadata"]["uid"] for claim in group.object("pvc")["items"]}
    asyncio.run(delete(group, "Background"))
    group.wait_for(lambda: not of_the_group(group), "its pods are gone")
    group.wait_for(lambda: group.object("statefulset", f"{GROUP}-broker") is None, "and its set")
    assert claims == {claim["metadata"]["uid"] for claim in group.object("pvc")["items"]}
    group.gantry_applies(GROWN)
    group.wait_until(settled)
    group.gantry("produce", TOPIC, "--count", "5", "--body", "again")
    assert {"again"} <= consumed(group)


def test_a_deleted_claim_takes_its_directory_along(group: CliCluster) -> None:
    asyncio.run(delete(group, "Background"))
    group.wait_for(lambda: not of_the_group(group), "its pods are gone")
    volumes = StateDir(group.directory).volumes
    (claim,) = [
        one for one in group.object("pvc")["items"] if one["metadata"]["name"].endswith("broker-0")
    ]
    directory = volumes / claim["spec"]["volumeName"]
    assert directory.is_dir()
    others = set(volumes.iterdir()) - {directory}
    group.gantry("local", "delete", "pvc", claim["metadata"]["name"])
    group.wait_for(lambda: not directory.exists(), "its directory is gone")
    assert set(volumes.iterdir()) == others


def test_a_killed_daemon_leaves_no_process_and_loses_no_object(group: CliCluster) -> None:
    group.gantry_applies("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept}}")
    daemon = StateDir(group.directory).daemon()
    assert daemon is not None
    children = _children(daemon.pid)
    assert len(children) >= 5  # three servers, a controller, the operator
    assert nothing_was_refused(group)
    daemon.identity.send(signal.SIGKILL)
    group.wait_for(lambda: not any(child.alive() for child in children), "they end, too")
    group.gantry("local", "up")
    assert group.object("configmap", "kept") is not None


def test_nothing_is_left_when_it_is_stopped(group: CliCluster) -> None:
    assert nothing_was_refused(group)
    daemon = StateDir(group.directory).daemon()
    assert daemon is not None
    children = _children(daemon.pid)
    assert len(children) >= 5
    group.gantry("local", "down")
    group.wait_for(lambda: not any(child.alive() for child in children), "they have ended, too")


def test_a_directory_of_another_api_server_is_refused(group: CliCluster) -> None:
    done = group.run("local", "up", "--api", "own")
    assert done.returncode != 0
    assert "was made with --api real" in done.stderr


def _children(pid: int) -> list[identity.ProcessIdentity]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    found = [identity.identify(int(child)) for child in text.split()]
    return [one for one in found if one is not None]
