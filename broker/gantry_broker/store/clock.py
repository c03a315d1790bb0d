"""Store times: a clock that follows the wall clock, and not its jumps. Pure.

A wall clock may be set, wrongly or rightly, while a master serves. Store times never fall along a
log, so one that was a year ahead for a second would hold the times of a whole year: nothing stored
meanwhile could be told apart by time, and nothing would age. So this clock goes by the steady one
and is led back to the wall clock: at twice the pace where it is behind, at half the pace where it
is ahead.

Rules protected:

* A wall clock that was wrong for some time has led store times astray by no more than that time,
  however far it was off, and they are right again at most twice as long after it was set right.
* Small steps, as time daemons make them, are followed at once.

What it cannot know is whether the wall clock was right when the process began. A master whose clock
is ahead from its start stores what it says, and later ones cannot go back behind that.
"""

FOLLOWED_MS = 1_000  # so far from the wall clock it is no jump


class StoreClock:
    """See the module.

    Args:
        wall_ms: since 1970, by the wall clock.
        steady_ms: the same moment by a clock that is never set.
    """

    def __init__(self, wall_ms: int, steady_ms: int) -> None:
        self._at_ms = wall_ms
        self._steady_ms = steady_ms
        self._wall_ms = wall_ms

    @property
    def ahead_ms(self) -> int:
        """The lead over the wall clock when it was last asked; negative behind."""
        return self._at_ms - self._wall_ms

    def now_ms(self, wall_ms: int, steady_ms: int) -> int:
        """The time; ask often, for what passes between two questions is what it may correct."""
        passed_ms = max(0, steady_ms - self._steady_ms)
        expected_ms = self._at_ms + passed_ms
        off_ms = wall_ms - expected_ms
        if -FOLLOWED_MS <= off_ms <= FOLLOWED_MS:
            at_ms = wall_ms
        elif off_ms > 0:
            at_ms = min(wall_ms, expected_ms + passed_ms)
        else:
            at_ms = max(wall_ms, expected_ms - passed_ms // 2)
        self._at_ms, self._steady_ms, self._wall_ms = at_ms, steady_ms, wall_ms
        return at_ms
