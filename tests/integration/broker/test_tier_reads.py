"""Pulls below the local log of a running group, while its tier is well, damaged and away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from gantry_broker.host.metrics import GroupsCollector
from gantry_broker.tier import reader, waits
from gantry_broker.tier.core.losses import Patience
from gantry_broker.tier.metrics import SharedTierCollector
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.tier.manifests import Append, decode_version
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.broker_cluster import eventually, pull_command, send_command
from support.patience import PATIENCE_S
from support.tiered_cluster import PLACE, TieredCluster

COUNT = 150


class TrimmedCluster(TieredCluster):
    """Brokers that keep as little as they may, with 150 messages, the oldest in the tier only."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, tier_local_bytes=0, log_segment_bytes=64 * 1024)

    async def fill(self) -> RemotingClient:
        client = await self.client(self.master)
        for number in range(COUNT):
            answer = await client.call(send_command(b"%04d" % number + bytes(1500)), PATIENCE_S)
            assert answer.code == 0
        await eventually(
            lambda: all(one.group.store.log.log_start > 0 for one in self.brokers.values()),
            "everybody trims",
        )
        return client

    def metrics(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """What the master's /metrics says of the tier; the text must read."""
        registry = CollectorRegistry()
        member = self.master.member
        registry.register(GroupsCollector([member], labelled=False))
        shared = member._shared
        registry.register(SharedTierCollector(lambda: None if shared is None else shared.tier))
        text = generate_latest(registry).decode()
        return {
            (sample.name, tuple(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith("gantry_tier_")
        }

    def metrics_agree_with_the_chain(self) -> bool:
        """Uploads go on, so the chain may be a version ahead of what was just said."""
        said, chain = self.metrics(), self.chain()
        return (
            said["gantry_tier_committed_offset_bytes", ()],
            said["gantry_tier_chain_version", ()],
        ) == (chain.end, chain.v)

    def index_is_complete(self) -> bool:
        """The reader follows the chain in its own time."""
        return self.metrics()["gantry_tier_index_packs_waiting", ()] == 0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[TrimmedCluster]:
    async with TrimmedCluster(tmp_path) as made:
        yield made


async def test_reads_below_the_log(
    cluster: TrimmedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PAUSE_S", 0.05)
    client = await cluster.fill()
    bodies: list[bytes] = []
    while len(bodies) < COUNT:
        answer = await client.call(pull_command(len(bodies)))
        assert answer.code == 0
        bodies += [record.body for record in decode_records(answer.body or b"")]
    assert bodies == [b"%04d" % number + bytes(1500) for number in range(COUNT)]

    said = cluster.metrics()
    for name in ("read_bytes_total", "fetched_bytes_total", "trims_total", "trimmed_bytes_total"):
        assert said[f"gantry_tier_{name}", ()] > 0, name
    assert said["gantry_tier_reads_total", ("found",)] > 0
    assert said["gantry_tier_reads_total", ("refused",)] == 0
    assert said["gantry_tier_upload_state", ("uploading",)] == 1
    assert said["gantry_tier_following", ()] == 1
    assert said["gantry_tier_states_total", ()] > 0
    for pool in ("upload", "read"):
        assert said["gantry_tier_store_calls_total", (pool,)] > 0
    await eventually(cluster.metrics_agree_with_the_chain, "the metrics say how far the tier goes")
    await eventually(cluster.index_is_complete, "the index names every pack")

    await damage(cluster, client)
    await outage(cluster, client)


async def damage(cluster: TrimmedCluster, client: RemotingClient) -> None:
    """One bit of one pack: its messages are refused by name, the others are served."""
    reader = cluster.master.group.tier.reader
    assert reader is not None
    reader.cache._values.clear()
    names = [PLACE.key(entry.key) for entry in cluster.chain().packs]
    body = b"0003" + bytes(1500)
    name = next(one for one in names if body in (cluster.bucket / one).read_bytes())
    path = cluster.bucket / name
    sound = path.read_bytes()
    place = sound.index(body)
    path.write_bytes(sound[:place] + b"1" + sound[place + 1 :])
    refused = await client.call(pull_command(3))
    assert refused.code == 1
    assert f"{name} is damaged at byte" in (refused.remark or "")
    assert (await client.call(pull_command(60))).code == 0
    assert cluster.metrics()["gantry_tier_reads_total", ("refused",)] == 1
    path.write_bytes(sound)
    reader._damaged.clear()
    assert (await client.call(pull_command(3))).code == 0


async def outage(cluster: TrimmedCluster, client: RemotingClient) -> None:
    """The store is away: ask again; the local log is served as ever."""
    reader = cluster.master.group.tier.reader
    assert reader is not None
    reader.cache._values.clear()
    away = cluster.bucket.rename(cluster.bucket.with_name("away"))
    cluster.bucket.write_text("not a directory")
    sent_back = await client.call(pull_command(3))
    assert (sent_back.code, (sent_back.ext or {})["nextBeginOffset"]) == (20, "3")
    assert sent_back.remark != "OFFSET_IN_TIER", "the reason is told"
    local = cluster.master.group.store.local_min_offset("orders", 0)
    assert (await client.call(pull_command(local))).code == 0
    assert (await client.call(send_command(b"more"))).code == 0
    cluster.bucket.unlink()
    away.rename(cluster.bucket)
    assert (await client.call(pull_command(3))).code == 0


QUICK = Patience(first_s=0.05, last_s=0.2, looks=4, over_s=0.4, removed_s=0.2)


async def restarted(
    cluster: TrimmedCluster, meanwhile: Callable[[], object] = lambda: None
) -> RemotingClient:
    """All brokers end and start again: what they knew of the tier is read anew."""
    for number, broker in list(cluster.brokers.items()):
        await broker.stop()
        del cluster.brokers[number]
    meanwhile()
    for number in range(cluster.replicas):
        cluster.boot(number)
    await cluster.settled()
    return await cluster.client(cluster.master)


def state(cluster: TrimmedCluster) -> tuple[str, str]:
    """What the master says of its tier in every heartbeat: state and reason."""
    report = cluster.master.group.tier.report()
    assert report is not None
    return report.state, report.reason


async def read_from(client: RemotingClient, offset: int) -> list[bytes]:
    """Everything that a consumer gets that begins at an offset and does as it is told."""
    bodies: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await client.call(pull_command(offset))
            bodies += [record.body[:4] for record in decode_records(answer.body or b"")]
            if answer.code == 19:
                return bodies
            assert answer.code in (0, 20, 21), answer.remark
            offset = int((answer.ext or {})["nextBeginOffset"])


async def test_a_pack_that_is_away_at_the_start_is_read_without_another_start(
    cluster: TrimmedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PAUSE_S", 0.05)
    monkeypatch.setattr(reader, "Patience", lambda: QUICK)
    await cluster.fill()
    await eventually(cluster.caught_up, "everything is in the tier")
    lost = cluster.chain().packs[2]  # the first may hold the topic alone
    path = cluster.bucket / PLACE.key(lost.key)
    away = path.rename(cluster.directory / "away")
    client = await restarted(cluster)
    await eventually(lambda: state(cluster)[0] == "unreadable", "it is told")
    assert PLACE.key(lost.key)[-32:] in state(cluster)[1]
    assert (await client.call(pull_command(0))).code == 0, "the rest is served"
    reading = asyncio.create_task(read_from(client, 0))
    await eventually(
        lambda: cluster.metrics()["gantry_tier_asked_again_total", ()] > 5, "it is asked for again"
    )
    assert not reading.done(), "nothing is skipped"
    away.rename(path)
    assert await reading == [b"%04d" % number for number in range(COUNT)]
    await eventually(lambda: state(cluster) == ("uploading", ""), "all is well")


async def test_what_a_rule_of_the_bucket_removed_does_not_take_the_rest_along(
    cluster: TrimmedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """meta.json, the oldest versions and the oldest packs are gone at the next start."""
    monkeypatch.setattr(waits, "PAUSE_S", 0.05)
    monkeypatch.setattr(reader, "Patience", lambda: QUICK)
    await cluster.fill()
    await eventually(cluster.caught_up, "everything is in the tier")
    chain = cluster.chain()
    third = cluster.bucket / PLACE.prefix
    (third / "meta.json").unlink()
    kept = 0
    for path in sorted((third / "man").iterdir())[: chain.v // 2]:
        version = decode_version(path.read_bytes(), PLACE, int(path.name))
        for entry in version.add if isinstance(version, Append) else ():
            (cluster.bucket / PLACE.key(entry.key)).unlink()
            kept = entry.hi
        path.unlink()
    left = sorted(path.name for path in (third / "pack").rglob("*") if path.is_file())
    client = await restarted(cluster)
    await eventually(lambda: state(cluster)[0] == "shortened", "it is told")
    assert f"[0, {kept}) is lost" in state(cluster)[1]
    found = await read_from(client, 0)
    assert 0 < len(found) < COUNT
    assert found == [b"%04d" % number for number in range(COUNT - len(found), COUNT)]
    for number in range(COUNT, COUNT + 50):
        answer = await client.call(send_command(b"%04d" % number + bytes(1500)), PATIENCE_S)
        assert answer.code == 0
    await eventually(cluster.caught_up, "uploads go on")
    now = {path.name for path in (third / "pack").rglob("*") if path.is_file()}
    assert now > set(left), "nothing was deleted, and what is new is there"
    assert (await read_from(client, 0))[-1] == b"%04d" % (COUNT + 49)


async def test_a_store_that_looks_empty_after_a_start_gets_no_second_chain(
    cluster: TrimmedCluster,
) -> None:
    """As if the directory were not mounted: nothing is written there, and nothing trimmed."""
    await cluster.fill()
    await eventually(cluster.caught_up, "everything is in the tier")
    away = cluster.directory / "unmounted"

    def unmount() -> None:
        cluster.bucket.rename(away)
        cluster.bucket.mkdir()

    client = await restarted(cluster, unmount)
    await eventually(lambda: "to begin another tier" in state(cluster)[1], "it is told")
    starts = {number: one.group.store.log.log_start for number, one in cluster.brokers.items()}
    for number in range(COUNT, COUNT + 100):
        assert (await client.call(send_command(b"%04d" % number + bytes(1500)))).code == 0
    assert not list(cluster.bucket.rglob("man/*"))
    assert starts == {
        number: one.group.store.log.log_start for number, one in cluster.brokers.items()
    }
    for path in sorted(cluster.bucket.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    cluster.bucket.rmdir()
    away.rename(cluster.bucket)
    await eventually(cluster.caught_up, "uploads go on")
    assert len(await read_from(client, 0)) == COUNT + 100
