"""Shares of tests: together they are all, none is in two, and what shares a fixture stays whole."""

from __future__ import annotations

from support.parts import has_shared_fixture, is_in_share

ALONE = "tests/unit/test_parts.py"
SHARING = "tests/unit/sim/test_mutants.py"
NAMES = [f"{file}::test_{number}" for file in (ALONE, SHARING) for number in range(200)]


def test_each_test_is_in_one_share() -> None:
    for name in NAMES:
        assert [is_in_share(name, 10, turn) for turn in range(70, 80)].count(True) == 1
        assert is_in_share(name, 1, 5)


def test_a_share_is_about_as_large_as_the_others() -> None:
    alone = [name for name in NAMES if name.startswith(ALONE)]
    sizes = [sum(is_in_share(name, 4, turn) for name in alone) for turn in range(4)]
    assert min(sizes) > 30


def test_tests_with_a_shared_fixture_stay_together() -> None:
    assert has_shared_fixture(SHARING)
    assert not has_shared_fixture(ALONE)
    sharing = [name for name in NAMES if name.startswith(SHARING)]
    assert {len([n for n in sharing if is_in_share(n, 10, t)]) for t in range(10)} == {0, 200}
