"""Two clocks, and what is left of a wait that may have begun under another master.

Within one mastership only the steady clock counts, so nothing depends on clocks that jump (ADR
0031). The wall clock says how much of a wait was over when the mastership began.
"""

from typing import NamedTuple


class Clocks(NamedTuple):
    """Now, by the wall clock, which may jump, and by the steady one, which starts anywhere."""

    wall_ms: int
    steady_ms: int

    def over_at(self, since_ms: int, wait_ms: int) -> int:
        """The end of a wait, by the steady clock; never later than if it began now.

        Both clocks are read in whole milliseconds. So what was waited counts for one less, or a
        wait could end one early.

        Args:
            since_ms: when it began, by the wall clock of that time.
            wait_ms: how long it is.
        """
        waited_ms = min(max(self.wall_ms - since_ms - 1, 0), wait_ms)
        return self.steady_ms + wait_ms - waited_ms
