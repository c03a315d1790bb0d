"""Slices of work that many clients want at once, of which one has its turn between other work.

A new master has to look through all that each client takes, and all of them ask in the same moment.
Each of them leaving the event loop after a slice is not enough: a turn of the loop would be as long
as all their slices together, and whoever sends would wait for several such turns. Nor is it good to
give a slice to each in turn, since all of them would find something late; so one goes on for a
while.
"""

import asyncio

from gantry_broker.store.steps import Steps

SLICES = 32  # that one has on end, while others wait


class Pace:
    """Gives slices: to one of those who ask at a time, and one in a turn of the event loop.

    Whoever waits tries again, in the order of asking, and there is one such try in ``slice_s``.

    Args:
        slice_s: between the beginnings of two slices.
    """

    def __init__(self, slice_s: float) -> None:
        self._slice_s = slice_s
        self._loop = asyncio.get_running_loop()
        self._free_s = 0.0  # nobody tries before
        self._holder: object = None
        self._left = 0  # slices that it has on end
        self._is_given = False  # in this turn

    def slice(self, asking: object) -> Steps[None]:
        """Returns when a slice begins, which is followed by others, or by ``over``."""
        if self._holder is asking and self._left > 0:
            self._left -= 1
            yield self._slice_s
            self._give()
            return
        self.over(asking)
        while True:
            now_s = self._loop.time()
            begin_s = max(now_s, self._free_s)
            self._free_s = begin_s + self._slice_s
            yield begin_s - now_s
            if self._holder is None and not self._is_given:
                self._holder, self._left = asking, SLICES - 1
                self._give()
                return

    def over(self, asking: object) -> None:
        """It needs no more slices; harmless for one that has none."""
        if self._holder is asking:
            self._holder = None

    def _give(self) -> None:
        self._is_given = True
        self._loop.call_soon(self._turn_over)

    def _turn_over(self) -> None:
        self._is_given = False
