"""Worlds for the operator's integration tests."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from integration.operator.operator_world import World, a_world
from support.repeats import nothing_repeats


@pytest.fixture(autouse=True)
def repeated() -> Iterator[list[str]]:
    """No operator repeats itself."""
    with nothing_repeats() as found:
        yield found


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """An empty cluster and the operator's way to it."""
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    async with a_world(tmp_path, monkeypatch) as one:
        yield one
