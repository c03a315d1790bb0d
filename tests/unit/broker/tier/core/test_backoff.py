"""Decorrelated jitter."""

from __future__ import annotations

from gantry_broker.tier.core.backoff import Backoff
from gantry_broker.tier.core.values import TierLimits
from hypothesis import given
from hypothesis import strategies as st

LIMITS = TierLimits(retry_min_ms=200, retry_max_ms=30_000)


@given(st.lists(st.floats(0, 1, exclude_max=True), max_size=30))
def test_every_wait_lies_between_the_limits_and_three_times_the_last(chances: list[float]) -> None:
    backoff, last = Backoff(LIMITS), 200
    for chance in chances:
        wait = backoff.next_ms(chance)
        assert 200 <= wait <= min(30_000, 3 * last)
        last = wait
    backoff.reset()
    assert backoff.next_ms(0.999) <= 600


def test_failures_that_last_are_asked_about_seldom() -> None:
    backoff = Backoff(LIMITS)
    assert [backoff.next_ms(0.5) for _ in range(3)] == [400, 700, 1_150]
    for _ in range(20):
        backoff.next_ms(0.999)
    assert backoff.next_ms(0.999) == 30_000
