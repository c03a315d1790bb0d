"""A local cluster in the test's process, pods and all, on addresses of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.local_world import LocalWorld, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[LocalWorld]:
    """A fresh cluster."""
    async with running(tmp_path / "state") as started:
        yield started
