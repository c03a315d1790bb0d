"""An HTTP proxy before an S3 server that does what networks and services do to answers.

One request per connection, so that each can be struck by itself. Faults are queued: each strikes
one request that matches its method, in the order they were given.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

MAX_HEAD_BYTES = 64 * 1024
MAX_MESSAGE_BYTES = 64 * 1024 * 1024


class Strike(Enum):
    """What happens to one request."""

    CUT_BEFORE = auto()  # the connection ends, nothing is forwarded
    CUT_AFTER = auto()  # forwarded and applied; the answer is lost
    BUSY_BEFORE = auto()  # 503, nothing is forwarded
    BUSY_AFTER = auto()  # forwarded and applied; the answer is 503
    CONFLICT = auto()  # 409 ConditionalRequestConflict, nothing is forwarded
    DENIED = auto()  # 403, nothing is forwarded
    WRONG_KEYS = auto()  # 403 InvalidAccessKeyId, nothing is forwarded
    HALF_ANSWER = auto()  # the answer ends in the middle of its body
    BLACK_HOLE = auto()  # taken and never answered, nothing is forwarded
    LATE = auto()  # as BLACK_HOLE for the caller; forwarded when the test releases it
    UNCONDITIONAL = auto()  # forwarded without If-None-Match


_ANSWERS = {
    Strike.BUSY_BEFORE: ("503 Slow Down", "SlowDown"),
    Strike.BUSY_AFTER: ("503 Slow Down", "SlowDown"),
    Strike.CONFLICT: ("409 Conflict", "ConditionalRequestConflict"),
    Strike.DENIED: ("403 Forbidden", "AccessDenied"),
    Strike.WRONG_KEYS: ("403 Forbidden", "InvalidAccessKeyId"),
}


@dataclass
class FaultProxy:
    """A running proxy.

    Attributes:
        port: where it listens.
        said: put into the body of every answer the proxy invents.
        forwarded: requests that reached the server.
        always: strikes every request for which nothing else is queued.
        always_on: only those of this method; empty: of any.
    """

    upstream: int
    port: int = 0
    said: str = ""
    forwarded: int = 0
    always: Strike | None = None
    always_on: str = ""
    _plan: list[tuple[str, Strike]] = field(default_factory=list)
    _release: asyncio.Event = field(default_factory=asyncio.Event)
    _landed: asyncio.Event = field(default_factory=asyncio.Event)
    _open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    def strike(self, method: str, *strikes: Strike) -> None:
        """Let the next requests of ``method`` meet these, one each."""
        self._plan += [(method, strike) for strike in strikes]

    async def land(self) -> None:
        """Forward what is LATE, and wait until the server has answered."""
        self._release.set()
        await self._landed.wait()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Known from its first moment, so that one that has hardly begun is ended, too."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def end(self) -> None:
        """Ends all connections."""
        writers, tasks = list(self._open.values()), list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head, body = await _read_request(reader)
            method = head.split(b" ", 1)[0].decode()
            await self._answer(self._drawn(method), method, head, body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went away
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    def _drawn(self, method: str) -> Strike | None:
        for index, (wanted, strike) in enumerate(self._plan):
            if wanted == method:
                del self._plan[index]
                return strike
        return self.always if self.always_on in ("", method) else None

    async def _answer(
        self,
        strike: Strike | None,
        method: str,
        head: bytes,
        body: bytes,
        writer: asyncio.StreamWriter,
    ) -> None:
        if strike is Strike.CUT_BEFORE:
            return
        if strike is Strike.BLACK_HOLE:
            await asyncio.Event().wait()
        if strike is Strike.LATE:
            await self._release.wait()
        if strike in (Strike.BUSY_BEFORE, Strike.CONFLICT, Strike.DENIED, Strike.WRONG_KEYS):
            writer.write(self._invented(strike, method))
            await writer.drain()
            return
        if strike is Strike.UNCONDITIONAL:
            lines = head.split(b"\r\n")
            head = b"\r\n".join(x for x in lines if not x.lower().startswith(b"if-none-match"))
        answer = await self._forward(head, body)
        if strike is Strike.LATE:
            self._landed.set()
            return
        if strike is Strike.CUT_AFTER:
            return
        if strike is Strike.BUSY_AFTER:
            answer = self._invented(strike, method)
        if strike is Strike.HALF_ANSWER:
            start = answer.index(b"\r\n\r\n") + 4
            answer = answer[: start + (len(answer) - start) // 2]
        writer.write(answer)
        await writer.drain()

    def _invented(self, strike: Strike, method: str) -> bytes:
        status, code = _ANSWERS[strike]
        body = f"<Error><Code>{code}</Code><Message>{self.said}</Message></Error>"
        length = len(body)
        if method == "HEAD":
            body = ""
        return (
            f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\n"
            f"Connection: close\r\n\r\n{body}"
        ).encode()

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        try:
            lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
            lines = [line for line in lines if not line.lower().startswith(b"connection:")]
            writer.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]) + body)
            await writer.drain()
            answer = await reader.read(-1)
            self.forwarded += 1
            return answer
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    assert len(head) <= MAX_HEAD_BYTES
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    assert length <= MAX_MESSAGE_BYTES
    return head, await reader.readexactly(length)


@asynccontextmanager
async def fault_proxy(upstream: int, said: str = "") -> AsyncIterator[FaultProxy]:
    """A proxy before the server at port ``upstream``; open connections end with the block."""
    proxy = FaultProxy(upstream, said=said)
    server = await asyncio.start_server(proxy._connected, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
