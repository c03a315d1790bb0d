"""Everything one member does with its tier begins and ends together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from gantry_broker.tier import shared as shared_module
from gantry_broker.tier.core.values import State
from gantry_broker.tier.options import TierOptions
from gantry_broker.tier.reader import TierReader
from gantry_broker.tier.seen import FILE, Seen
from gantry_broker.tier.service import TierService
from gantry_broker.tier.shared import SharedTier
from gantry_broker.tier.stores.credentials import Credentials
from gantry_broker.tier.stores.posix import PosixStore
from gantry_protocol.tier.chain import empty
from gantry_protocol.tier.keys import Pair
from gantry_protocol.types import Epoch
from support.patience import PATIENCE_S
from support.tier_directory import TierDirectory, messages
from support.upload_harness import LIMITS, PLACE, local


def service_in(
    directory: Path,
    local_bytes: int | None,
    failed: list[BaseException],
    tier: Path | None = None,
    end: int = 100,
) -> TierService:
    """One of a member whose log ends there."""
    tier = tier or directory
    limits = msgspec.structs.replace(LIMITS, linger_ms=10, head_ms=3_600_000)
    for path in (directory, tier):
        path.mkdir(exist_ok=True)
    options = TierOptions(tier.as_uri(), PLACE, Credentials(), None, None, limits, local_bytes)
    log = local(end)
    host: Any = SimpleNamespace(store=SimpleNamespace(log=None), local_log=lambda: log)
    return TierService(
        options,
        SharedTier(options),
        host,
        cast("Any", SimpleNamespace(tier_committed=print, tier_fenced=lambda own, by: None)),
        group="orders",
        writer="broker-0",
        seen=Seen(directory, options.url, PLACE),
        failed=failed.append,
    )


@pytest.mark.parametrize("local_bytes", [None, 1 << 20], ids=["keeps all", "trims"])
async def test_nothing_goes_on_after_a_stop(tmp_path: Path, local_bytes: int | None) -> None:
    failed: list[BaseException] = []
    service = service_in(tmp_path, local_bytes, failed)
    service.start()
    service.uploader.promoted(Pair(Epoch(1), 1))
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) > 1
    await service.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert failed == []


async def until(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.005)


async def test_who_reads_the_tier_remembers_that_it_is_there(tmp_path: Path) -> None:
    """And tells its own uploader, which hears in no other way that another master uploads."""
    failed: list[BaseException] = []
    stores = tmp_path / "tier"
    here, there = (
        service_in(tmp_path / name, None, failed, tier=stores, end=0) for name in ("here", "there")
    )
    here.start()
    here.uploader.promoted(Pair(Epoch(1), 1))
    await until(lambda: here.reader.index.chain.v > 0)
    assert (tmp_path / "here" / FILE).exists()
    there.uploader.promoted(Pair(Epoch(2), 2))
    await until(lambda: here.reader.index.chain.pair == Pair(Epoch(2), 2))
    assert here.uploader.status.state is State.FENCED
    assert not (tmp_path / "there" / FILE).exists(), "nobody has read it there"
    await here.stop()
    await there.stop()
    assert failed == []


async def test_the_log_is_not_trimmed_by_a_tier_that_cannot_be_followed(tmp_path: Path) -> None:
    service = service_in(tmp_path, 10, [])
    assert service.retention is not None
    service.reader.index.chain = msgspec.structs.replace(empty(PLACE), v=2, end=100)
    assert service.retention._readable_end() == 100
    service.reader.reason = "it shows no version"
    assert service.retention._readable_end() == 0


async def test_indexes_of_all_groups_of_a_process_have_one_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_module, "RUNS_MAX", 4)
    tiers = [TierDirectory(tmp_path / name) for name in ("one", "two")]
    options = TierOptions(
        tiers[0].root.as_uri(), PLACE, Credentials(), None, None, LIMITS, groups=2
    )
    shared = SharedTier(options)
    assert shared.rest_s == pytest.approx(2 * shared_module.LOOK_EACH_S)
    readers = []
    for tier in tiers:
        tier.claim(1)
        for _ in range(4):
            tier.append(messages("orders", 1))
        readers.append(
            TierReader(
                PosixStore(tier.root),
                tier.place,
                follow_s=0.1,
                moved=lambda chain: None,
                failed=print,
                has_room=lambda: shared.runs_left() > 0,
            )
        )
    try:
        for reader in readers:
            shared.begins(reader)
            reader.start()
            await until(lambda: shared.runs_left() == 0, 20)
        await until(lambda: readers[1].index.chain.v == readers[0].index.chain.v, 20)
        assert [reader.index.runs.size for reader in readers] == [4, 0]
        assert (readers[0].index.waiting, readers[1].index.waiting) == (0, 4)
        await readers[0].stop()
        shared.ends(readers[0])
        readers[1].poke()
        await until(lambda: readers[1].index.waiting == 0, 20)
        assert shared.runs_left() == 0
    finally:
        for reader in readers:
            await reader.stop()
        await shared.close()


async def test_chains_are_followed_a_few_at_a_time(tmp_path: Path) -> None:
    tier = TierDirectory(tmp_path)
    tier.claim(1)
    looks = asyncio.Semaphore(1)
    reader = TierReader(
        PosixStore(tier.root),
        tier.place,
        follow_s=0.1,
        moved=lambda chain: None,
        failed=print,
        looks=looks,
    )
    async with looks:
        reader.start()
        await until(lambda: bool(looks._waiters) or reader.index.chain.v > 0)
        assert reader.index.chain.v == 0, "others look"
    await until(lambda: reader.index.chain.v == 1)
    await reader.stop()
    assert not looks.locked()
