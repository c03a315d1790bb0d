"""An office per test, closed after it."""

from collections.abc import AsyncIterator

import pytest
from support.controller_dispatcher import Office


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    office = Office()
    yield office
    await office.close()
