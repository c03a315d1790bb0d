"""The whole road by its command line: a cluster, a group, messages, a killed master."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import send_command
from support.cli_cluster import CliCluster, cluster_with_group, settled
from support.patience import PATIENCE_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    directory = tmp_path_factory.mktemp("cluster") / "local"
    with cluster_with_group(directory, log_segment_bytes=str(SEGMENT_BYTES)) as found:
        yield found


SEGMENT_BYTES = 1024 * 1024
"""Of the group by its `spec.config`; the cluster's own default is 64 times as much."""


CLIENTS = 24
"""Through a Service over three pods; without doors, some would be connected to the master."""


def consumed(cluster: CliCluster, topic: str, count: int) -> list[dict[str, object]]:
    args = ("consume", topic, "--from", "earliest", "--count", str(count), "--idle", "5", "--json")
    return [json.loads(line) for line in cluster.gantry(*args).splitlines()]


def produced(cluster: CliCluster, topic: str, count: int) -> dict[str, int]:
    args = ("produce", topic, "--count", str(count), "--patience", "30", "--json")
    summary: dict[str, int] = json.loads(cluster.gantry(*args))
    return summary


def test_messages_outlive_their_master_without_the_operator(cluster: CliCluster) -> None:
    before = cluster.wait_until(settled)
    assert produced(cluster, "outlive", 40)["acknowledged"] == 40
    cluster.gantry("local", "operator", "stop")
    cluster.gantry("local", "kill", cluster.master_pod())
    summary = produced(cluster, "outlive", 40)
    cluster.gantry("local", "operator", "start")
    assert summary["acknowledged"] == 40
    after = cluster.wait_until(settled)
    assert after["masterEpoch"] > before["masterEpoch"]
    assert after["masterBrokerId"] != before["masterBrokerId"]
    messages = consumed(cluster, "outlive", 80)
    if summary["lost_answers"] == 0:
        assert len({message["key"] for message in messages}) == 80


def test_a_setting_of_the_group_wins_over_the_cluster_s_default(cluster: CliCluster) -> None:
    cluster.gantry("produce", "large", "--count", "40", "--body", "x" * 100_000)
    master = cluster.master_pod()
    claim = json.loads(cluster.shown("local", "get", "pvc", f"data-{master}", "-o", "json"))
    log = cluster.directory / "volumes" / claim["spec"]["volumeName"] / "store" / "commitlog"
    segments = [file for file in log.iterdir() if file.name.isdigit()]
    assert len(segments) >= 4, "4 MB in files of 1 MiB"
    assert all(file.stat().st_size <= SEGMENT_BYTES for file in segments)


def test_what_has_no_effect_on_a_cluster_that_is_there_is_told(cluster: CliCluster) -> None:
    flags = ("--log-segment-bytes", "2000000", "--operators", "2", "--controller-replicas", "1")
    told = cluster.run("local", "up", *flags)
    assert told.returncode == 0, told.stderr
    for flag in flags[::2]:
        assert f"{flag} has no effect, because" in told.stderr
    assert "has no effect" not in cluster.run("local", "up").stderr


def test_a_killed_master_ends_no_client_s_connection(cluster: CliCluster) -> None:
    """The Service leads to doors, also to the one beside the master."""
    group = cluster.wait_until(settled)
    cluster.gantry("topics", "create", "kept")
    master = cluster.master_pod()
    before = restarts(cluster, master)
    with asyncio.Runner() as runner:
        clients = runner.run(connected(group["routeAddress"]))
        assert runner.run(codes(clients)) == {0}
        cluster.gantry("local", "kill", master, "--container", "broker")
        assert runner.run(codes(clients)) == {0}
        assert [client for client in clients if client.closed] == []
        for client in clients:
            client.close()
    after = cluster.wait_until(settled)
    assert after["masterEpoch"] > group["masterEpoch"]
    assert restarts(cluster, master) == before | {"broker": before["broker"] + 1}


async def connected(address: str) -> list[RemotingClient]:
    return [await RemotingClient().connect(address) for _ in range(CLIENTS)]


async def codes(clients: list[RemotingClient]) -> set[int]:
    """What a send over each connection is answered."""
    calls = [client.call(send_command(b"x", "kept"), PATIENCE_S) for client in clients]
    return {answer.code for answer in await asyncio.gather(*calls)}


def restarts(cluster: CliCluster, pod: str) -> dict[str, int]:
    status = json.loads(cluster.shown("local", "get", "pod", pod, "-o", "json"))["status"]
    return {one["name"]: one["restartCount"] for one in status["containerStatuses"]}


def test_deleted_master_hands_over(cluster: CliCluster) -> None:
    before = cluster.wait_until(settled)
    cluster.gantry("local", "delete", "pod", cluster.master_pod())
    assert produced(cluster, "handed", 20)["acknowledged"] == 20
    after = cluster.wait_until(lambda group: settled(group) and group != before)
    assert after["masterBrokerId"] != before["masterBrokerId"]
    assert after["clean"]


def test_consumer_group_goes_on_where_it_left_off(cluster: CliCluster) -> None:
    cluster.wait_until(settled)
    produced(cluster, "continued", 10)
    first = cluster.gantry("consume", "continued", "--count", "6", "--group", "g").splitlines()
    second = cluster.gantry("consume", "continued", "--count", "4", "--group", "g").splitlines()
    assert sorted(first + second) == sorted(f"message {number}" for number in range(1, 11))


def test_topics_are_made_shown_and_deleted(cluster: CliCluster) -> None:
    cluster.gantry("topics", "create", "made", "--queues", "3")
    assert "made" in json.loads(cluster.gantry("topics", "list", "--json"))
    cluster.gantry("produce", "made", "--count", "3")
    described = json.loads(cluster.gantry("topics", "show", "made", "--json"))
    assert [row["queue"] for row in described["queues"]] == [0, 1, 2]
    assert sum(row["next"] for row in described["queues"]) == 3
    cluster.gantry("topics", "delete", "made", "--yes")
    assert "made" not in json.loads(cluster.gantry("topics", "list", "--json"))
    cluster.gantry("topics", "create", "made", "--queues", "3")
    again = json.loads(cluster.gantry("topics", "show", "made", "--json"))["queues"]
    assert [row["first"] for row in again] == [row["next"] for row in again], "it begins empty"
    assert sum(row["next"] for row in again) == 3, "and goes on with the numbers"


def test_a_consumer_group_is_seen_moved_and_deleted(cluster: CliCluster) -> None:
    produced(cluster, "moved", 12)
    cluster.gantry("consume", "moved", "--count", "12", "--group", "mover")
    rows = json.loads(cluster.gantry("offsets", "show", "mover", "--json"))
    assert sum(row["next"] for row in rows) == 12
    assert sum(row["lag"] for row in rows) == 0
    args = ("offsets", "reset", "mover", "moved", "--to", "earliest")
    planned = json.loads(cluster.gantry(*args, "--dry-run", "--json"))
    assert {move["after"] for move in planned} == {0}
    assert json.loads(cluster.gantry("offsets", "show", "mover", "--json")) == rows
    refused = cluster.run(*args)
    assert refused.returncode != 0
    assert "12 messages again" in refused.stderr
    cluster.gantry("local", "kill", cluster.master_pod())  # what was reset outlives a master
    cluster.gantry(*args, "--yes")
    cluster.wait_until(settled)
    cluster.gantry("local", "kill", cluster.master_pod())
    cluster.wait_until(settled)
    text = cluster.gantry("consume", "moved", "--count", "12", "--group", "mover")
    assert len(text.splitlines()) == 12
    listed = json.loads(cluster.gantry("groups", "list", "--json"))
    (mover,) = [one for one in listed if one["group"] == "mover"]
    assert (mover["lag"], mover["members"], mover["topics"]) == (0, 0, ["moved"])
    cluster.gantry("groups", "update", "mover", "--retries", "3")
    assert "0 messages behind" in cluster.gantry("groups", "show", "mover")
    cluster.gantry("groups", "delete", "mover", "--yes")
    assert "no consumer group" in cluster.run("groups", "show", "mover").stderr


def test_status_tells_people_what_they_need(cluster: CliCluster) -> None:
    group = cluster.wait_until(settled)
    text = cluster.gantry("status")
    for words in ("leader", "follower", "MASTER", "replica", "healthy", "Name servers"):
        assert words in text
    assert f"epoch {group['masterEpoch']}" in text


def test_processes_are_listed_for_programs_too(cluster: CliCluster) -> None:
    listed = json.loads(cluster.gantry("local", "status", "--json"))
    assert listed["running"] is True
    assert Path(listed["state_dir"]).is_dir()
    assert "orders-broker-0" in [pod["name"] for pod in listed["pods"]]


def test_up_twice_is_harmless(cluster: CliCluster) -> None:
    assert "was up already" in cluster.gantry("local", "up")


def test_messages_are_consumed_by_a_filter(cluster: CliCluster) -> None:
    for tag in ("red", "blue"):
        cluster.gantry("produce", "filtered", "--count", "5", "--tag", tag)
    args = ("consume", "filtered", "--from", "earliest", "--idle", "3", "--json", "--filter")
    found = cluster.gantry(*args, "TAGS <> 'red' AND UNIQ_KEY IS NOT NULL").splitlines()
    assert [json.loads(line)["properties"]["TAGS"] for line in found] == ["blue"] * 5
    refused = cluster.run(*args, "TAGS LIKE 'r%'")
    assert refused.returncode != 0
    assert "line 1, column 6: 'LIKE' belongs to nothing before it." in refused.stderr


def test_invalid_group_is_refused_with_what_to_change(cluster: CliCluster) -> None:
    manifest = (
        "{apiVersion: mq.gantry.dev/v1alpha1, kind: BrokerGroup, metadata: {name: wrong}, "
        "spec: {replicas: 0, storage: {size: 1Gi}}}"
    )
    done = cluster.run("local", "apply", "-f", "-", text=manifest)
    assert done.returncode != 0
    assert "spec.replicas" in done.stderr
