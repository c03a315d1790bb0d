"""`spec.tier` on a cluster of processes: directory, bucket, failover, and stores that fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gantry_protocol.tier.keys import ManKey, MetaKey, shard
from gantry_protocol.tier.manifests import Owner, encode, seal
from support.cli_cluster import CliCluster
from support.fault_proxy import Strike
from support.moto_server import make_bucket, moto_server
from support.tier_groups import TieredGroup, failing_store, resource

KEYS = {"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": "wJalrXUtnFEMIK7MDENGbPxRfiCY"}
CLUSTER = "gantry"
SEGMENT_BYTES = 1024 * 1024  # a log is trimmed by whole files


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    found = CliCluster(tmp_path_factory.mktemp("cluster") / "local")
    try:
        found.gantry("local", "up", "--log-segment-bytes", str(SEGMENT_BYTES))
        yield found
    finally:
        found.gantry("local", "down", "--purge")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with moto_server(tmp_path_factory.mktemp("moto") / "log") as port:
        yield port


def at(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def test_the_next_master_takes_the_upload_over(cluster: CliCluster, tmp_path: Path) -> None:
    group = TieredGroup(cluster, "orders")
    group.apply({"url": tmp_path.as_uri()}, replicas=3)
    group.until_available()
    group.until_health("True", "Uploading")
    before = group.tier()
    assert group.serves(50)
    group.until(lambda: group.committed(before["uploader"]) > 0, "something is in the tier")
    held = group.committed(before["uploader"])
    uid = group.read()["metadata"]["uid"]
    assert (tmp_path / shard(CLUSTER, uid).key(ManKey(1))).is_file()
    assert before["lagSeconds"] is not None

    cluster.gantry("local", "kill", f"orders-broker-{before['uploader']}")
    group.until(lambda: group.tier()["epoch"] > before["epoch"], "somebody else holds the tier")
    after = group.tier()
    assert after["uploader"] != before["uploader"]
    assert after["committedOffset"] >= held
    cannot_move(group, tmp_path)
    group.until_health("True", "Uploading")
    notes = [one["message"] for one in group.events("TierClaimed")]
    for one in (before, after):
        said = f"orders-broker-{one['uploader']} uploads to the tier from epoch {one['epoch']} on"
        assert len([note for note in notes if said in note]) == 1, notes
    assert group.serves(50)


def cannot_move(group: TieredGroup, directory: Path) -> None:
    """A place that holds something is not given up, neither for another nor for none."""
    spec = {"replicas": 3, "storage": {"size": "1Gi"}}
    for wish in (spec | {"tier": {"url": (directory / "elsewhere").as_uri()}}, spec):
        text = resource("BrokerGroup", group.name, spec=wish)
        done = group.cluster.run("local", "apply", "-f", "-", text=text)
        assert done.returncode != 0
        assert "spec.tier.url is fixed" in done.stderr


def test_what_a_bucket_lacks_can_come_later(cluster: CliCluster, s3: int) -> None:
    group = TieredGroup(cluster, "later")
    keys = {"credentialsSecret": {"name": "later-keys"}}
    group.apply({"url": "s3://made-later/of/gantry", "endpoint": at(s3)} | keys)
    assert "accessKeyId is missing or empty" in group.until_health("False", "Stalled")["message"]
    assert [one["type"] for one in group.events("Stalled")] == ["Warning"]
    assert group.serves()

    cluster.gantry_applies(resource("Secret", "later-keys", stringData=KEYS))
    group.until(lambda: "NoSuchBucket" in group.log(), "the bucket is missed")
    group.look_at("bucket")
    group.until(lambda: "NoSuchBucket" in group.condition()["message"], "the bucket is missed")
    assert group.condition()["status"] == "False"
    assert "s3://made-later" in group.condition()["message"]

    make_bucket(s3, "made-later")
    group.until_health("True", "Uploading")
    group.until(lambda: group.committed() > 0, "something is in the bucket")
    everything = f"{group.read()} {group.log()} {group.events('Stalled')}"
    assert all(key not in everything for key in KEYS.values())


@pytest.mark.parametrize(
    ("name", "strike", "words"),
    [
        ("denied", Strike.DENIED, "403 Forbidden (AccessDenied)"),
        ("hanging", Strike.BLACK_HOLE, "had no answer within"),
    ],
)
def test_a_store_that_fails_is_quoted_and_stops_nothing_else(
    cluster: CliCluster, name: str, strike: Strike, words: str
) -> None:
    group = TieredGroup(cluster, name)
    with failing_store(strike) as store:
        group.apply({"url": "s3://orders-log", "endpoint": at(store.port)})
        found = group.until_health("False", "Stalled")
        assert words in found["message"]
        assert "s3://orders-log" in found["message"]
        assert words in group.log()
        assert group.serves()
        assert store.forwarded == 0
    assert group.tier() == {}


def test_another_groups_prefix_is_left_alone(cluster: CliCluster, tmp_path: Path) -> None:
    group = TieredGroup(cluster, "foreign")
    group.apply(None)
    group.until_available()
    assert group.condition() == {}
    place = shard(CLUSTER, group.read()["metadata"]["uid"])
    other = Owner(shard=place.uid, cluster=CLUSTER, group="payments", created_ms=1)
    meta = tmp_path / place.key(MetaKey())
    meta.parent.mkdir(parents=True)
    meta.write_bytes(encode(seal(other)))

    group.apply({"url": tmp_path.as_uri()})
    found = group.until_health("False", "Halted")
    for words in ("meta.json", "payments", "a person has to look"):
        assert words in found["message"]
    assert "payments" in group.log()
    assert group.serves()
    assert [path for path in meta.parent.rglob("*") if path.is_file()] == [meta]


def test_messages_that_only_the_tier_has_are_consumed(cluster: CliCluster, tmp_path: Path) -> None:
    group = TieredGroup(cluster, "trimmed")
    group.apply({"url": tmp_path.as_uri(), "localBytes": 1024 * 1024})
    group.until_available()
    sent = 0

    def trimmed() -> bool:
        nonlocal sent
        sent += 1_500
        assert group.serves(1_500, body="x" * 1_000)
        return bool(group.broker_status()["logStart"] > 0)

    group.until(trimmed, "the log is trimmed")
    args = ("--from", "earliest", "--count", str(sent), "--idle", "20", "--json")
    read = cluster.gantry("consume", "of-trimmed", *args).splitlines()
    assert len({json.loads(line)["key"] for line in read}) == sent
