"""Rules for every unit test of the operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.decided_again import decided_again
from support.repeats import nothing_repeats


@pytest.fixture(autouse=True)
def repeated() -> Iterator[list[str]]:
    """No operator repeats itself."""
    with nothing_repeats() as found:
        yield found


@pytest.fixture(autouse=True)
def replayed(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the planner decides in any test, it decides again from a file."""
    with decided_again(request.module):
        yield
