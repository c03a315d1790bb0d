"""The interface to the library that speaks gRPC: bytes in, bytes out.

A library is exchanged by another module like ``grpc_library``; nothing else knows which it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

CLIENT_ID = "x-mq-client-id"


class Call(Protocol):
    """One call of a client."""

    @property
    def peer(self) -> str:
        """The client's host and port."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """The call's metadata, by lower-case name."""
        ...

    def left_s(self) -> float | None:
        """The time until the client gives up; None: it does not say."""


def client_id(call: Call) -> str:
    """The client's name for itself; empty where it has none."""
    return call.metadata.get(CLIENT_ID, "")


Unary = Callable[[bytes, Call], Awaitable[bytes]]
Streaming = Callable[[bytes, Call], AsyncIterator[bytes]]
Duplex = Callable[[AsyncIterator[bytes], Call], AsyncIterator[bytes]]


class Methods(msgspec.Struct, frozen=True):
    """A service: handlers by the name of their method."""

    name: str
    unary: Mapping[str, Unary]
    streaming: Mapping[str, Streaming]
    duplex: Mapping[str, Duplex]
