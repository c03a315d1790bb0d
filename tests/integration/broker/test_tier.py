"""A group with a tier: whoever is master uploads, exactly where the last one stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.host.settings import BrokerSettings
from support.broker_cluster import eventually
from support.tiered_cluster import TieredCluster, send


async def test_the_master_uploads_what_is_confirmed(tmp_path: Path) -> None:
    async with TieredCluster(tmp_path) as cluster:
        await send(cluster, 50)
        await eventually(cluster.caught_up, "the tier reaches confirm")
        log = cluster.master.group.store.log
        assert cluster.tiered_log() == log.read(log.log_start, log.end)
        tiers = [one.group.tier.service for one in cluster.brokers.values()]
        states = [one.uploader.status.state.value for one in tiers if one is not None]
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


def test_settings_of_a_tier_belong_together() -> None:
    base = {"group": "orders", "controllers": ["127.0.0.1:1"]}
    with pytest.raises(ValueError, match="tier_url is set without tier_shard"):
        BrokerSettings.model_validate(base | {"tier_url": "file:///tmp"})
    with pytest.raises(ValueError, match="tier_shard is set without tier_url"):
        BrokerSettings.model_validate(base | {"tier_shard": "x"})
