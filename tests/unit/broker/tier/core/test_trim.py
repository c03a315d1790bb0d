"""How far the local log may be trimmed."""

from __future__ import annotations

import pytest
from gantry_broker.tier.core.trim import trim_bound
from gantry_protocol.types import Offset


@pytest.mark.parametrize(
    ("committed", "start", "retained", "pins", "bound"),
    [
        (100, 0, 200, [], 100),
        (100, 0, 60, [], 60),
        (100, 0, 200, [70, 90], 70),
        (100, 0, 200, [150], 100),
        (100, 80, 200, [70], 80),
        (None, 20, 200, [], 20),
        (10, 50, 200, [], 50),
    ],
    ids=["tier", "retention", "pin", "pin-above", "never-back", "unknown", "tier-behind"],
)
def test_the_bound_is_the_least_of_all(
    committed: int | None, start: int, retained: int, pins: list[int], bound: int
) -> None:
    found = trim_bound(
        committed_end=None if committed is None else Offset(committed),
        local_start=Offset(start),
        retained_from=Offset(retained),
        pins=[Offset(pin) for pin in pins],
    )
    assert found == bound
