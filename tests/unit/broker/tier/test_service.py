"""Everything one member does with its tier begins and ends together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from gantry_broker.tier.core.values import State
from gantry_broker.tier.options import TierOptions
from gantry_broker.tier.seen import FILE, Seen
from gantry_broker.tier.service import TierService
from gantry_broker.tier.stores.credentials import Credentials
from gantry_protocol.tier.chain import empty
from gantry_protocol.tier.keys import Pair
from gantry_protocol.types import Epoch
from support.patience import PATIENCE_S
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


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
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
