"""Slices of work that many clients want at once, of which one has its turn between other work.

A new master has to look through all that each client takes, and all of them ask in the same moment.
Each of them leaving the event loop after a slice is not enough: a turn of the loop would be as long
as all their slices together, and whoever sends would wait for several such turns.
"""

import asyncio

from gantry_broker.store.steps import Steps


class Pace:
    """Gives slices, in the order of asking, at most one in a turn of the event loop.

    Args:
        slice_s: between the beginnings of two slices, at least.
    """

    def __init__(self, slice_s: float) -> None:
        self._slice_s = slice_s
        self._loop = asyncio.get_running_loop()
        self._free_s = 0.0  # no slice begins before
        self._is_given = False  # in this turn

    def slice(self) -> Steps[None]:
        """Returns when a slice begins."""
        while True:
            now_s = self._loop.time()
            begin_s = max(now_s, self._free_s)
            self._free_s = begin_s + self._slice_s
            yield begin_s - now_s
            if not self._is_given:  # or those before took longer than a slice is to
                self._is_given = True
                self._loop.call_soon(self._turn_over)
                return

    def _turn_over(self) -> None:
        self._is_given = False
