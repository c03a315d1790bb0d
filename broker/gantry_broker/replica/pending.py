"""Writes that were appended and wait for their fate: which of them end now, and how.

Rule protected (H11): a write is acknowledged only when confirm covers its last byte *and* the
sync-state set has the minimum of members at that moment. Everything else that was appended ends
unacknowledged: confirmed while too few were in sync, after ``REPLICATION_TIMEOUT_MS``, or at once
when the mastership ends or is in doubt, because from then on nobody here knows whether the bytes
stay. Each write ends exactly once.

A write is whatever the shell needs in order to answer it. The queue belongs to one mastership, so a
write cannot be judged by the confirm offset of another. It has no bound of its own: its length is
bounded by what the connections of clients may have under way.
"""

from collections import deque
from enum import Enum, auto

from gantry_protocol.types import Offset

REPLICATION_TIMEOUT_MS = 3_000  # upstream's syncFlushTimeout for replication


class Fate(Enum):
    """The end of a write."""

    CONFIRMED = auto()  # by a set that has the minimum of members: it is acknowledged
    TOO_FEW = auto()  # by a set that has fewer
    LATE = auto()  # nobody has confirmed it in time
    DEPOSED = auto()  # the mastership is over
    CUT_OFF = auto()  # another master may have been elected


class PendingWrites:
    """The writes of one mastership that wait; see the module.

    They stand in the order of their bytes, and of their deadlines, so everything looks at the front
    only.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Nobody waits."""
        # The end of its bytes, until when it waits, itself. A plain tuple: one is made per send.
        self._waiting: deque[tuple[Offset, int, object]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end: Offset, now_ms: int, write: object) -> None:
        """``write`` was appended, and ends at ``end``."""
        self._waiting.append((end, now_ms + REPLICATION_TIMEOUT_MS, write))

    def confirmed(self, confirm: Offset) -> list[object]:
        """Those that end at or below ``confirm``."""
        waiting, ended = self._waiting, list[object]()
        while waiting and waiting[0][0] <= confirm:
            ended.append(waiting.popleft()[2])
        return ended

    def late(self, now_ms: int) -> list[object]:
        """Those that have waited long enough."""
        waiting, ended = self._waiting, list[object]()
        while waiting and waiting[0][1] <= now_ms:
            ended.append(waiting.popleft()[2])
        return ended

    def end(self) -> list[object]:
        """All of them."""
        ended = [write for _, _, write in self._waiting]
        self._waiting.clear()
        return ended
