"""The interface to the library that speaks gRPC: bytes in, bytes out.

A library is exchanged by another module like ``grpc_library``; nothing else knows which it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

import msgspec
from gantry_protocol.errors import GantryError

from gantry_proxy.core.credentials import claimed_user

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

    behalf: dict[str, str]
    """Fields that say to brokers on whose behalf they are asked; empty until that is known."""

    def left_s(self) -> float | None:
        """The time until the client gives up; None: it does not say."""


class CallAborted(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """A call that ends with a status of gRPC's own, since its answer has no place for one.

    Attributes:
        code: the name of gRPC's status.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def client_id(call: Call) -> str:
    """The client's name for itself; empty where it has none."""
    return call.metadata.get(CLIENT_ID, "")


ClientKey = tuple[str, str]
"""A client: its user, as it says, and its own name. Where access is on the user was judged."""


def client_key(call: Call) -> ClientKey:
    """The client that makes a call."""
    return claimed_user(call.metadata), client_id(call)


Unary = Callable[[bytes, Call], Awaitable[bytes]]
Streaming = Callable[[bytes, Call], AsyncIterator[bytes]]
Duplex = Callable[[AsyncIterator[bytes], Call], AsyncIterator[bytes]]


class Methods(msgspec.Struct, frozen=True):
    """A service: handlers by the name of their method."""

    name: str
    unary: Mapping[str, Unary]
    streaming: Mapping[str, Streaming]
    duplex: Mapping[str, Duplex]
