"""A group with a tier: whoever is master uploads, exactly where the last one stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.settings import BrokerSettings
from gantry_broker.tier.uploader import Uploader
from gantry_broker.tier.values import State
from gantry_protocol.tier.chain import ChainState, fold
from gantry_protocol.tier.keys import ManKey, PackKey, parse_key, shard
from gantry_protocol.tier.manifests import decode_version
from gantry_protocol.tier.packs import rebuild_log, verify_pack
from support.broker_cluster import BrokerCluster, eventually, send_command
from support.loopback_controller import CLUSTER

UID = "2f6c1b9e-group"
PLACE = shard(CLUSTER, UID)


class TieredCluster(BrokerCluster):
    """Three brokers that upload small packs soon."""

    @property
    def bucket(self) -> Path:
        return self.directory / "bucket"

    def settings(self, number: int) -> BrokerSettings:
        self.bucket.mkdir(exist_ok=True)
        return (
            super()
            .settings(number)
            .model_copy(
                update={
                    "tier_url": self.bucket.as_uri(),
                    "tier_shard": UID,
                    "tier_pack_bytes": 64 * 1024,
                    "tier_linger_ms": 100,
                }
            )
        )

    def chain(self) -> ChainState:
        """What a reader of the bucket makes of it."""
        versions = [
            decode_version(path.read_bytes(), PLACE, int(path.name))
            for path in sorted((self.bucket / PLACE.prefix / "man").glob("*"))
        ]
        return fold(PLACE, versions)

    def tiered_log(self) -> bytes:
        """The log as the packs of the chain hold it; every object is verified."""
        data = b""
        for entry in self.chain().packs:
            key = parse_key(PLACE, PLACE.key(entry.key))
            assert isinstance(key, PackKey)
            pack = (self.bucket / PLACE.key(entry.key)).read_bytes()
            verify_pack(pack, PLACE, key)
            data += rebuild_log(pack, PLACE, key)
        return data

    @property
    def uploader(self) -> Uploader:
        """The master's."""
        found = self.master.group.uploader
        assert found is not None
        return found

    def caught_up(self) -> bool:
        """Whether everything confirmed is in the tier, and the master knows it."""
        core = self.master.group.core
        assert core is not None
        head = self.uploader.head
        return head is not None and head.end == core.log.confirm > 0


async def send(cluster: BrokerCluster, count: int) -> None:
    client = await cluster.client(cluster.master)
    for number in range(count):
        assert (await client.call(send_command(b"message %d" % number))).code == 0


async def test_the_master_uploads_what_is_confirmed(tmp_path: Path) -> None:
    async with TieredCluster(tmp_path) as cluster:
        await send(cluster, 50)
        await eventually(cluster.caught_up, "the tier reaches confirm")
        log = cluster.master.group.store.log
        assert cluster.tiered_log() == log.read(log.log_start, log.end)
        uploaders = [one.group.uploader for one in cluster.brokers.values()]
        states = [one.status.state.value for one in uploaders if one is not None]
        assert sorted(states) == ["standby", "standby", "uploading"]


async def test_the_next_master_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    async with TieredCluster(tmp_path) as cluster:
        await send(cluster, 30)
        await eventually(cluster.caught_up, "the tier reaches confirm")
        before = cluster.chain()
        old = cluster.master
        number = cluster.number_of(old)
        await old.abort()
        await eventually(
            lambda: any(one.is_master and one is not old for one in cluster.brokers.values()),
            "there is a new master",
        )
        await send(cluster, 30)
        await eventually(cluster.caught_up, "the tier reaches confirm again")
        after = cluster.chain()
        assert after.pair > before.pair
        assert after.packs[: len(before.packs)] == before.packs
        log = cluster.master.group.store.log
        assert cluster.tiered_log() == log.read(log.log_start, log.end)
        cluster.boot(number)
        await cluster.settled()


async def test_a_tier_that_cannot_be_written_stops_nothing_else(tmp_path: Path) -> None:
    async with TieredCluster(tmp_path) as cluster:
        await send(cluster, 5)
        await eventually(cluster.caught_up, "the tier reaches confirm")
        version = cluster.bucket / PLACE.key(ManKey(cluster.chain().v + 1))
        version.write_bytes(b'{"format":1,"op":"append"')
        await send(cluster, 5)

        await eventually(
            lambda: cluster.uploader.status.state is State.HALTED, "the damaged version is noticed"
        )
        assert version.name in cluster.uploader.status.reason
        await send(cluster, 5)


def test_settings_of_a_tier_belong_together() -> None:
    base = {"group": "orders", "controllers": ["127.0.0.1:1"]}
    with pytest.raises(ValueError, match="tier_url is set without tier_shard"):
        BrokerSettings.model_validate(base | {"tier_url": "file:///tmp"})
    with pytest.raises(ValueError, match="tier_shard is set without tier_url"):
        BrokerSettings.model_validate(base | {"tier_shard": "x"})
