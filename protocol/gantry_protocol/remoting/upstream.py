"""The connection of a splice to the process that its client is passed on to."""

import asyncio
from typing import Protocol, cast

from gantry_protocol.errors import FrameError
from gantry_protocol.process import log
from gantry_protocol.remoting.glance import FrameCutter, Glimpse

HIGH_WATER_BYTES = 256 * 1024  # per direction
_CUT_GRACE_S = 1.0

_log = log.get("remoting")


class Spliced(Protocol):
    """The splice whose connection it is."""

    def connected(self, upstream: "Upstream") -> None:
        """The other process accepted."""

    def from_upstream(self, glimpses: list[Glimpse], upstream: "Upstream") -> None:
        """Frames came, or a part of one."""

    def upstream_congested(self, upstream: "Upstream", congested: bool) -> None:
        """The other process does not read fast enough, or does again."""

    def upstream_lost(self, upstream: "Upstream") -> None:
        """It is gone."""


class Upstream(asyncio.Protocol):
    """The connection to the other process."""

    def __init__(self, owner: Spliced) -> None:
        self.congested = False
        self._owner = owner
        self._said = FrameCutter()
        self._transport: asyncio.Transport | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not whole."""
        return self._said.pending_bytes

    def write(self, data: bytes) -> None:
        """Give it bytes."""
        if self._transport is not None:
            self._transport.write(data)

    def pause(self, paused: bool) -> None:
        """Stop or go on reading."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if paused:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def close(self) -> None:
        """End it; what was written is still delivered, for at most a second."""
        transport = self._transport
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(_CUT_GRACE_S, transport.abort)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It accepted."""
        self._transport = tcp = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        tcp.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._owner.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._transport = None
        self._owner.upstream_lost(self)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        try:
            glimpses = self._said.feed(data)
        except FrameError as error:
            _log.warning("the master's connection ended by a malformed frame", reason=error)
            self.close()
            return
        self._owner.from_upstream(glimpses, self)

    def pause_writing(self) -> None:
        """It does not read fast enough."""
        self.congested = True
        self._owner.upstream_congested(self, True)

    def resume_writing(self) -> None:
        """It caught up."""
        self.congested = False
        self._owner.upstream_congested(self, False)
