"""Both event loops a controller may run on: uvloop in production, asyncio's own without it."""

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every asynchronous test in this folder runs on each."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
