"""The schedule of parked messages: a pure machine over queue offsets and two clocks.

Each level is a queue that is delivered in its order. The machine knows how far each has been
delivered, how far it reaches, and when its first message is due; it says which levels to read now
and when to look again. One level waits for nothing that another does.

**Rule of the clocks.** Within one mastership only the steady (monotonic) clock counts: a message
that was confirmed in it is due its delay later, however the wall clock jumps; never earlier, and
late by a thousandth of the delay and ``PACE_MS`` at most. The wall clock is looked at once, when
the mastership begins, for what is parked already: it waits until its store time plus its delay, but
no longer than its delay from then on. So a wrong wall clock moves a message by its own delay at
most (2 h at the default levels), only across a change of master, and never for ever.

Times are ms. Nothing here reads a clock, and the memory for one level is bounded: arrivals are
remembered as at most about a thousand marks per delay.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

BACKOFF_FIRST_MS = 100
BACKOFF_MAX_MS = 2_000
PACE_MS = 20  # between two reads of a level whose messages become due one after the other
_MARKS_PER_DELAY = 1_000


class Parked(msgspec.Struct, frozen=True):
    """A parked message, as far as the schedule needs it.

    Attributes:
        offset: its queue offset.
        stored_at_ms: its store time, by the wall clock of the broker that stored it.
        delay_ms: how long it waits.
    """

    offset: int
    stored_at_ms: int
    delay_ms: int


class Level:
    """One level.

    Attributes:
        position: everything below is delivered and in the log as such.
        end: one past its last confirmed message; ``position <= end``.
        inherited: messages below were stored before this mastership.
        delay_ms: of what is stored now.
        busy: it is being read or delivered.
        due_ms: when the message at ``position`` is due; None while that is not known.
        not_before_ms: look at it no earlier.
    """

    __slots__ = (
        "_marks",
        "backoff_ms",
        "busy",
        "delay_ms",
        "due_ms",
        "end",
        "inherited",
        "not_before_ms",
        "position",
    )

    def __init__(self, position: int, end: int, inherited: int, delay_ms: int) -> None:
        """Nothing is known of its messages."""
        self.position = position
        self.end = end
        self.inherited = inherited
        self.delay_ms = delay_ms
        self.busy = False
        self.due_ms: int | None = None
        self.not_before_ms = 0
        self.backoff_ms = 0
        self._marks: deque[_Mark] = deque()

    @property
    def wake_ms(self) -> int | None:
        """The time to look at it; None while nothing but an event can change it."""
        if self.busy or self.position >= self.end:
            return None
        return max(self.not_before_ms, self.due_ms or 0)

    def arrived(self, end: int, now_ms: int) -> None:
        """Messages below ``end`` are confirmed by now."""
        if end <= self.end:
            return
        self.end = end
        last = self._marks[-1] if self._marks else None
        if last is not None and (now_ms - last.began_ms) * _MARKS_PER_DELAY < self.delay_ms:
            last.end, last.at_ms = end, now_ms
        else:
            self._marks.append(_Mark(end, now_ms, now_ms))
        while len(self._marks) > 1 and self._marks[1].at_ms + self.delay_ms <= now_ms:
            self._marks.popleft()  # both are due: the later one tells as much

    def due_at(self, message: Parked, began_ms: int, began_wall_ms: int) -> int:
        """The time at which ``message`` is due, by the steady clock."""
        if message.offset < self.inherited:
            left_ms = message.stored_at_ms + message.delay_ms - began_wall_ms
            return began_ms + min(max(left_ms, 0), message.delay_ms)
        arrived_ms = next(mark.at_ms for mark in self._marks if message.offset < mark.end)
        return arrived_ms + message.delay_ms

    def advance(self, position: int) -> None:
        """Everything below ``position`` is dealt with."""
        self.position = position
        self.due_ms = None
        while self._marks and self._marks[0].end <= position:
            self._marks.popleft()


class _Mark:
    """Messages below ``end`` were confirmed between ``began_ms`` and ``at_ms``."""

    __slots__ = ("at_ms", "began_ms", "end")

    def __init__(self, end: int, began_ms: int, at_ms: int) -> None:
        self.end = end
        self.began_ms = began_ms
        self.at_ms = at_ms


class Schedule:
    """All levels of one mastership.

    Args:
        levels: by queue id.
        now_ms: the steady clock.
        wall_ms: the wall clock at the same moment.
    """

    def __init__(self, levels: Iterable[Level], now_ms: int, wall_ms: int) -> None:
        """Nothing is under way."""
        self.levels = list(levels)
        self._began_ms = now_ms
        self._began_wall_ms = wall_ms

    def wanted(self, now_ms: int) -> list[int]:
        """The levels to read now; each is busy from now on, until one of the calls below."""
        wanted = []
        for number, level in enumerate(self.levels):
            wake_ms = level.wake_ms
            if wake_ms is not None and wake_ms <= now_ms:
                level.busy = True
                wanted.append(number)
        return wanted

    def wake_ms(self) -> int | None:
        """The time to ask for ``wanted`` again, if nothing happens before; None for never."""
        return min((at for level in self.levels if (at := level.wake_ms) is not None), default=None)

    def judge(self, number: int, messages: Sequence[Parked], now_ms: int) -> int:
        """The number of ``messages`` to be delivered now; they begin at the level's position.

        The level stays busy if there is any; otherwise it sleeps until the first is due.
        """
        level = self.levels[number]
        assert level.busy
        assert messages
        assert messages[0].offset == level.position
        for count, message in enumerate(messages):
            due_ms = level.due_at(message, self._began_ms, self._began_wall_ms)
            if count == 0:
                level.due_ms = due_ms
            if due_ms > now_ms:
                level.busy = count > 0
                level.not_before_ms = now_ms + PACE_MS
                return count
        return len(messages)

    def advanced(self, number: int, position: int) -> None:
        """Everything below ``position`` is in the log as delivered, or never will be delivered."""
        level = self.levels[number]
        assert level.busy
        level.advance(position)
        level.busy = False
        level.backoff_ms = 0

    def refused(self, number: int, now_ms: int) -> None:
        """It could not be read or delivered; nothing changed, and it is tried again in a while."""
        level = self.levels[number]
        assert level.busy
        level.busy = False
        level.backoff_ms = min(max(BACKOFF_FIRST_MS, 2 * level.backoff_ms), BACKOFF_MAX_MS)
        level.not_before_ms = now_ms + level.backoff_ms

    def late_ms(self, number: int, message: Parked, now_ms: int, wall_ms: int) -> int:
        """The time since a message was due that is read now.

        What came in this mastership is due together with what came within a thousandth of its delay
        later. How much of that it waited the wall clock says, and cannot say more. For what was
        there before, the wall clock of the beginning counts.
        """
        level = self.levels[number]
        if message.offset < level.inherited:
            time_ms = self._began_wall_ms + now_ms - self._began_ms
            return max(0, time_ms - message.stored_at_ms - message.delay_ms)
        least_ms = max(0, now_ms - level.due_at(message, self._began_ms, self._began_wall_ms))
        most_ms = least_ms + message.delay_ms // _MARKS_PER_DELAY
        return min(max(wall_ms - message.stored_at_ms - message.delay_ms, least_ms), most_ms)

    def overdue_ms(self, number: int, now_ms: int) -> int:
        """The delay of the level's first message beyond its time; 0 while none is known."""
        due_ms = self.levels[number].due_ms
        return 0 if due_ms is None else max(0, now_ms - due_ms)
