"""Real processes, killed and started again on the same directory: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from gantry_lab.bench.ports import free_ports
from support.patience import PATIENCE_S

TESTS = Path(__file__).resolve().parents[2]
LEADERS_KILLED = 3
WRITES_BETWEEN = 100


class Processes:
    """Three processes and a client of theirs."""

    def __init__(self, root: Path) -> None:
        ports = free_ports(6)
        self.root = root
        self.client_ports = dict(zip((1, 2, 3), ports[:3], strict=True))
        self.peers = ",".join(f"{n}=127.0.0.1:{port}" for n, port in enumerate(ports[3:], start=1))
        self.running: dict[int, asyncio.subprocess.Process] = {}
        self.leader = 1
        self.acked: list[bytes] = []

    async def start(self, node: int) -> None:
        arguments = {
            "node": node,
            "peers": self.peers,
            "directory": self.root / str(node),
            "port": self.client_ports[node],
        }
        flags = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
        self.running[node] = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "support.raft_process",
            *flags,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )

    async def kill(self, node: int, signal_number: int) -> int:
        process = self.running.pop(node)
        process.send_signal(signal_number)
        return await process.wait()

    async def ask(self, node: int, line: bytes) -> bytes:
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.client_ports[node], limit=1 << 20
            )
        except ConnectionError:
            await asyncio.sleep(0.01)
            return b""
        try:
            writer.write(line + b"\n")
            return (await reader.readline()).strip()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def write(self, command: bytes) -> None:
        """Repeat until some leader says ok; a repeated command may be in the log twice."""
        while True:
            word, _, rest = (await self.ask(self.leader, command)).partition(b" ")
            if word == b"ok":
                self.acked.append(command)
                return
            self.leader = int(rest) if rest else self.leader % 3 + 1

    async def applied(self, node: int) -> list[bytes]:
        return (await self.ask(node, b"?")).split()


async def test_acknowledged_commands_survive_kills_of_the_leader(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    try:
        for node in (1, 2, 3):
            await processes.start(node)
        number = 0
        for _ in range(LEADERS_KILLED):
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(WRITES_BETWEEN):
                    number += 1
                    await processes.write(b"c%d" % number)
            victim = processes.leader
            assert await processes.kill(victim, signal.SIGKILL) == -signal.SIGKILL
            async with asyncio.timeout(PATIENCE_S):
                number += 1
                await processes.write(b"c%d" % number)
            await processes.start(victim)
        logs: list[list[bytes]] = []
        async with asyncio.timeout(PATIENCE_S):
            while len({tuple(log) for log in logs}) != 1 or set(logs[0]) != set(processes.acked):
                await asyncio.sleep(0.05)
                logs = [await processes.applied(node) for node in (1, 2, 3)]
        firsts = sorted(processes.acked, key=logs[0].index)
        assert firsts == processes.acked, "acknowledged in the order of the log"
        for node in (1, 2, 3):
            assert await processes.kill(node, signal.SIGTERM) == 0
    finally:
        for process in processes.running.values():
            process.kill()
            await process.wait()


async def test_whole_quorum_killed_at_once_comes_back_with_everything(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    try:
        for node in (1, 2, 3):
            await processes.start(node)
        async with asyncio.timeout(PATIENCE_S):
            for number in range(50):
                await processes.write(b"c%d" % number)
        for node in (1, 2, 3):
            await processes.kill(node, signal.SIGKILL)
        for node in (1, 2, 3):
            await processes.start(node)
        async with asyncio.timeout(PATIENCE_S):
            await processes.write(b"last")
            assert set(await processes.applied(processes.leader)) == set(processes.acked)
    finally:
        for process in processes.running.values():
            process.kill()
            await process.wait()
