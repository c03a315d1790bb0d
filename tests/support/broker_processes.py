"""Broker processes on loopback, and a group of three of them with a controller."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
from gantry_controller.metadata.events import DeclareFronts, encode_event
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.client import RemotingClient
from support import hanging_disk
from support.broker_cluster import eventually, send_command
from support.loopback_controller import CLUSTER, GROUP, LoopbackController
from support.patience import PATIENCE_S, STARTS_WITHIN_S

NOT_NOW = frozenset({1, 2, 14})  # of answers: too few in sync yet, busy, no master


def own_network() -> str:
    """The first three numbers of loopback addresses that no other test process uses meanwhile."""
    high, low = divmod(os.getpid(), 250)
    return f"127.{80 + high % 140}.{low}"


class Process:
    """One `gantry broker`; while the file `hangs` exists its disk does not answer."""

    def __init__(self, directory: Path, controllers: str = "127.0.0.1:1", **env: str) -> None:
        self.hangs = directory.with_name(f"{directory.name}.hangs")
        self.log = directory.with_name(f"{directory.name}.log")
        variables = {
            "GANTRY_GROUP": GROUP,
            "GANTRY_CLUSTER": CLUSTER,
            "GANTRY_CONTROLLERS": controllers,
            "GANTRY_DATA_DIR": str(directory),
            "GANTRY_REMOTING_PORT": "0",
            "GANTRY_HA_PORT": "0",
            "GANTRY_HTTP_PORT": "0",
            "GANTRY_LOCK_WAIT_S": "0",
            "GANTRY_LOG_SEGMENT_BYTES": str(1 << 20),
            **env,
        }
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, hanging_disk.__file__, str(self.hangs), "broker"],
                env={**os.environ, **{key: value for key, value in variables.items() if value}},
                stderr=output,
            )

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8")

    def exit_code(self) -> int:
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()

    @property
    def sentence(self) -> str:
        """What was said besides log lines."""
        lines = [line for line in self.said.splitlines() if not line.startswith("time=")]
        return "\n".join(lines)


class Door:
    """One `gantry door`, which outlives the broker at its address."""

    def __init__(self, directory: Path, ip: str, controllers: str, **env: str) -> None:
        self.address = f"{ip}:10910"
        self.log = directory / f"{ip}.door.log"
        variables = {
            "GANTRY_GROUP": GROUP,
            "GANTRY_CLUSTER": CLUSTER,
            "GANTRY_CONTROLLERS": controllers,
            "GANTRY_BIND": ip,
            **env,
        }
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gantry_cli", "door"],
                env={**os.environ, **variables},
                stderr=output,
            )

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page at its HTTP port."""
        ip, _, _ = self.address.rpartition(":")
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{ip}:10920{path}") as answer,
        ):
            return answer.status, await answer.text()

    async def ready(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            status, _ = await self.get("/readyz")
            return status == 200
        return False

    async def status(self) -> dict[str, Any] | None:
        """Its status document; None while it does not listen."""
        with contextlib.suppress(aiohttp.ClientError):
            _, text = await self.get("/status")
            found: dict[str, Any] = json.loads(text)
            return found
        return None


class Front:
    """One `gantry front`, for the group with the index 0."""

    def __init__(self, directory: Path, ip: str, controllers: str, **env: str) -> None:
        self.address = f"{ip}:10950"
        self.log = directory / f"{ip}.front.log"
        variables = {"CLUSTER": CLUSTER, "CONTROLLERS": controllers, "BIND": ip}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gantry_cli", "front"],
                env={
                    **os.environ,
                    **{f"GANTRY_{key}": text for key, text in variables.items()},
                    **env,
                },
                stderr=output,
            )

    async def status(self) -> dict[str, Any] | None:
        """Its status document; None while it does not listen."""
        ip, _, _ = self.address.rpartition(":")
        with contextlib.suppress(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{ip}:10921/status") as answer,
            ):
                found: dict[str, Any] = await answer.json()
                return found
        return None

    async def groups(self) -> list[dict[str, Any]]:
        """The groups of its status document; none while it does not listen."""
        found = await self.status()
        return [] if found is None else list(found["groups"])

    async def metrics(self) -> dict[str, float]:
        """Its metrics without labels."""
        ip, _, _ = self.address.rpartition(":")
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{ip}:10921/metrics") as answer,
        ):
            lines = [line.rpartition(" ") for line in (await answer.text()).splitlines()]
        return {name: float(text) for name, _, text in lines if name and name[0] != "#"}

    async def serves(self) -> bool:
        """Whether it answers sends itself."""
        return any(group["storeAddress"] for group in await self.groups())

    async def served(self) -> int:
        """Sends and pulls that it has answered itself."""
        return sum(group["served"] for group in await self.groups())


class Group:
    """Processes on addresses of their own, and a controller."""

    env: dict[str, str] = {}  # noqa: RUF012 - replaced, never changed
    door_env: dict[str, str] = {}  # noqa: RUF012 - likewise
    front_env: dict[str, str] = {}  # noqa: RUF012 - likewise

    def __init__(self, directory: Path, members: int = 3) -> None:
        self.directory = directory
        self.members = members
        self.network = own_network()
        self.controller = LoopbackController()
        self.processes: dict[str, Process] = {}
        self.doors: dict[str, Door] = {}
        self.fronts: dict[str, Front] = {}
        self.acknowledged: list[float] = []
        self.codes: set[int] = set()
        self.remarks: dict[int, set[str]] = {}
        self._turn = 0

    async def start(self) -> None:
        await self.controller.start()
        self.controller.declare(self.members, min(self.members, 2))
        for number in range(1, self.members + 1):
            self.boot(f"{self.network}.{number}")
        await self.settled()

    def boot(self, ip: str) -> None:
        if ip in self.processes:
            self.processes[ip].process.wait()
        self.processes[ip] = Process(
            self.directory / ip,
            self.controller.address,
            GANTRY_BIND=ip,
            GANTRY_REMOTING_PORT="10911",
            GANTRY_HA_PORT="10912",
            GANTRY_HTTP_PORT="10913",
            GANTRY_LOCK_WAIT_S="5",
            **self.env,
        )

    async def open_doors(self) -> None:
        """A door beside each member."""
        for ip in self.processes:
            self.doors[ip] = Door(self.directory, ip, self.controller.address, **self.door_env)
        for door in self.doors.values():
            while not await door.ready():
                assert door.process.poll() is None, door.log.read_text("utf-8")
                await asyncio.sleep(0.05)

    async def open_fronts(self, count: int) -> None:
        """So many fronts; members need ``GANTRY_STORE_PORT`` 10914."""
        for number in range(101, 101 + count):
            self.boot_front(f"{self.network}.{number}")
        await self.fronts_serve()

    def boot_front(self, ip: str) -> None:
        """Start a front there, in place of one that has ended."""
        self.fronts[ip] = Front(self.directory, ip, self.controller.address, **self.front_env)

    def declare_fronts(self, ip: str) -> None:
        """Clients' routes name the front there from now on."""
        wish = DeclareFronts(CLUSTER, "edge", ip, 10950, 16)
        self.controller.quorum._apply(encode_event(wish))

    async def serves_from_tier(self, ip: str) -> dict[str, Any]:
        """The group's part in the status of a front, once that serves it from its tier."""
        front = self.fronts[ip]
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for row in await front.groups():
                    if row["tier"]["isServed"]:
                        return row
                assert front.process.poll() is None, front.log.read_text("utf-8")
                await asyncio.sleep(0.05)

    async def fronts_serve(self) -> None:
        """Until all of them answer sends themselves."""
        async with asyncio.timeout(STARTS_WITHIN_S):
            for front in self.fronts.values():
                while not await front.serves():
                    assert front.process.poll() is None, front.log.read_text("utf-8")
                    await asyncio.sleep(0.05)

    async def settled(self) -> None:
        await eventually(
            lambda: (
                len(self.controller.machine.state.groups[CLUSTER, GROUP].sync_state_set)
                == len(self.processes)
            ),
            "all are in the set",
            STARTS_WITHIN_S,
        )

    @property
    def master_ip(self) -> str:
        master = self.controller.group.master
        assert master is not None
        return master.address.partition(":")[0]

    async def ask(
        self, command: RemotingCommand, again: Container[int] = NOT_NOW
    ) -> RemotingCommand:
        """Like a client of a Service: any broker, the next one until an answer is not `again`."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self._turn += 1
                ip = sorted(self.processes)[self._turn % len(self.processes)]
                client = RemotingClient()
                with suppress(RemotingError):
                    await client.connect(f"{ip}:10911", 0.5)
                    answer = await client.call(command, 8)
                    if answer.code not in again:
                        client.close()
                        return answer
                client.close()
                await asyncio.sleep(0.05)

    async def until(self, ip: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The status document of ``ip``, once it is so."""
        found: dict[str, Any] = {}
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        while not (found and holds(found)):
            assert asyncio.get_running_loop().time() < deadline_s, found
            with suppress(OSError):  # it is not up yet
                found = await asyncio.to_thread(_status, ip)
            await asyncio.sleep(0.1)
        return found

    async def kill(self, ip: str) -> None:
        """SIGKILL."""
        self.processes[ip].process.kill()
        await asyncio.to_thread(self.processes[ip].process.wait)

    async def produce(self) -> None:
        """Like a client of a Service: any broker will do, and the next one after an error."""
        clock = asyncio.get_running_loop().time
        client: RemotingClient | None = None
        while True:
            try:
                if client is None or client.closed:
                    self._turn += 1
                    ip = sorted(self.processes)[self._turn % len(self.processes)]
                    client = await RemotingClient().connect(f"{ip}:10911", 0.5)
                answer = await client.call(send_command(b"x" * 100), 3)
                self.codes.add(answer.code)
                self.remarks.setdefault(answer.code, set()).add(answer.remark or "")
                if answer.code == 0:
                    self.acknowledged.append(clock())
            except RemotingError:
                if client is not None:
                    client.close()
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                if client is not None:
                    client.close()
                raise

    async def acknowledged_after(self, what: str) -> None:
        count = len(self.acknowledged)
        await eventually(lambda: len(self.acknowledged) > count + 5, what)

    async def stop(self) -> None:
        running = [one.process for one in self.processes.values()]
        running += [door.process for door in self.doors.values()]
        running += [front.process for front in self.fronts.values()]
        for process in running:
            process.kill()
            process.wait()
        await self.controller.stop()


def _status(ip: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{ip}:10913/status", timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.load(answer)
        return found
