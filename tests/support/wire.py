"""A raw remoting peer for tests: frames over a plain stream, nothing decided for the test."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from gantry_protocol.frame import FrameDecoder, RemotingCommand, encode, reply
from gantry_protocol.remoting.server import Connection

READ_TIMEOUT_S = 60.0  # on a busy machine; who is merely idle is left alone for 120


def echo(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    """Serve a request by what it brought; the remark names who sent it."""
    return reply(command, 0, connection.peer, command.ext, command.body)


class WirePeer:
    """One TCP connection; sends what it is told and collects the commands that come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder(expect_preamble=False)
        self._commands: list[RemotingCommand] = []

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1", source: str = "") -> Self:
        local = (source, 0) if source else None
        return cls(*await asyncio.open_connection(host, port, local_addr=local))

    @property
    def name(self) -> str:
        host, port = self.writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    def send(self, *commands: RemotingCommand) -> None:
        self.writer.write(b"".join(map(encode, commands)))

    async def receive(self) -> RemotingCommand:
        while not self._commands:
            async with asyncio.timeout(READ_TIMEOUT_S):
                data = await self.reader.read(65536)
            if not data:
                raise EOFError
            self._commands = self._decoder.feed(data)
        return self._commands.pop(0)

    async def ended(self) -> bool:
        """Whether the other side ends the connection (True) or says something more (False)."""
        if self._commands:
            return False
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return not await self.reader.read(1)
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def until(condition: object, *, what: str = "condition") -> None:
    """Let the loop turn until ``condition()`` holds."""
    assert callable(condition)
    async with asyncio.timeout(READ_TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.001)
