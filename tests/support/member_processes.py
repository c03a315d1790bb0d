"""`gantry controller` processes that an administrator changes while a client writes to them."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from gantry_lab.bench.ports import free_ports
from support.patience import STARTS_WITHIN_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKEN = "integration"
UID = "members"


class Processes:
    """`gantry controller` processes, and what an administrator and a client ask of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.token = root / "token"
        self.token.write_text(TOKEN)
        ports = free_ports(16)
        self.ports = {node: ports[4 * node - 4 : 4 * node] for node in range(1, 5)}
        self.running: dict[int, asyncio.subprocess.Process] = {}
        self.session: aiohttp.ClientSession

    def contact(self, node: int) -> str:
        raft, remoting, http, _ = self.ports[node]
        return f"127.0.0.1:{raft}:{remoting}:{http}"

    def move(self, node: int) -> None:
        """From its next start on it listens elsewhere."""
        self.ports[node] = free_ports(4)

    def log(self, node: int) -> Path:
        return self.root / f"{node}.log"

    async def start(self, node: int, *more: str) -> None:
        with self.log(node).open("ab") as log:
            await self._spawn(node, log, *more)

    async def _spawn(self, node: int, log: IO[bytes], *more: str) -> None:
        raft, remoting, http, nameserver = map(str, self.ports[node])
        self.running[node] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gantry_cli", "controller"),
            *("--name", f"c-{node - 1}", "--cluster-uid", UID),
            *("--data-dir", str(self.root / str(node))),
            *("--admin-token-file", str(self.token)),
            *("--raft-port", raft, "--remoting-port", remoting),
            *("--http-port", http, "--nameserver-port", nameserver),
            *more,
            stdout=log,
            stderr=log,
        )

    @property
    def peers(self) -> str:
        return ",".join(f"{node}={self.contact(node)}" for node in (1, 2, 3))

    async def start_founders(self, *more: str) -> None:
        for node in (1, 2, 3):
            await self.start(node, "--peers", self.peers, *more)

    async def ended_by_itself(self, node: int) -> str:
        """What a process said that refused to start."""
        async with asyncio.timeout(STARTS_WITHIN_S):
            assert await self.running.pop(node).wait() == 2
        return self.log(node).read_text().splitlines()[-1]

    async def until_it_votes(self, node: int) -> None:
        """Until this member says of itself that it may vote."""
        async with asyncio.timeout(STARTS_WITHIN_S):
            while True:
                _, view = await self.ask(node, "GET", "/v1/quorum")
                if any(peer["id"] == node and peer["counted"] for peer in view.get("peers", [])):
                    return
                await asyncio.sleep(0.02)

    async def end(self, node: int, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.running.pop(node)
        assert process.returncode is None, "it ended by itself"
        process.send_signal(how)
        await process.wait()

    async def ask(self, node: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.ports[node][2]}{path}"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        try:
            async with self.session.request(method, url, json=body, headers=headers) as response:
                return response.status, await response.json()
        except (aiohttp.ClientError, OSError):
            return 0, {}

    async def of_leader(self, method: str, path: str, body: object = None) -> Any:
        """Ask everybody until one that leads has done it, like a patient client."""
        async with asyncio.timeout(STARTS_WITHIN_S):
            while True:
                for node in list(self.running):
                    status, view = await self.ask(node, method, path, body)
                    if status == 200:
                        return view
                await asyncio.sleep(0.02)

    async def leader(self) -> int:
        async with asyncio.timeout(STARTS_WITHIN_S):
            while True:
                for node in list(self.running):
                    status, view = await self.ask(node, "GET", "/v1/quorum")
                    if status == 200 and view["role"] == "leader":
                        return node
                await asyncio.sleep(0.02)

    async def gantry(self, *words: str) -> tuple[int, str, str]:
        """`gantry controllers WORDS`, as a person types it."""
        addresses = ",".join(f"127.0.0.1:{self.ports[node][2]}" for node in self.running)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gantry_cli", "controllers", *words),
            *("--controllers", addresses, "--admin-token-file", str(self.token)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()


@asynccontextmanager
async def running_processes(root: Path) -> AsyncIterator[Processes]:
    """None runs yet; those that are started end with the context."""
    processes = Processes(root)
    timeout = aiohttp.ClientTimeout(total=4.0)
    async with aiohttp.ClientSession(timeout=timeout) as processes.session:
        try:
            yield processes
        finally:
            for process in processes.running.values():
                if process.returncode is None:
                    process.kill()
                await process.wait()


class Writer:
    """Declares one group after the other, and remembers which were acknowledged."""

    def __init__(self, processes: Processes) -> None:
        self.acknowledged: list[str] = []
        self.longest_gap_s = 0.0
        self._processes = processes
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        last = clock()
        for number in range(1_000_000):
            name = f"g{number}"
            body = {"uid": name, "replicas": 1, "minInSyncReplicas": 1}
            await self._processes.of_leader("PUT", f"/v1/groups/c/{name}", body)
            self.acknowledged.append(name)
            now = clock()
            if number:  # the first one waits for the processes to start
                self.longest_gap_s = max(self.longest_gap_s, now - last)
            last = now

    async def more(self) -> None:
        """Until some more writes have been acknowledged."""
        wanted = len(self.acknowledged) + 5
        async with asyncio.timeout(STARTS_WITHIN_S):
            while len(self.acknowledged) < wanted:
                await asyncio.sleep(0.01)

    async def stop(self) -> set[str]:
        """Ends; all that was acknowledged and is gone."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        held: set[str] = set()
        path: str | None = "/v1/groups"
        while path is not None:
            view = await self._processes.of_leader("GET", path)
            held |= {group["name"] for group in view["groups"]}
            token = view.get("continue")
            path = None if token is None else f"/v1/groups?continue={quote(token, safe='')}"
        return set(self.acknowledged) - held


@asynccontextmanager
async def writing(processes: Processes, what: str) -> AsyncIterator[Writer]:
    """Writes go on meanwhile; none that was acknowledged may be lost."""
    writer = Writer(processes)
    await writer.more()
    yield writer
    await writer.more()
    assert await writer.stop() == set()
    print(f"{what}: {len(writer.acknowledged)} writes, pause {writer.longest_gap_s:.3f} s")
