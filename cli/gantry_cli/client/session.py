"""One client for one command: connections and routes that end with it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from gantry_cli.client.calls import Connections
from gantry_cli.client.routes import Routes
from gantry_cli.options import command_tls, credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


class Session(msgspec.Struct, frozen=True):
    """The part of a client that producers, consumers and topic commands need."""

    calls: Connections
    routes: Routes


@asynccontextmanager
async def session(name_servers: Sequence[str]) -> AsyncIterator[Session]:
    """A session with `name_servers`; leaving it closes every connection.

    It speaks TLS, and signs, as the options of the command that runs say.
    """
    calls = Connections(credentials=credentials(), tls=command_tls())
    routes = Routes(name_servers, calls)
    try:
        yield Session(calls, routes)
    finally:
        await routes.close()
        await calls.close()
