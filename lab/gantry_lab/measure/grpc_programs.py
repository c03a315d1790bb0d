"""Processes that the measurement of gRPC clients starts: Java programs, and proxies of both makes.

Rule protected: whatever ends the measurement, its processes end with it, and nothing is waited for
without a bound. A program that ends by itself fails whoever waits for its next word.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import aiohttp
from gantry_protocol.errors import GantryError
from support import java

from gantry_lab.bench.members import CLUSTER
from gantry_lab.bench.ports import free_ports
from gantry_lab.bench.processes import HOST, Processes

START_PATIENCE_S = 120.0
READY_PATIENCE_S = 60.0
ASK_S = 0.05
LINE_BYTES = 1 << 20
ERRORS_SHOWN = 1_000
CLIENT_FLAGS = ("-Xmx256m",)
PROXY_FLAGS = ("-Xms1g", "-Xmx1g")
PROXY_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"
Found = TypeVar("Found")
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class JavaProcess:
    """A Java program that is told lines and says lines; use as an async context manager.

    Args:
        home: its own directory.
        classpath: of it.
        program: its main class, and what it is given.
        flags: of its virtual machine.
        started: whether a line says that it has started.
        settings: environment variables besides.
        heard: is given the words of each line that nobody waits for.
    """

    def __init__(
        self,
        home: Path,
        classpath: str,
        program: Sequence[object],
        *,
        flags: Sequence[str] = CLIENT_FLAGS,
        started: Callable[[str], bool] = lambda line: line.startswith("READY"),
        settings: Mapping[str, str] = NO_SETTINGS,
        heard: Callable[[list[str]], None] = lambda _: None,
    ) -> None:
        self._home = home
        self._command = ["java", *flags, f"-Duser.home={home}", "-cp", classpath]
        self._command += map(str, program)
        self._started = started
        self._settings = settings
        self._heard = heard
        self._start: asyncio.Future[None] | None = None
        self._expected: dict[str, asyncio.Future[list[str]]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._home.mkdir(parents=True)
        self._start = asyncio.get_running_loop().create_future()
        with self._errors.open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **self._settings},
                limit=LINE_BYTES,
                start_new_session=True,  # Ctrl-C is ours
            )
        self._reading = asyncio.create_task(self._read())
        try:
            await _within(START_PATIENCE_S, self._start, f"The start of {self._command[-1]}")
        except BaseException:
            await self.end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None, "use it as a context manager"
        return self._process.pid

    async def ask(self, command: str, kind: str, patience_s: float) -> list[str]:
        """Tell it a line; the words behind `kind` of the next line that begins so.

        Raises:
            GantryError: there is none in time, or it has ended.
        """
        heard = self.expect(kind)
        await self.tell(command)
        return await _within(patience_s, heard, f"The answer {kind} to {command!r}")

    def expect(self, kind: str) -> asyncio.Future[list[str]]:
        """The words behind `kind` of the next line that begins so; one at a time for each kind."""
        self.check()
        assert kind not in self._expected, kind
        self._expected[kind] = asyncio.get_running_loop().create_future()
        return self._expected[kind]

    async def tell(self, command: str) -> None:
        """Write a line to it."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        await self._process.stdin.drain()

    def check(self) -> None:
        """Raise if it has ended."""
        if self._reading is None or self._reading.done():
            raise self._ended()

    async def end(self) -> None:
        """SIGKILL; all that it has said is heard afterwards."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._start is not None
        async for line in self._process.stdout:
            text = line.decode("utf-8", "replace")
            if not self._start.done() and self._started(text):
                self._start.set_result(None)
            kind, *words = text.split() or [""]
            expected = self._expected.pop(kind, None)
            if expected is None:
                self._heard([kind, *words])
            elif not expected.done():
                expected.set_result(words)
        waited_for: list[asyncio.Future[Any]] = [self._start, *self._expected.values()]
        for waiting in waited_for:
            if not waiting.done():
                waiting.set_exception(self._ended())
                waiting.exception()  # whoever waited may have given up

    def _ended(self) -> GantryError:
        errors = self._errors.read_text("utf-8", "replace")[-ERRORS_SHOWN:]
        return GantryError(f"The program {' '.join(self._command[-6:])} ended: {errors!r}.")

    @property
    def _errors(self) -> Path:
        return self._home / "stderr"


async def _within(patience_s: float, waited_for: asyncio.Future[Found], what: str) -> Found:
    try:
        async with asyncio.timeout(patience_s):
            return await waited_for
    except TimeoutError:
        raise GantryError(f"{what} did not come in {patience_s:.0f} s.") from None


def load_client(home: Path, endpoints: str, *arguments: str) -> JavaProcess:
    """The official gRPC client as a load (`Load.java`)."""
    program = ("dev.gantry.interop.Load", endpoints, *arguments)
    return JavaProcess(home, java.grpc_clients(), program)


def client(home: Path, heard: Callable[[list[str]], None], *arguments: object) -> JavaProcess:
    """The official gRPC client that goes on until it is killed (`Grpc.java`)."""
    program = ("dev.gantry.interop.Grpc", *arguments)
    return JavaProcess(home, java.grpc_clients(), program, heard=heard)


def rocketmq_proxy(home: Path, name_servers: Sequence[str], port: int) -> JavaProcess:
    """rocketmq-proxy in cluster mode, which serves gRPC at this port once it is entered."""
    (remoting_port,) = free_ports(1)
    settings = {
        "rocketMQClusterName": CLUSTER,
        "proxyMode": "CLUSTER",
        "namesrvAddr": ";".join(name_servers),
        "grpcServerPort": port,
        "remotingListenPort": remoting_port,
        "localServeAddr": HOST,
        "useEndpointPortFromRequest": True,
    }
    place = home.with_name(f"{home.name}-conf")
    (place / "conf").mkdir(parents=True)
    (place / "conf" / "rmq-proxy.json").write_text(json.dumps(settings), "utf-8")
    return JavaProcess(
        home,
        java.proxy(),
        (PROXY_MAIN,),
        flags=PROXY_FLAGS,
        started=lambda line: "successfully" in line,
        settings={"RMQ_PROXY_HOME": str(place), "ROCKETMQ_HOME": str(place)},
    )


class Proxies:
    """Proxies of ours, which serve clients that speak gRPC; use as an async context manager.

    Args:
        directory: for their logs; it is made.
        name_servers: of the cluster.
        count: how many.
    """

    def __init__(self, directory: Path, name_servers: Sequence[str], count: int) -> None:
        self._processes = Processes(directory)
        self._name_servers = ",".join(name_servers)
        free = iter(free_ports(2 * count))
        self._ports = [(next(free), next(free)) for _ in range(count)]

    async def __aenter__(self) -> Self:
        self._processes.directory.mkdir()
        try:
            for number in range(len(self._ports)):
                await self.start(number)
        except BaseException:
            await self._processes.end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._processes.end()

    @property
    def endpoints(self) -> str:
        """All of them, as clients take them."""
        return ";".join(f"{HOST}:{grpc_port}" for grpc_port, _ in self._ports)

    def pid(self, number: int) -> int:
        """The process id of one."""
        return self._processes.pid(_name(number))

    async def start(self, number: int) -> None:
        """Start one that does not run, and wait until it is ready.

        Raises:
            GantryError: it ended, or is not ready in time.
        """
        grpc_port, http_port = self._ports[number]
        variables = {
            "GANTRY_CLUSTER": CLUSTER,
            "GANTRY_NAMESERVER": self._name_servers,
            "GANTRY_GRPC_PORT": str(grpc_port),
            "GANTRY_HTTP_PORT": str(http_port),
        }
        await self._processes.start(_name(number), ("gantry_cli", "proxy"), variables)
        deadline_s = time.monotonic() + READY_PATIENCE_S
        while await self._status(number) is None:
            self.check()
            if time.monotonic() > deadline_s:
                raise GantryError(f"The proxy {number} is not ready in {READY_PATIENCE_S:.0f} s.")
            await asyncio.sleep(ASK_S)

    async def kill(self, number: int) -> None:
        """SIGKILL, and until it is gone."""
        await self._processes.kill(_name(number))

    async def busiest(self) -> int:
        """The one that most clients have a stream to; the first of equals."""
        clients = []
        for number in range(len(self._ports)):
            status = await self._status(number)
            clients.append(0 if status is None else int(status["clients"]))
        return clients.index(max(clients))

    def check(self) -> None:
        """Raise if one has ended by itself."""
        self._processes.check()

    async def _status(self, number: int) -> dict[str, Any] | None:
        """Its status document; None unless it is ready."""
        url = f"http://{HOST}:{self._ports[number][1]}/status"
        limit = aiohttp.ClientTimeout(total=READY_PATIENCE_S)
        try:
            async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answer:
                found: dict[str, Any] = await answer.json()
        except (aiohttp.ClientError, TimeoutError):
            return None
        return found if found["ready"] else None


def _name(number: int) -> str:
    return f"proxy-{number}"
