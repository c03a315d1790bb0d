"""A group that has a mapped topic, whose controllers and neighbours are the test."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.mapped_group import MappedGroup


@pytest.fixture
async def mapped(tmp_path: Path):
    made = MappedGroup(tmp_path)
    yield made
    made.close()
