"""The pace of a member: what the others have waited for it, and for how long it stays out.

A member that stands still for good leaves the set after ``lag_ms`` (``Member.fell_behind``), and
where the minimum stays without it after ``still_ms`` already. One that stands still for a part of
that, again and again, never does, and everybody waits for it each time. So what it costs is added
up: while records that the minimum of members hold are not on its disk for longer than ``stall_ms``,
it *stalls*, and confirm waits for it and the likes of it. A member that has stalled for ``slow_ms``
of the last ``WINDOW_MS`` is slow by its history. It may leave the set (``membership``); the
controllers decide, as ever.

Out of the set it is watched in the same way. It comes back when, for a while, it has stalled for
less than half of what makes it leave; no member would otherwise, on a machine that is busy: for
``probation_ms`` the first time, for twice as long each time it has to leave again, at most
``PROBATION_MAX_MS``. A member that then stays for as long as it was made to wait, and at least for
``GOOD_CONDUCT_MS``, begins anew. Who has left because it stood still for good may come back at once
the first time, as it may have been a machine that was restarted.

Pure: all time comes in. A gap in this process's own time is taken out of every stall (``excuse``).
"""

from collections import deque
from collections.abc import Iterable

from gantry_protocol.types import Offset

from gantry_broker.replica.values import Limits

WINDOW_MS = 8_000
PROBATION_MAX_MS = 320_000
GOOD_CONDUCT_MS = 60_000


class Pace:
    """One member's history, for the length of one mastership.

    Attributes:
        stalled_ms: for how long it has stalled while confirm waited for it, ever.
        recent_ms: for how long it has stalled in the window.
        standing_ms: for how long it has not got what the minimum of members had then.
        departures: how often it left the set for being slow, or for standing still, since it began
            anew.
        out_until_ms: it stays out of the set until then, longer with each stall; 0: it does not.
    """

    __slots__ = (
        "_limits",
        "_mark",
        "_mark_ms",
        "_probation_ms",
        "_returned_ms",
        "_seen_ms",
        "_stalls",
        "departures",
        "out_until_ms",
        "recent_ms",
        "stalled_ms",
        "standing_ms",
    )

    def __init__(self, limits: Limits, now_ms: int) -> None:
        """Nothing is known of it."""
        self.stalled_ms = self.recent_ms = self.standing_ms = 0
        self.departures = 0
        self.out_until_ms = 0
        self._limits = limits
        self._mark: Offset | None = None  # it had less than this at ``_mark_ms``, and has still
        self._mark_ms = self._seen_ms = self._returned_ms = now_ms
        self._probation_ms = 0
        self._stalls: deque[tuple[int, int]] = deque()  # (end, length) of what is in the window

    def look(self, acked: Offset, held: Offset, now_ms: int, *, waited_for: bool) -> None:
        """Note where it is.

        Args:
            acked: what is on its disk.
            held: what is on the disks of the minimum of members.
            now_ms: when.
            waited_for: confirm waits for it.
        """
        if self._mark is None or acked >= self._mark:
            self._mark = held if acked < held else None
            self._mark_ms = self._seen_ms = now_ms
        self.standing_ms = now_ms - self._mark_ms
        if self.standing_ms >= self._limits.stall_ms:
            length_ms = now_ms - self._seen_ms
            self._seen_ms = now_ms
            self.stalled_ms += length_ms * waited_for
            self.recent_ms += length_ms
            self._stalls.append((now_ms, length_ms))
            if self.out_until_ms and 2 * self.recent_ms >= self._limits.slow_ms:
                self.out_until_ms = max(self.out_until_ms, now_ms + self._probation_ms)
        while self._stalls and self._stalls[0][0] <= now_ms - WINDOW_MS:
            self.recent_ms -= self._stalls.popleft()[1]

    def excuse(self, pause_ms: int) -> None:
        """This process stood still for so long, and saw nothing of what the member did."""
        self._mark_ms += pause_ms
        self._seen_ms += pause_ms

    @property
    def is_noted(self) -> bool:
        """Whether there is anything that time will change."""
        return self._mark is not None or self.recent_ms > 0

    @property
    def is_slow(self) -> bool:
        """Whether everybody has waited for it for too long, all in all."""
        return self.recent_ms >= self._limits.slow_ms

    @property
    def holds_up(self) -> bool:
        """Whether it should leave, if enough others stay."""
        return self.is_slow or self.standing_ms >= self._limits.still_ms

    def is_out(self, now_ms: int) -> bool:
        """Whether it has yet to show that it keeps up."""
        return now_ms < self.out_until_ms

    def left(self, now_ms: int) -> None:
        """It left the set because everybody waited for it."""
        stayed_ms = now_ms - self._returned_ms
        if stayed_ms >= max(GOOD_CONDUCT_MS, self._probation_ms):
            self.departures, self._probation_ms = 0, 0
        first = self.departures == 0
        self.departures += 1
        if first and not self.is_slow:
            return
        doubled_ms = max(self._limits.probation_ms, 2 * self._probation_ms)
        self._probation_ms = min(doubled_ms, PROBATION_MAX_MS)
        self.out_until_ms = now_ms + self._probation_ms

    def joined(self, now_ms: int) -> None:
        """It is in the set again, and what it did before counts no more."""
        self._returned_ms = now_ms
        self.out_until_ms = self.recent_ms = self.standing_ms = 0
        # A newcomer stood below the mark for as long as its copy took. It would leave at once.
        self._mark = None
        self._mark_ms = self._seen_ms = now_ms
        self._stalls.clear()


def held_by(minimum: int, ends: Iterable[Offset]) -> Offset:
    """The end that so many members have on their disks, of ``ends``; 0 if there are fewer."""
    ranked = sorted(ends, reverse=True)
    return ranked[minimum - 1] if minimum <= len(ranked) else Offset(0)
