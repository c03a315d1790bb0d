"""What is begun while something else is still in use: one at a time, and none too many."""

from __future__ import annotations

from itertools import count

import pytest
from harness.ahead import one_ahead


@pytest.mark.parametrize(
    ("wanted", "begun_at_each"),
    [(0, []), (1, [1]), (2, [2, 2]), (4, [2, 3, 4, 4])],
)
def test_each_is_begun_when_the_one_before_is_handed_out(
    wanted: int, begun_at_each: list[int]
) -> None:
    numbers = count(1)
    begun: list[int] = []

    def begin() -> int:
        begun.append(next(numbers))
        return begun[-1]

    handed_out = one_ahead(wanted, begin)
    assert begun == []
    for number, so_far in enumerate(begun_at_each, start=1):
        assert next(handed_out) == number
        assert len(begun) == so_far
    assert next(handed_out, None) is None
    assert len(begun) == wanted
