"""Three controllers, on both event loops they may run on: uvloop in production, asyncio's own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop
from support.controller_quorum import Quorum


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every asynchronous test in this folder runs on each."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[Quorum]:
    """All three run; whether one leads already is for the test to await."""
    found = Quorum(tmp_path)
    await found.start()
    yield found
    await found.stop()
