"""The demonstration's view of a tier: what it tells, and what it takes for refused."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from gantry_cli.demo import tier
from gantry_cli.demo.tier import TierWatch, with_tier
from support.tier_directory import TierDirectory, messages


def test_a_manifest_gets_a_tier() -> None:
    objects = [
        {"kind": "ControllerGroup", "metadata": {"name": "gantry"}, "spec": {}},
        {"kind": "BrokerGroup", "metadata": {"name": "orders"}, "spec": {"replicas": 3}},
        {"kind": "BrokerGroup", "metadata": {"name": "other"}, "spec": {"replicas": 3}},
    ]
    _, orders, other = map(json.loads, with_tier(objects, "orders", "file:///t").split(b"\n---\n"))
    assert orders["spec"] == {"replicas": 3, "tier": {"url": "file:///t", "lingerMs": 100}}
    assert "tier" not in other["spec"]


async def test_claims_are_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    watch = TierWatch(tmp_path, "orders", told.append)
    await watch.look()
    assert (watch.end, watch.epoch, told) == (0, 0, [])
    bucket = TierDirectory(tmp_path)
    bucket.claim(1)
    bucket.append(messages("orders", 3))
    await watch.look()
    await watch.look()
    assert (watch.end, watch.epoch) == (bucket.state.end, 1)
    bucket.claim(2)
    await watch.look()
    second = f"orders-broker-2 claims the tier for epoch 2: version 3, from offset {watch.end} on"
    assert told == [
        "orders-broker-1 claims the tier for epoch 1: version 1, from offset 0 on",
        second,
    ]
    assert f"orders-broker-2 uploads for epoch 2 · version 3 · committed {watch.end}" in watch.line


async def test_looks_at_the_same_time_read_no_version_twice(tmp_path: Path) -> None:
    """Whoever waits for an upload looks, too; the chain would seem broken."""
    bucket = TierDirectory(tmp_path)
    bucket.claim(1)
    watch = TierWatch(tmp_path, "orders", lambda _: None)
    await watch.look()
    for _ in range(3):
        bucket.append(messages("orders", 1))
        await asyncio.gather(*(watch.look() for _ in range(4)))
    assert watch.judgement is not None
    assert watch.judgement.findings == []
    assert watch.end == bucket.state.end


async def test_a_frozen_upload_is_refused_when_another_has_claimed(tmp_path: Path) -> None:
    bucket = TierDirectory(tmp_path)
    bucket.claim(1)
    bucket.append(messages("orders", 3))
    pack = bucket.build(messages("orders", 2))
    watch = TierWatch(tmp_path, "orders", lambda _: None)
    await watch.look()
    signals: list[signal.Signals] = []
    freezing = asyncio.create_task(watch.freeze(signals.append))
    await asyncio.sleep(0.05)
    assert signals == []
    bucket.put(str(pack.key), pack.data)
    assert await freezing == pack.key
    assert signals == [signal.SIGSTOP]
    assert watch.refused(pack.key) is None
    bucket.claim(2)
    await watch.look()
    assert watch.refused(pack.key) == (
        "its place, version 3, is orders-broker-2's claim for epoch 2"
    )

    async def confirm() -> int:
        return bucket.state.end

    account = await watch.account(confirm, bucket.state.end, [pack.key])
    assert account.findings == []
    assert account.refused == [str(pack.key)]
    assert [one.epoch for one in account.uploaders] == [1, 2]
    assert (account.versions, account.packs) == (3, 1)


async def test_what_was_committed_after_all_is_not_refused(tmp_path: Path) -> None:
    bucket = TierDirectory(tmp_path)
    bucket.claim(1)
    pack = bucket.append(messages("orders", 3))
    bucket.claim(2)
    watch = TierWatch(tmp_path, "orders", lambda _: None)
    await watch.look()
    assert watch.refused(pack.key) is None


async def test_a_master_without_an_upload_is_frozen_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "CATCH_PATIENCE_S", 0.05)
    bucket = TierDirectory(tmp_path)
    bucket.claim(1)
    bucket.append(messages("orders", 3))
    watch = TierWatch(tmp_path, "orders", lambda _: None)
    await watch.look()
    signals: list[signal.Signals] = []
    assert await watch.freeze(signals.append) is None
    assert signals == [signal.SIGSTOP]


async def test_a_master_that_has_committed_is_woken_and_caught_the_next_time(
    tmp_path: Path,
) -> None:
    bucket = TierDirectory(tmp_path)
    bucket.claim(1)
    bucket.append(messages("orders", 3))
    watch = TierWatch(tmp_path, "orders", lambda _: None)
    await watch.look()
    signals: list[signal.Signals] = []
    freezing = asyncio.create_task(watch.freeze(signals.append))
    await asyncio.sleep(0.05)
    bucket.append(messages("orders", 2))
    while signal.SIGCONT not in signals:
        await asyncio.sleep(0.01)
    pack = bucket.build(messages("orders", 2))
    await asyncio.sleep(0.05)
    bucket.put(str(pack.key), pack.data)
    assert await freezing == pack.key
    assert signals == [signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP]


async def test_a_byte_above_confirm_is_a_finding(tmp_path: Path) -> None:
    bucket = TierDirectory(tmp_path)
    bucket.claim(1)
    pack = bucket.append(messages("orders", 3))
    watch = TierWatch(tmp_path, "orders", lambda _: None)
    await watch.look()

    async def confirm() -> int:
        return bucket.state.end - 1

    (finding,) = (await watch.account(confirm, 0, [])).findings
    assert finding.startswith(f"fault T6: {bucket.place.key(str(pack.key))} offset ")
