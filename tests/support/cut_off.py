"""A group of broker processes whose members can be cut off from controllers and from each other.

Every broker listens on an address of its own and is known to the others by a second one, where a
relay stands; another relay stands between it and the controllers. A relay that is cut takes
connections and bytes and passes nothing on, in either direction, as a network does that drops
packets; mended, it passes on what has come meanwhile. Clients reach the brokers themselves. It
needs no privileges.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from support.broker_processes import Group, Process

PORTS = (10911, 10912)
CHUNK_BYTES = 256 * 1024


class Relay:
    """One listener and where it leads."""

    def __init__(self, to: tuple[str, int]) -> None:
        self.address = ""
        self._to = to
        self._flows = asyncio.Event()
        self._flows.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, host, port)
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        self._flows.clear()

    def mend(self) -> None:
        self._flows.set()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        try:
            await self._flows.wait()
            back, forth = await asyncio.open_connection(*self._to)
            ends.append(forth)
            done, others = await asyncio.wait(
                [
                    asyncio.create_task(self._pass_on(reader, forth)),
                    asyncio.create_task(self._pass_on(back, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
            for other in others:
                other.cancel()
            await asyncio.gather(*done, *others, return_exceptions=True)
        except OSError:
            pass  # the listener behind is gone
        finally:
            self._tasks.discard(task)
            for end in ends:
                end.close()
                with suppress(OSError, asyncio.CancelledError):
                    await end.wait_closed()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
        await self._flows.wait()


class _Around(NamedTuple):
    """The relays of one broker."""

    control: Relay
    peers: list[Relay]


class CutGroup(Group):
    """Members that can be cut off; see the module."""

    def __init__(self, directory: Path, members: int = 3) -> None:
        super().__init__(directory, members)
        self._around: dict[str, _Around] = {}

    async def start(self) -> None:
        await self.controller.start()
        self.controller.declare(self.members, min(self.members, 2))
        host, port = self.controller.address.split(":")
        for number in range(1, self.members + 1):
            ip, known_as = f"{self.network}.{number}", f"{self.network}.{100 + number}"
            around = _Around(Relay((host, int(port))), [Relay((ip, one)) for one in PORTS])
            await around.control.start(known_as)
            for relay, one in zip(around.peers, PORTS, strict=True):
                await relay.start(known_as, one)
            self._around[ip] = around
            self.boot(ip)
        await self.settled()

    def boot(self, ip: str) -> None:
        self.processes[ip] = Process(
            self.directory / ip,
            self._around[ip].control.address,
            GANTRY_BIND=ip,
            GANTRY_ADVERTISE=f"{self.network}.{100 + int(ip.rpartition('.')[2])}",
            GANTRY_REMOTING_PORT="10911",
            GANTRY_HA_PORT="10912",
            GANTRY_HTTP_PORT="10913",
            **self.env,
        )

    @property
    def master_ip(self) -> str:
        known_as = super().master_ip
        return f"{self.network}.{int(known_as.rpartition('.')[2]) - 100}"

    def cut(self, ip: str, *, controllers: bool = True, members: bool = True) -> None:
        """From now on ``ip`` hears nothing from them, and they nothing from it."""
        around = self._around[ip]
        for relay in [around.control] * controllers + around.peers * members:
            relay.cut()

    def mend(self, ip: str) -> None:
        around = self._around[ip]
        for relay in (around.control, *around.peers):
            relay.mend()

    async def stop(self) -> None:
        for process in self.processes.values():
            process.process.kill()
            process.process.wait()
        for around in self._around.values():
            for relay in (around.control, *around.peers):
                await relay.stop()
        await self.controller.stop()
