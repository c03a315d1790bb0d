"""Unmodified Java, Go and C++ clients with their defaults, led to fronts by their routes.

A producer sends one message after the other, and a consumer of the same client gets them, while
fronts and masters end. Nothing here asserts a time: gaps are printed, and written to the test
report. More kills: ``python -m support.client_kills --through front``; all kinds of messages and
consumers: ``test_java_sets.py``.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support import java
from support.broker_cluster import eventually
from support.client_kills import (
    PRODUCERS,
    TOPIC,
    Sent,
    Strike,
    group_behind,
    judge,
    stored_keys,
    strike,
)
from support.foreign_clients import TOOLS, Programs, started
from support.patience import PATIENCE_S

STRIKES = (Strike("SIGKILL", "front"), Strike("SIGKILL", "master"), Strike("SIGTERM", "front"))
PAUSE_MS = "5"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(
    params=["cpp", "go", pytest.param("java", marks=pytest.mark.java)],
)
def programs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Programs:
    name = request.param
    missing = java.MISSING if name == "java" else [TOOLS[name]] * (not shutil.which(TOOLS[name]))
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    built = PRODUCERS[name]()
    monkeypatch.setenv("HOME", str(tmp_path))  # where some keep logs and offsets
    return built


async def test_nothing_is_lost_or_stored_twice_while_fronts_and_masters_end(
    programs: Programs, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    kills = []
    async with group_behind(tmp_path, "front") as (group, service):
        names = group.controller.address
        async with started([*programs.consumer, names, TOPIC, "interop-group"]) as received:
            async with started([*programs.producer, names, TOPIC, "1000000", PAUSE_MS]) as said:
                await eventually(lambda: len(received) > 50, "it consumes what is sent")
                first = len(said)  # a new group of the C++ client begins at the end of each queue
                for what in STRIKES:
                    before = len(received)
                    kills.append(await strike(group, service, what))
                    await eventually(lambda least=before: len(received) > least + 50, "it goes on")
                    await group.settled()
                async with asyncio.timeout(PATIENCE_S):  # a front that began anew counts anew
                    while sum([await one.served() for one in group.fronts.values()]) <= 50:
                        await asyncio.sleep(0.1)
            sent = [msgspec.json.decode(line, type=Sent) for line in said if line[:1] == "{"]
            expected = {one.key for one in sent[first:] if one.is_ok}
            await eventually(lambda: expected <= bodies(received), "it gets all of them")
        found = judge(sent, kills, await stored_keys(f"{group.master_ip}:10911"))
    twice = sum(count > 1 for count in Counter(received).values())
    print(f"\n{found.figures()}\n{len(expected)} to consume, 0 missing, {twice} consumed again")
    record_property("gaps_ms", [(one.victim, one.gap_ms) for one in found.kills])
    assert found.lost == []
    assert found.unexplained == []


def bodies(lines: list[str]) -> set[str]:
    """What a consumer got, of the lines that it printed."""
    return {line.rpartition(" ")[2] for line in lines}
