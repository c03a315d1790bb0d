"""Ports of pods, through the API server's port forwarding: one HTTP request, or any bytes.

It reaches what listens on the pod's loopback address alone, which is the point: neither other pods
nor a NetworkPolicy have a say, only the API server, by the right to `pods/portforward`. This is the
form with WebSockets: each message begins with a byte for its channel, 0 for the data of the first
port and 1 for its errors, and the first message of each channel repeats the port.

Whoever speaks another protocol than HTTP gets one end of a pair of sockets (`Passage`): nothing
listens on this machine, so nobody else here can use the way.

https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/cri/streaming/portforward/websocket.go
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp

from gantry_operator.api.errors import Unavailable, error_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gantry_operator.api.errors import ApiError

PROTOCOL: Final = "v4.channel.k8s.io"
DATA: Final = 0
CHUNK_BYTES: Final = 32 * 1024
_PORT_BYTES: Final = 2
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")
_LENGTH = re.compile(rb"\r\nContent-Length: *(\d{1,12})\r\n", re.IGNORECASE)


class Channels:
    """The data in the messages of a forwarded port; `what` names it in errors."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._begun: set[int] = set()

    def data(self, message: bytes) -> bytes:
        """The data in a message.

        Raises:
            Unavailable: nobody listens there.
        """
        channel, data = message[0] if message else DATA, message[1:]
        if channel not in self._begun:
            self._begun.add(channel)
            data = data[_PORT_BYTES:]
        if channel == DATA:
            return data
        if data:
            text = data[:200].decode("utf-8", "replace")
            raise _unavailable(f"{self._what} was not passed on: {text}")
        return b""


class ForwardedAnswer:
    """The answer to a request, as its messages come.

    Args:
        what: the request, for errors.
        bytes_max: of the whole answer.
    """

    def __init__(self, what: str, bytes_max: int) -> None:
        self._what = what
        self._bytes_max = bytes_max
        self._channels = Channels(f"the answer to {what}")
        self._data = bytearray()

    def take(self, message: bytes) -> bool:
        """Takes a message; whether the answer is complete.

        Raises:
            Unavailable: nobody listens there, or it is larger than allowed.
        """
        self._data += self._channels.data(message)
        if len(self._data) > self._bytes_max:
            raise self._broken(f"is larger than {self._bytes_max} bytes")
        head, _, body = self._data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        return length is not None and len(body) >= int(length[1])

    def body(self) -> bytes:
        """The body of a complete answer.

        Raises:
            ApiError: it is not complete, or a refusal.
        """
        head, end, body = self._data.partition(b"\r\n\r\n")
        status, length = _STATUS.match(head), _LENGTH.search(head + b"\r\n")
        if not end or status is None or length is None or len(body) < int(length[1]):
            raise self._broken("broke off")
        if int(status[1]) >= 300:
            raise error_of(int(status[1]), bytes(body), {})
        return bytes(body)

    def _broken(self, why: str) -> ApiError:
        return _unavailable(f"the answer to {self._what} {why}")


async def ask(
    forwarded: aiohttp.ClientWebSocketResponse, path: str, answer: ForwardedAnswer
) -> bytes:
    """Asks for a path on an open connection, and gives the body of the answer.

    Raises:
        ApiError: there is no complete answer, or a refusal.
    """
    # HTTP/1.0: nothing comes in chunks, and whoever answers ends the connection.
    await forwarded.send_bytes(
        bytes([DATA]) + f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode()
    )
    async for message in forwarded:
        if message.type is aiohttp.WSMsgType.BINARY and answer.take(message.data):
            break
    return answer.body()


class Passage(NamedTuple):
    """A way to a port of a pod, for any protocol.

    Attributes:
        near: our end; whoever uses it closes it.
        carrying: ends when either side does, with an `ApiError` if the way broke.
    """

    near: socket.socket
    carrying: asyncio.Task[None]

    @property
    def problem(self) -> ApiError | None:
        """The reason that the way broke; None while it holds, and where the pod hung up."""
        task = self.carrying
        error = task.exception() if task.done() and not task.cancelled() else None
        return error if isinstance(error, Unavailable) else None


@contextlib.asynccontextmanager
async def passage(
    forwarded: aiohttp.ClientWebSocketResponse, what: str
) -> AsyncGenerator[Passage, None]:
    """A way over an open connection; leaving it, or a cancellation, closes both of its ends."""
    near, far = socket.socketpair()
    near.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=far)
    carrying = asyncio.create_task(_carry(forwarded, reader, writer, what))
    try:
        yield Passage(near, carrying)
    finally:
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)
        near.close()


async def _carry(
    forwarded: aiohttp.ClientWebSocketResponse,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    what: str,
) -> None:
    async def up() -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await forwarded.send_bytes(bytes([DATA]) + chunk)

    async def down() -> None:
        channels = Channels(what)
        async for message in forwarded:
            if message.type is aiohttp.WSMsgType.BINARY:
                writer.write(channels.data(message.data))
                await writer.drain()

    both = [asyncio.ensure_future(up()), asyncio.ensure_future(down())]
    try:
        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            with contextlib.suppress(ConnectionError):  # who spoke has hung up
                one.result()
    finally:
        for one in both:
            one.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        writer.close()


def _unavailable(text: str) -> Unavailable:
    return Unavailable(0, "NoConnection", text)
