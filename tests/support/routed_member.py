"""One member of a group whose role a test decides, with its router and a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gantry_broker.clients.routing import ClientRouter
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import RemotingServer
from support.patience import PATIENCE_S

READ, WRITE = RequestCode.GET_MAX_OFFSET, RequestCode.SEND_MESSAGE_V2


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


class Member:
    """One broker whose role the test decides."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.serving = self.leaving = False
        self.master = ""
        self.epoch = 0
        self.asked = 0
        self.peers: list[tuple[str, bool]] = []
        self.router = ClientRouter(
            master_address=lambda: self.master,
            epoch=lambda: self.epoch,
            ask=self._ask,
        )
        self.router.member = self
        self.server = RemotingServer(self.router.handle, on_close=self.router.connection_closed)
        self.address = ""
        self._clients: list[RemotingClient] = []

    @property
    def takes_requests(self) -> bool:
        return self.serving

    def _ask(self) -> None:
        self.asked += 1

    def _serve(self, conn: Connection, command: RemotingCommand) -> RemotingCommand:
        self.peers.append((conn.peer, conn.proxied))
        return reply(command, remark=self.name)

    async def start(self) -> Member:
        self.address = f"127.0.0.1:{await self.server.start('127.0.0.1', 0)}"
        return self

    async def stop(self) -> None:
        for client in self._clients:
            client.close()
        self.router.close()
        await self.server.stop(0)

    def become_master(self) -> None:
        self.serving, self.master = True, ""
        self.router.processor = self._serve
        self.router.role_changed()

    def follow(self, master: str) -> None:
        self.serving, self.master = False, master
        self.router.processor = None
        self.router.role_changed()

    async def client(self) -> RemotingClient:
        client = await RemotingClient().connect(self.address)
        self._clients.append(client)
        return client


async def ask(client: RemotingClient, code: int = READ) -> str | None:
    return (await client.call(request(code), 5)).remark
