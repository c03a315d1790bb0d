"""Two connections made one: bytes both ways, back-pressure both ways, cut together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Address = tuple[str, int]
MAX_EARLY_BYTES = 256 * 1024
"""What a client may send before the other side is connected; reading pauses beyond it."""


class Side(asyncio.Protocol):
    """One end of a pipe; what it receives goes to the other end's transport."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self._early: list[bytes] = []
        self._early_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection exists."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass on, or keep while there is nobody to pass to."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
            return
        self._early.append(data)
        self._early_bytes += len(data)
        if self._early_bytes > MAX_EARLY_BYTES and self.transport is not None:
            self.transport.pause_reading()

    def join(self, other: Side) -> None:
        """Connect the ends; early bytes go first."""
        assert self.transport is not None
        assert other.transport is not None
        self.other, other.other = other, self
        for data in self._early:
            other.transport.write(data)
        self._early.clear()
        if not self.transport.is_reading():
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """This end's peer reads slowly: the other end stops reading."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """This end's peer has caught up."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """One end is gone: the other one goes after what is already written to it."""
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            if exc is None:
                self.other.transport.close()
            else:
                self.other.transport.abort()


class Front(Side):
    """The client's end: connects to a backend as soon as it exists.

    Args:
        choose: The address to connect to, given those that failed; None when there is none.
        on_open: Told about the connection; False refuses it.
        on_close: Told when it ends.
    """

    def __init__(
        self,
        choose: Callable[[set[Address]], Address | None],
        on_open: Callable[[Front], bool],
        on_close: Callable[[Front], None],
    ) -> None:
        super().__init__()
        self._choose = choose
        self._on_open = on_open
        self._on_close = on_close
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted: look for a backend."""
        super().connection_made(transport)
        if not self._on_open(self):
            transport.abort()  # type: ignore[attr-defined]  # a stream transport has it
            return
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        failed: set[Address] = set()
        while self.transport is not None:
            address = self._choose(failed)
            if address is None:
                self.transport.abort()
                return
            back = await _try(address)
            if back is None:
                failed.add(address)
            elif self.transport is None:
                assert back.transport is not None
                back.transport.abort()
            else:
                self.join(back)
                return

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        if self._task is not None:
            self._task.cancel()
        self._on_close(self)


async def _try(address: Address) -> Side | None:
    loop = asyncio.get_running_loop()
    connect: Awaitable[tuple[asyncio.Transport, Side]] = loop.create_connection(Side, *address)
    try:
        async with asyncio.timeout(1.0):
            _, back = await connect
    except (OSError, TimeoutError):
        return None
    return back
