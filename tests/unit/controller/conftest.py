"""An harness per test, closed after it."""

from collections.abc import AsyncIterator

import pytest
from support.controller_dispatcher import Harness


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    harness = Harness()
    yield harness
    await harness.close()
