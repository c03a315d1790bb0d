"""Corked connections: what is written last, and the end that follows, leave as one."""

import asyncio
import socket
from contextlib import suppress

_TCP_CORK: int | None = getattr(socket, "TCP_CORK", None)  # Linux


def cork(transport: asyncio.Transport | None) -> None:
    """Have the kernel keep small writes until the transport's end, where it can."""
    found = None if transport is None else transport.get_extra_info("socket")
    if found is not None and _TCP_CORK is not None:
        with suppress(OSError):
            found.setsockopt(socket.IPPROTO_TCP, _TCP_CORK, 1)
