"""A live history: three processes, clients at all of them, the leader killed, the next one stopped.

What the clients were told is recorded and judged by both oracles, as `gantry_lab chaos check` does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from gantry_chaos.checkers import linearizable
from gantry_chaos.history.lines import write_all
from gantry_chaos.history.operations import history
from support.controller_processes import ControllerProcesses
from support.group_clients import Client, Hearts, Scribe, founded
from support.patience import STARTS_WITHIN_S

CLIENTS = 8
GROUPS = [f"group-{number}" for number in range(4)]
BEFORE, BETWEEN, AFTER = 700, 700, 700  # answers


async def reached(scribe: Scribe, answers: int) -> None:
    async with asyncio.timeout(STARTS_WITHIN_S):
        while scribe.answered < answers:
            await asyncio.sleep(0.01)


async def recorded(
    processes: ControllerProcesses, strike: Callable[[Scribe], Awaitable[None]]
) -> Scribe:
    """The history of clients while ``strike`` does what it does to the processes."""
    scribe = Scribe()
    hearts = Hearts(processes.addresses.values(), GROUPS)
    clients = [Client(f"c{n}", processes.addresses, scribe, n) for n in range(CLIENTS)]
    tasks: list[asyncio.Task[None]] = []
    try:
        leader = await processes.led()
        await founded(processes.addresses[leader], GROUPS)
        for group in GROUPS:  # what the oracles begin with
            assert await clients[0].get(group)
        tasks = [asyncio.create_task(client.run(GROUPS)) for client in clients]
        await strike(scribe)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            client.close()
        await hearts.stop()
    return scribe


async def test_clients_see_one_order_while_leaders_are_killed_and_stopped(tmp_path: Path) -> None:
    processes = ControllerProcesses(tmp_path)

    async def strike(scribe: Scribe) -> None:
        await reached(scribe, BEFORE)
        first = await processes.led()
        scribe.mark("kill", "start")
        await processes.kill(first)
        await reached(scribe, BEFORE + BETWEEN)
        await processes.start(first)
        scribe.mark("kill", "end")
        second = await processes.led()
        scribe.mark("stop", "start")
        processes.pause(second)
        await reached(scribe, BEFORE + BETWEEN + AFTER)
        processes.resume(second)
        scribe.mark("stop", "end")
        await reached(scribe, BEFORE + BETWEEN + AFTER + 100)

    try:
        await processes.start()
        scribe = await recorded(processes, strike)
    finally:
        await processes.stop()
    file = tmp_path / "history.tsv"
    write_all(file, scribe.lines)
    verdict = linearizable.check(history(scribe.lines, "the test").operations)
    assert verdict.violations == ()
    assert int(verdict.figures["operations"] or 0) >= 2000
    assert int(verdict.figures["writes"] or 0) >= 200
    print(f"\nLINEARIZABLE {verdict.figures}")
    done = subprocess.run(
        [sys.executable, "-m", "gantry_lab", "chaos", "check", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Nothing in the history is wrong." in done.stdout
