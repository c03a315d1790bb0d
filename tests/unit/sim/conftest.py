"""Rules for tests of the simulator's own parts."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _speaks_again() -> Iterator[None]:
    """What a simulation keeps the product from saying, other tests of the process listen to."""
    product = logging.getLogger("gantry")
    level = product.level
    yield
    product.setLevel(level)
