"""A group in memory behind real sockets: one for its broker, and one more as a name server."""

from __future__ import annotations

import asyncio

from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import RemotingServer
from support.fake_group import FakeGroup


class ServedGroup:
    """A group in memory behind a real socket; a fault that raises cuts the connection."""

    def __init__(self) -> None:
        self.group = FakeGroup(queues=2, topics=())
        self._server = RemotingServer(self._handle)
        self._name_server: RemotingServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Serve everything at `group.address`."""
        port = await self._server.start("127.0.0.1", 0)
        self.group.address = f"127.0.0.1:{port}"

    async def start_name_server(self, port: int = 0) -> int:
        """Serve everything at a second port too, which clients take for the name server's."""
        self._name_server = RemotingServer(self._handle)
        return await self._name_server.start("127.0.0.1", port)

    async def stop_name_server(self) -> None:
        """Close that port and its connections."""
        if self._name_server is not None:
            server, self._name_server = self._name_server, None
            await server.stop(grace_s=0)

    async def stop(self) -> None:
        """Close both ports."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.stop_name_server()
        await self._server.stop(grace_s=0)

    def _handle(self, conn: Connection, command: RemotingCommand) -> None:
        task = asyncio.create_task(self._answer(conn, command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, conn: Connection, command: RemotingCommand) -> None:
        try:
            conn.reply(command, await self.group.call("", command, 1))
        except RemotingError:
            conn.close()
