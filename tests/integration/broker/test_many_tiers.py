"""Several groups per process, each with a tier of its own in one store."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.tier.stores.posix import PosixStore
from gantry_cli.tier.verifying import TierVerdict, verify
from gantry_protocol.tier.judgement import group_name
from gantry_protocol.tier.keys import MetaKey, Shard, shard, shared_uid
from support.broker_cluster import eventually
from support.loopback_controller import CLUSTER
from support.many_groups import ManyGroups, parse_metrics
from support.patience import PATIENCE_S

GROUPS = 5
UID = "2f6c1b9e"
SEGMENT_BYTES = 64 * 1024
BODY_BYTES = 1000


class ManyTiers(ManyGroups):
    """They keep as little of their logs as they may."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, GROUPS)
        self.bucket = directory / "bucket"
        self.bucket.mkdir()
        self.body_bytes = BODY_BYTES
        self.env = {
            "GANTRY_TIER_URL": self.bucket.as_uri(),
            "GANTRY_TIER_SHARD": UID,
            "GANTRY_TIER_PACK_BYTES": "32768",
            "GANTRY_TIER_LINGER_MS": "100",
            "GANTRY_TIER_LOCAL_BYTES": "0",
            "GANTRY_LOG_SEGMENT_BYTES": str(SEGMENT_BYTES),
        }

    async def send_to_all(self, count: int) -> None:
        await asyncio.gather(*(self.send(name, count) for name in self.names))

    async def status(self, ip: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.get(ip, f"/status/{name}"))
        return found

    async def tiered(self, name: str) -> int:
        """The confirm offset of the group, once its tier reaches it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                ip = self.master_ip(name)
                found = await self.status(ip, name) if ip else {}
                tier = found.get("tier") or {}
                confirm: int = found.get("confirmOffset", 0)
                if tier.get("state") == "uploading" and tier["committedOffset"] == confirm > 0:
                    return confirm
                await asyncio.sleep(0.05)

    async def trimmed(self, name: str) -> None:
        """The master of the group gave up the beginning of its log: the tier holds it."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.status(self.master_ip(name), name))["logStart"] == 0:
                await asyncio.sleep(0.05)

    def place(self, name: str) -> Shard:
        return shard(CLUSTER, shared_uid(UID, name))

    async def verified(self, name: str) -> TierVerdict:
        """The tier of the group, once it reaches the confirm offset; it is sound."""
        confirm = await self.tiered(name)

        async def is_confirmed() -> int:
            return confirm

        store, place = PosixStore(self.bucket), self.place(name)
        meta = await store.get(place.key(MetaKey()), max_bytes=1 << 20)
        assert meta is not None
        assert group_name(meta, place) == name
        found = await verify(store, place, lambda _: None, confirm=is_confirmed)
        assert (found.findings, found.start, found.end) == ((), 0, confirm), name
        return found


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ManyTiers]:
    made = ManyTiers(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def test_each_group_has_a_tier_of_its_own_whoever_is_its_master(cluster: ManyTiers) -> None:
    """One process dies, and comes back without its disk: it has its beginnings from the tiers."""
    await cluster.send_to_all(100)
    before = {name: await cluster.verified(name) for name in cluster.names}
    prefixes = {path.name for path in (cluster.bucket / CLUSTER).glob("*/*")}
    assert prefixes == {cluster.place(name).uid for name in cluster.names}

    killed = cluster.master_ip(cluster.names[0])
    lost = [name for name in cluster.names if cluster.master_ip(name) == killed]
    cluster.processes[killed].process.kill()
    for name in lost:
        await eventually(
            lambda name=name: cluster.master_ip(name) not in ("", killed), name, PATIENCE_S
        )
    await cluster.send_to_all(100)
    for name in cluster.names:
        after = await cluster.verified(name)
        assert after.records >= 200
        claims = len(after.claims) - len(before[name].claims)
        assert claims == (1 if name in lost else 0), "only a new master claims a chain"
        await cluster.trimmed(name)
        await eventually(lambda name=name: not cluster.in_place(killed, [name]), name, PATIENCE_S)

    shutil.rmtree(cluster.directory / killed)
    cluster.boot(killed)
    await cluster.settled()
    for name in cluster.names:
        found = await cluster.status(killed, name)
        assert found["logStart"] > 0, "it copied what the master still has, and no more"
        assert found["tier"]["readReason"] == ""
        assert await cluster.read(name) == cluster.acknowledged[name], name

    metrics = parse_metrics(await cluster.get(cluster.ips[1], "/metrics"))
    for name in cluster.names:
        assert ("gantry_tier_commits_total", (("group", name),)) in metrics
    assert metrics["gantry_tier_store_calls_total", (("pool", "read"),)] > 0, "of all together"
    assert metrics["gantry_tier_packs_waiting", ()] == 0
    threads = len(list(Path(f"/proc/{cluster.processes[killed].process.pid}/task").iterdir()))
    assert threads < 60
