"""`gantry controller` three times, as processes on loopback that a test may kill and stop."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

from gantry_lab.bench.ports import free_ports
from gantry_protocol.command import request
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.client import RemotingClient
from support import hanging_disk
from support.patience import STARTS_WITHIN_S


class ControllerProcesses:
    """The processes by number, from 1; ``descriptors`` is their limit of open files."""

    def __init__(self, directory: Path, size: int = 3, *, descriptors: int = 1024) -> None:
        self._descriptors = descriptors
        self.running: dict[int, asyncio.subprocess.Process] = {}
        self.addresses: dict[int, str] = {}
        self._directory = directory
        self._environment: dict[int, dict[str, str]] = {}
        ports = free_ports(4 * size)
        chunks = [ports[4 * number : 4 * number + 4] for number in range(size)]
        peers = ",".join(
            f"{number}=127.0.0.1:{raft}:{remoting}:{http}"
            for number, (raft, remoting, http, _) in enumerate(chunks, start=1)
        )
        for number, (raft, remoting, http, names) in enumerate(chunks, start=1):
            self.addresses[number] = f"127.0.0.1:{remoting}"
            self._environment[number] = {
                "GANTRY_NAME": f"c-{number - 1}",
                "GANTRY_PEERS": peers,
                "GANTRY_CLUSTER_UID": "processes",
                "GANTRY_DATA_DIR": str(directory / f"node-{number}"),
                "GANTRY_RAFT_PORT": str(raft),
                "GANTRY_REMOTING_PORT": str(remoting),
                "GANTRY_HTTP_PORT": str(http),
                "GANTRY_NAMESERVER_PORT": str(names),
            }

    async def start(self, *numbers: int) -> None:
        for number in numbers or tuple(self._environment):
            with (self._directory / f"node-{number}.log").open("ab") as log:
                self.running[number] = await asyncio.create_subprocess_exec(
                    *(sys.executable, hanging_disk.__file__, str(self._hangs(number))),
                    "controller",
                    env={**os.environ, **self._environment[number]},
                    stderr=log,
                    preexec_fn=self._limit,
                )

    def _hangs(self, number: int) -> Path:
        return self._directory / f"node-{number}.hangs"

    def hang(self, number: int) -> None:
        """From now on its disk confirms nothing, without an error."""
        self._hangs(number).touch()

    def answer(self, number: int) -> None:
        """Its disk goes on."""
        self._hangs(number).unlink()

    def said(self, number: int) -> str:
        """What it has logged."""
        return (self._directory / f"node-{number}.log").read_text("utf-8")

    def _limit(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._descriptors, self._descriptors))

    def resident_mb(self, number: int) -> float:
        """What the process holds in memory."""
        pages = int(Path(f"/proc/{self.running[number].pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6

    async def kill(self, number: int) -> None:
        process = self.running.pop(number)
        process.kill()
        await process.wait()

    def pause(self, number: int) -> None:
        self.running[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self.running[number].send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        for number in list(self.running):
            await self.kill(number)

    async def led(self, *, besides: int | None = None) -> int:
        """The leader, once one of the others says that it is."""
        async with asyncio.timeout(STARTS_WITHIN_S):
            while True:
                for number in self.running:
                    if number != besides and await self._leads(number):
                        return number
                await asyncio.sleep(0.02)

    async def _leads(self, number: int) -> bool:
        client = RemotingClient()
        try:
            await client.connect(self.addresses[number], 0.5)
            answer = await client.call(request(1005), 0.5)
        except RemotingError:
            return False
        finally:
            client.close()
        return (answer.ext or {}).get("isLeader") == "true"
