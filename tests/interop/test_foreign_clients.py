"""Unmodified clients in Go, C++ and Node with their defaults, against three brokers.

The C++ client is also what Python's and PHP's bindings are made of. Skipped where the tools are
missing; `make interop` runs it. Nothing here asserts a time: gaps are printed, and written to the
test report. More kills: ``python -m support.client_kills``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support.broker_cluster import eventually
from support.client_kills import TOPIC, Sent, Strike, group_behind, run, strike
from support.foreign_clients import CLIENTS, Programs, missing, started

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(params=sorted(CLIENTS))
def programs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Programs:
    if reason := missing(request.param):
        pytest.skip(reason)
    built = CLIENTS[request.param]()
    monkeypatch.setenv("HOME", str(tmp_path))  # where some keep logs and offsets
    return built


async def test_a_consumer_gets_what_is_sent_while_masters_end(
    programs: Programs, tmp_path: Path
) -> None:
    async with group_behind(tmp_path, "door") as (group, service):
        names = group.controller.address
        async with (
            started([*programs.consumer, names, TOPIC, "interop-group"]) as received,
            started([*programs.producer, names, TOPIC, "1000", "5"]) as said,
        ):
            await eventually(lambda: len(received) > 50, "it consumes what is sent")
            first = len(said)  # a new group of the C++ client begins at the end of each queue
            for name in ("SIGKILL", "SIGTERM"):
                before = len(received)
                await strike(group, service, Strike(name))
                await eventually(lambda least=before: len(received) > least + 50, "it goes on")
                await group.settled()
            sent = [msgspec.json.decode(line, type=Sent) for line in said[first:]]
            expected = {one.key for one in sent if one.is_ok}
            await eventually(lambda: expected <= set(received), "it gets all of them")
    twice = {key: count for key, count in Counter(received).items() if count > 1}
    print(f"\n{len(expected)} acknowledged, 0 missing, {len(twice)} delivered more than once")


async def test_a_producer_loses_nothing_when_masters_end(
    programs: Programs, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    strikes = [Strike("SIGKILL"), Strike("SIGTERM")] * 2
    found = await run(tmp_path, programs.producer, strikes, "any")
    print("\n" + found.figures())
    record_property("gaps_ms", [one.gap_ms for one in found.kills])
    assert found.acknowledged > 0
    assert found.lost == []


async def test_through_a_door_nothing_is_stored_twice(
    programs: Programs, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Directly at a killed master a client sends again after its time-out."""
    found = await run(tmp_path, programs.producer, [Strike()] * 2, "door")
    print("\n" + found.figures())
    record_property("gaps_ms", [one.gap_ms for one in found.kills])
    assert (found.lost, found.duplicated) == ([], [])
