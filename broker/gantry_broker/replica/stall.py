"""A disk that does not answer: no end of a sync, and no error either, for longer than is sane.

While a master's own log does not become durable it confirms nothing, so nobody's writes are
answered. Its heartbeats go on, so nobody else notices. So it looks at its disk itself, refuses
writes meanwhile, and asks for another master.

Rules protected: it hands over to a member of the set only, under compare on its own epoch: every
member holds what was acknowledged. A serving master asks only for a member that has made durable
what its own disk has not: where all disks stand still, nobody is better. While nobody can take
over it keeps the role, and serves again when the disk does.

A full disk answers, and takes no messages; the same relief is asked for there. Members say with
each acknowledgement whether they have room, by a lower mark than that of a full disk: so where all
fill up nobody is asked, and a mastership does not come back before a good part of a disk is
written.
"""

from collections import Counter
from typing import NamedTuple

from gantry_protocol.types import BrokerId, Epoch, Offset

from gantry_broker.replica.effects import HandOver
from gantry_broker.replica.events import HandOverFinished
from gantry_broker.replica.lineage import LogFacts
from gantry_broker.replica.saver import Saver
from gantry_broker.replica.values import Limits

DAMAGE_RELIEFS_MAX = 2  # of one range: the others may lack it, too, and would give way to us
GIVES_WAY = "its disk is full: a member that is in sync and has room is asked to take over"
STAYS_FULL = (
    "its disk is full, and no member that is in sync has room: it stays the master and takes no "
    "messages"
)
PATIENCE_MAX = 8  # times ``disk_wait_ms``, for the disk of one who is being promoted


class DamageRelief:
    """Masterships given away since a range of the log is damaged, over all epochs of a process.

    Where several members lack a range, they would hand the mastership round for ever. So each gives
    it away at most ``DAMAGE_RELIEFS_MAX`` times for a range, and to another member the next time.
    """

    def __init__(self) -> None:
        """Nothing is damaged."""
        self._found: set[Offset] = set()  # in this epoch
        self._given_away: Counter[Offset] = Counter()  # by range
        self._asked: set[Offset] = set()  # for these somebody is to take over now
        self._tried: Counter[BrokerId] = Counter()

    def found(self, start: Offset) -> None:
        """The serving master's log is damaged from ``start`` on."""
        self._found.add(start)

    def forget(self) -> None:
        """The epoch is over; whoever serves next finds its damage again."""
        self._found.clear()
        self._asked.clear()

    @property
    def is_due(self) -> bool:
        """Whether another master is to be asked for."""
        return any(self._given_away[start] < DAMAGE_RELIEFS_MAX for start in self._found)

    def heirs(self, holders: list[BrokerId]) -> list[BrokerId]:
        """Those of ``holders`` to ask, while it is due; who was asked less often comes first."""
        return sorted(holders, key=lambda item: self._tried[item]) if self.is_due else []

    def asked_for(self, target: BrokerId) -> None:
        """``target`` is to take over. It counts now: the answer may come after the next epoch."""
        self._tried[target] += 1
        self._asked = set(self._found)
        self._given_away.update(self._asked)

    def refused(self) -> None:
        """It did not take over, so nothing was given away."""
        self._given_away.subtract(self._asked)
        self._asked.clear()


class Room(NamedTuple):
    """Knowledge of the room on this replica's disk; see ``RoomChanged``."""

    is_full: bool
    has_room: bool


class DiskWatch:
    """The time for which the disk has made nothing durable of what waits for it.

    Attributes:
        waited_ms: without any progress, at the last look; 0 while nothing waits.
    """

    __slots__ = ("_limits", "_log", "_state", "waited_ms")

    def __init__(self, limits: Limits, now_ms: int) -> None:
        """Nothing waits yet."""
        self.waited_ms = 0
        self._limits = limits
        self._log = _Wait(now_ms)
        self._state = _Wait(now_ms)

    @property
    def is_silent(self) -> bool:
        """Whether it takes longer than anybody should wait."""
        return self.waited_ms >= self._limits.disk_wait_ms

    def look(self, log: LogFacts, saver: Saver, now_ms: int) -> None:
        """Note what is durable at ``now_ms``: bytes of the log, and states beside it."""
        self.waited_ms = max(
            self._log.look((log.flushed, log.cuts), now_ms, waits=log.flushed < log.end),
            self._state.look((saver.saved, 0), now_ms, waits=saver.is_waiting),
        )

    def excuse(self, pause_ms: int) -> None:
        """This process stood still for so long; its disk may have answered meanwhile."""
        self._log.since_ms += pause_ms
        self._state.since_ms += pause_ms


class _Wait:
    """One kind of work.

    Attributes:
        since_ms: the last progress, or the last moment at which nothing waited.
    """

    __slots__ = ("_reached", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self._reached = (0, 0)

    def look(self, reached: tuple[int, int], now_ms: int, *, waits: bool) -> int:
        if not waits or reached != self._reached:
            self._reached, self.since_ms = reached, now_ms
        return now_ms - self.since_ms


class Relief:
    """The giving away of one mastership; thrown away with its epoch.

    Attributes:
        has_asked: somebody was asked for.
    """

    __slots__ = ("_asked", "_limits", "_not_before_ms", "_refused", "has_asked")

    def __init__(self, limits: Limits) -> None:
        """Nobody is asked."""
        self.has_asked = False
        self._limits = limits
        self._asked: BrokerId | None = None
        self._not_before_ms = 0
        self._refused: set[BrokerId] = set()

    def step(self, heirs: list[BrokerId], epoch: Epoch, now_ms: int) -> list[HandOver]:
        """Ask for the first of ``heirs`` that was not refused; after the last, for all again."""
        if self._asked is not None or now_ms < self._not_before_ms or not heirs:
            return []
        left = [heir for heir in heirs if heir not in self._refused]
        if not left:
            self._refused.clear()
            self._not_before_ms = now_ms + self._limits.retry_last_ms
            return []
        self.has_asked = True
        self._asked = left[0]
        return [HandOver(target=left[0], epoch=epoch)]

    def finished(self, end: HandOverFinished, now_ms: int) -> None:
        """The election is over. When the target was elected, a newer epoch ends this one.

        Where nobody has answered, nobody has refused, and the same is asked for again.
        """
        target, self._asked = self._asked, None
        if target is None:
            return
        if end.answered and not end.accepted:
            self._refused.add(target)
        wait_ms = self._limits.drain_give_up_ms if end.accepted else self._limits.retry_first_ms
        self._not_before_ms = now_ms + wait_ms
