"""Snapshots of whole controllers: on request, across a restart, and to one that was away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.controller_quorum import Quorum, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

import pytest


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[Quorum]:
    quorum = Quorum(tmp_path, snapshot_margin_entries=0)
    await quorum.start()
    yield quorum
    await quorum.stop()


async def test_a_snapshot_on_request_and_what_is_told_of_it(quorum: Quorum) -> None:
    await quorum.declare()
    leader = await quorum.led()
    async with quorum.http(leader) as session:
        async with session.post("/v1/quorum/snapshot") as response:
            assert response.status == 200, await response.text()
            taken = await response.json()
        async with session.post("/v1/quorum/snapshot") as response:
            assert response.status == 409
            assert (await response.json())["error"] == "SNAPSHOT_BUSY"
        async with session.get("/v1/quorum") as response:
            assert (await response.json())["snapshotIndex"] == taken["index"]
        async with session.get("/metrics") as response:
            text = await response.text()
    assert "gantry_controller_snapshots_taken_total 1.0" in text
    assert f"gantry_controller_snapshot_bytes {float(taken['sizeBytes'])}" in text
    found = re.findall(r"snapshot_slice_seconds_bucket{.*} (.*)", text)
    pauses = [float(count) for count in found]
    assert pauses == sorted(pauses)
    assert pauses[-1] > 1


async def test_a_controller_that_was_away_gets_the_snapshot(quorum: Quorum) -> None:
    leader = await quorum.led()
    away = next(n for n, one in quorum.running.items() if one is not leader)
    await quorum.stop(away)
    await quorum.declare()
    meta = await leader.node.snapshots.take()
    await quorum.start(away)
    back = quorum.running[away]
    await until(lambda: back.node.snapshots.stats.installed == 1)
    await until(lambda: back.machine.state.digest() == leader.machine.state.digest())
    assert back.node.snapshots.index == meta.index
    await quorum.stop(away)
    await quorum.start(away)
    assert quorum.running[away].machine.state.digest() == leader.machine.state.digest()
