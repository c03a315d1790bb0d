"""Store times while the wall clock jumps."""

from __future__ import annotations

import pytest
from gantry_broker.store.stored import FOLLOWED_MS, StoreClock
from hypothesis import given
from hypothesis import strategies as st

BEGIN_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


class World:
    """A wall clock that is off by so much, and a steady one that is not."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self.off_ms = 0
        self.clock = StoreClock(BEGIN_MS, 0)

    def passes(self, ms: int, step_ms: int = 100) -> int:
        """Let time pass, with a question at each step; returns how far store times are off."""
        for _ in range(ms // step_ms):
            self.passed_ms += step_ms
            real_ms = BEGIN_MS + self.passed_ms
            found = self.clock.now_ms(real_ms + self.off_ms, self.passed_ms)
        return found - real_ms


@pytest.mark.parametrize("jump_ms", [-YEAR_MS, -HOUR_MS, -5_000, 5_000, HOUR_MS, YEAR_MS])
def test_a_jump_that_is_taken_back_leads_astray_by_its_duration_at_most(jump_ms: int) -> None:
    world = World()
    world.passes(1_000)
    world.off_ms = jump_ms
    assert abs(world.passes(60_000)) <= 60_000
    world.off_ms = 0
    assert world.passes(120_000) == 0, "twice as long after it was set right"


@pytest.mark.parametrize("wrong_ms", [-HOUR_MS, HOUR_MS])
def test_a_wall_clock_that_was_wrong_from_the_start_and_is_set_right(wrong_ms: int) -> None:
    world = World()
    world.clock = StoreClock(BEGIN_MS + wrong_ms, 0)
    assert abs(world.passes(HOUR_MS // 2)) >= HOUR_MS // 2
    assert world.passes(2 * HOUR_MS) == 0


def test_what_a_time_daemon_does_is_followed_at_once() -> None:
    world = World()
    world.off_ms = FOLLOWED_MS // 2
    assert world.passes(100) == FOLLOWED_MS // 2
    world.off_ms = -FOLLOWED_MS // 4
    assert world.passes(100) == -FOLLOWED_MS // 4


def test_a_question_after_a_long_silence_is_answered_by_the_wall_clock() -> None:
    world = World()
    assert world.passes(24 * HOUR_MS, 24 * HOUR_MS) == 0


@given(
    jumps=st.lists(
        st.tuples(st.integers(-YEAR_MS, YEAR_MS), st.integers(1, 60_000)), min_size=1, max_size=8
    )
)
def test_store_times_are_never_further_off_than_the_clock_was_wrong_for(
    jumps: list[tuple[int, int]],
) -> None:
    world, wrong_ms = World(), 0
    for off_ms, lasts_ms in jumps:
        world.off_ms = off_ms
        found = world.passes(lasts_ms, lasts_ms)
        wrong_ms += lasts_ms
        assert abs(found) <= wrong_ms + FOLLOWED_MS * len(jumps)
    world.off_ms = 0
    assert world.passes(2 * wrong_ms + FOLLOWED_MS * 2 * len(jumps) + 200) == 0
