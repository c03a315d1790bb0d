"""Rules for every unit test of the operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.repeats import nothing_repeats


@pytest.fixture(autouse=True)
def repeated() -> Iterator[list[str]]:
    """No operator repeats itself."""
    with nothing_repeats() as found:
        yield found
