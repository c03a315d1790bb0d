"""`spec.bootstrap.fromTier` on a cluster of processes: a group goes whole, and begins again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli_cluster import CliCluster
from support.tier_groups import BRISK, TieredGroup, resource

COUNT = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    found = CliCluster(tmp_path_factory.mktemp("cluster") / "local")
    try:
        found.gantry("local", "up")
        yield found
    finally:
        found.gantry("local", "down", "--purge")


def applied(cluster: CliCluster, bucket: Path, **more: Any) -> str:
    """The manifest, of three replicas whose volumes go with the group."""
    spec = {
        "replicas": 3,
        "storage": {"size": "1Gi", "whenDeleted": "Delete"},
        "drain": {"deadlineSeconds": 0},
        "tier": BRISK | {"url": bucket.as_uri()},
    }
    return resource("BrokerGroup", "orders", spec=spec | more)


def read(cluster: CliCluster, reader: str) -> int:
    args = ("consume", "of-orders", "--group", reader, "--from", "earliest", "--idle", "3")
    return len(cluster.gantry(*args).splitlines())


def test_a_deleted_group_begins_again_with_all_that_was_uploaded(
    cluster: CliCluster, tmp_path: Path
) -> None:
    group = TieredGroup(cluster, "orders")
    cluster.gantry_applies(applied(cluster, tmp_path))
    group.until_available()
    assert group.serves(COUNT)
    group.until(lambda: group.tier().get("uploader") is not None, "it is told who uploads")
    uploader = group.tier()["uploader"]

    def is_whole() -> bool:
        status = group.broker_status(uploader)
        return bool(status["tier"]["committedOffset"] == status["confirmOffset"] > 0)

    group.until(is_whole, "everything is in the tier")
    old = group.read()["metadata"]["uid"]
    objects = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    cluster.gantry("local", "delete", "bg", "orders")
    cluster.wait_for(
        lambda: cluster.run("local", "get", "bg", "orders", "-o", "json").returncode != 0,
        "the group is gone",
    )

    bootstrap = {"fromTier": {"shard": old}}
    cluster.gantry_applies(applied(cluster, tmp_path, bootstrap=bootstrap))
    group.until_available()
    found = group.read()
    assert found["metadata"]["uid"] != old
    assert found["status"]["bootstrap"]["state"] == "Completed"
    # The new master tells the controllers which topics its log has.
    cluster.wait_for(lambda: "of-orders" in cluster.shown("topics", "list"), "the topic is known")
    assert read(cluster, "first") == COUNT
    assert group.serves(COUNT)
    assert read(cluster, "second") == 2 * COUNT
    assert {path for path in objects if not path.is_file()} == set(), "nothing was deleted"
    group.until_health("True", "Uploading")

    done = cluster.run("local", "apply", "-f", "-", text=applied(cluster, tmp_path))
    assert done.returncode != 0
    assert "bootstrap is fixed at creation" in done.stderr
