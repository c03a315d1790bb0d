"""Three real stores write in memory: their disk never fails, and costs nothing but time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory."""
    with tempfile.TemporaryDirectory(prefix="gantry-sim-", dir="/dev/shm") as directory:
        yield Path(directory)
