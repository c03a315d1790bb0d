"""Worlds for the operator's integration tests."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from integration.operator.operator_world import World, a_world


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """An empty cluster and the operator's way to it."""
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    async with a_world(tmp_path, monkeypatch) as one:
        yield one
