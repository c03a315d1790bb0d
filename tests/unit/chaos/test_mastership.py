"""A scenario that is green without what it was written for fails."""

from __future__ import annotations

import pytest
from gantry_chaos.checkers.mastership import Expectation, check
from gantry_chaos.history.observations import Observation, RoleSeen
from gantry_chaos.history.operations import Window

FAULTS = [Window("first", 10_000, 12_000), Window("second", 30_000, 32_000)]


def masters(*seen: tuple[int, int]) -> list[Observation]:
    return [RoleSeen(at_ms, "orders", f"b-{epoch}", "master", epoch) for at_ms, epoch in seen]


@pytest.mark.parametrize(
    ("seen", "expected", "said"),
    [
        ([(0, 4), (11_000, 5), (31_000, 6)], "moves", ()),
        (
            [(0, 4), (11_000, 5)],
            "moves",
            ("second: the mastership did not move; epoch 5 went on.",),
        ),
        (
            [(0, 4), (31_000, 6)],
            "moves",
            ("first: the mastership did not move; epoch 4 went on.",),
        ),
        ([(0, 4), (5_000, 4)], "stays", ()),
        ([(0, 4), (31_000, 5)], "stays", ("second: the mastership moved from epoch 4 to 5.",)),
        (
            [(11_000, 5)],
            "moves",
            ("No master was seen before the first fault, so nothing is known.",),
        ),
    ],
)
def test_the_mastership(
    seen: list[tuple[int, int]], expected: Expectation, said: tuple[str, ...]
) -> None:
    found = check(masters(*seen), FAULTS, expected)
    assert found.violations == said
    assert found.passed == (not said)


def test_a_replica_is_no_master() -> None:
    seen = [*masters((0, 4)), RoleSeen(11_000, "orders", "b-9", "replica", 9)]
    assert check(seen, FAULTS, "stays").passed
