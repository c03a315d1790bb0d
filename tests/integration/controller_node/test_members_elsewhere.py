"""Real processes: a joiner that the log cannot fill, members that move, one that should lead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from support.member_processes import Processes, running_processes, writing
from support.patience import STARTS_WITHIN_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    async with running_processes(tmp_path) as processes:
        yield processes


async def until(processes: Processes, node: int, holds: Callable[[Any], bool]) -> Any:
    """What ``node`` says of the quorum, once that holds."""
    async with asyncio.timeout(STARTS_WITHIN_S):
        while True:
            status, view = await processes.ask(node, "GET", "/v1/quorum")
            if status == 200 and holds(view):
                return view
            await asyncio.sleep(0.02)


async def test_a_joiner_is_filled_by_a_snapshot_and_comes_back_elsewhere(
    processes: Processes,
) -> None:
    """The log begins behind a snapshot already; then the new member gets another address.

    In the end one founder is gone, so without the fourth there is no majority.
    """
    await processes.start_founders("--snapshot-margin-entries", "0")
    async with writing(processes, "snapshot to a joiner, then a move") as writer:
        for founder in (1, 2, 3):  # whoever leads
            status, taken = await processes.ask(founder, "POST", "/v1/quorum/snapshot")
            assert status == 200, taken
        await processes.start(4, "--join")
        added = {"node": 4, "address": processes.contact(4)}
        await processes.of_leader("POST", "/v1/quorum/members", added)
        filled = await until(processes, 4, lambda view: view["snapshotIndex"] > 0)
        assert filled["snapshotIndex"] > 1, "it took none itself"
        await processes.of_leader("POST", "/v1/quorum/members/4/promote")
        await processes.end(4)
        processes.move(4)
        moved = f"{processes.peers},4={processes.contact(4)}"
        for founder in (1, 2, 3):
            await processes.end(founder)
            await processes.start(founder, "--peers", moved)
            await writer.more()
        await processes.start(4, "--peers", moved)
        await processes.until_it_votes(4)
        leader = await processes.leader()
        await processes.end(1 if leader != 1 else 2)
        await writer.more()


async def test_the_preferred_member_leads_and_leads_again(processes: Processes) -> None:
    """Whoever is elected, and whoever takes over while it is away.

    With the default time-out: with a shorter one nobody is steady on a busy machine.
    """
    peers, first = processes.peers, ("--election-priority", "5")
    await processes.start(1, "--peers", peers)
    await processes.start(2, "--peers", peers)
    await processes.start(3, "--peers", peers, *first)
    async with writing(processes, "preferred leader") as writer:
        await until(processes, 3, lambda view: view["role"] == "leader")
        await processes.end(3)
        assert await processes.leader() != 3
        await writer.more()
        await processes.start(3, "--peers", peers, *first)
        await until(processes, 3, lambda view: view["role"] == "leader")
