"""Ticks are counted by the clock, whenever the timer fires."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gantry_controller.node.ticker import TICK_S, TICKS_AT_ONCE_MAX, Ticker


class Loop:
    """A clock that is set by hand, and the timer that was armed last."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.fire: Any = None

    def time(self) -> float:
        return self.now_s

    def call_later(self, _delay_s: float, callback: Any) -> object:
        self.fire = callback
        return SimpleNamespace(cancel=lambda: None)

    def call_at(self, _when_s: float, callback: Any) -> object:
        return self.call_later(0, callback)


def test_timer_that_fires_early_makes_no_tick_and_wakes_nobody() -> None:
    loop, woken = Loop(), []
    ticker = Ticker(lambda: woken.append(loop.now_s))
    ticker.start(cast(Any, loop))
    loop.now_s += TICK_S * 0.9
    loop.fire()
    assert (ticker.take(), woken) == (0, [])
    loop.now_s += TICK_S * 0.2
    loop.fire()
    assert (ticker.take(), len(woken)) == (1, 1)


def test_time_that_the_loop_stood_still_is_not_counted() -> None:
    loop = Loop()
    ticker = Ticker(lambda: None)
    ticker.start(cast(Any, loop))
    loop.now_s += 100 * TICK_S
    loop.fire()
    assert ticker.take() == TICKS_AT_ONCE_MAX
