"""Everything one member does with its tier begins and ends together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from gantry_broker.tier.options import TierOptions
from gantry_broker.tier.seen import Seen
from gantry_broker.tier.service import TierService
from gantry_broker.tier.stores.credentials import Credentials
from gantry_protocol.tier.chain import empty
from gantry_protocol.tier.keys import Pair
from gantry_protocol.types import Epoch
from support.upload_harness import LIMITS, PLACE, local


def service_in(
    directory: Path, local_bytes: int | None, failed: list[BaseException]
) -> TierService:
    """One of a member whose log has 100 bytes."""
    options = TierOptions(directory.as_uri(), PLACE, Credentials(), None, None, LIMITS, local_bytes)
    log = local(100)
    host: Any = SimpleNamespace(store=SimpleNamespace(log=None), local_log=lambda: log)
    return TierService(
        options,
        host,
        cast("Any", SimpleNamespace()),
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


async def test_the_log_is_not_trimmed_by_a_tier_that_cannot_be_followed(tmp_path: Path) -> None:
    service = service_in(tmp_path, 10, [])
    assert service.retention is not None
    service.reader.index.chain = msgspec.structs.replace(empty(PLACE), v=2, end=100)
    assert service.retention._readable_end() == 100
    service.reader.reason = "it shows no version"
    assert service.retention._readable_end() == 0
