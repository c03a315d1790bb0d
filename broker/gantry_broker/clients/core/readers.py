"""Pulls at a replica: which ones it may answer, and when it asks the master about its clients.

Whatever a replica has derived is confirmed, so nothing that it reads can be taken back. What it
does not know may be there all the same: records that were confirmed since, a reset of an offset, a
topic that was deleted. So it answers only as long as it hears the master and the controllers, and
only from the part of a queue that it has. Everything else is the master's to answer, above all that
an offset is wrong.
"""

from typing import NamedTuple

MASTER_SILENT_MS = 1_000  # it speaks five times a second
CONTROLLERS_SILENT_MS = 3_000  # a replica asks once a second who the master is
LEASE_S = 30.0
PLACES_MAX = 4_096  # queues of one client

Place = tuple[str, str, int]  # consumer group, topic, queue id


class Ties(NamedTuple):
    """The ties of a replica to its group.

    Attributes:
        is_counted: it gets the log of the newest epoch that it knows, and the master counts on it.
        is_sound: it leaves neither for good nor for a rebuilding, and nothing that is confirmed is
            damaged here.
        master_silent_ms: since the master was heard last.
        controllers_silent_ms: since the controllers answered last.
    """

    is_counted: bool
    is_sound: bool
    master_silent_ms: int
    controllers_silent_ms: int

    @property
    def is_fresh(self) -> bool:
        """Whether the replica knows all but what was confirmed in the last few seconds."""
        return (
            self.is_counted
            and self.is_sound
            and self.master_silent_ms <= MASTER_SILENT_MS
            and self.controllers_silent_ms <= CONTROLLERS_SILENT_MS
        )


class Held(NamedTuple):
    """The part of a queue that a replica has.

    Attributes:
        first: queue offset of the first record.
        end: one past the last one.
    """

    first: int
    end: int


def may_answer(readers: int, held: Held, offset: int, *, can_wait: bool) -> bool:
    """Whether a replica with fresh ties answers a pull.

    At the end of what it has it lets the consumer wait. A pull that cannot wait goes to the master:
    there may be more by now.

    Args:
        readers: of the queue; only where there are several a replica is one.
        held: what it has of the queue.
        offset: that the pull asks for.
        can_wait: whether the pull may be answered later.
    """
    if readers < 2:
        return False
    return held.first <= offset < held.end or (offset == held.end and can_wait)


class Leases:
    """The queues that one client reads at a replica, and until when.

    After ``LEASE_S`` one pull goes to the master, so that it may suggest another member.
    """

    def __init__(self) -> None:
        """It reads nothing here."""
        self._until_s: dict[Place, float] = {}

    def __len__(self) -> int:
        """Queues that are remembered."""
        return len(self._until_s)

    def holds(self, place: Place, now_s: float) -> bool:
        """Whether a pull is answered here; if not, the next one may be."""
        until_s = self._until_s.get(place)
        if until_s is None and len(self._until_s) >= PLACES_MAX:
            self._until_s.clear()
        if until_s is None or until_s <= now_s:
            self._until_s[place] = now_s + LEASE_S
        return until_s is None or until_s > now_s

    def end(self, place: Place) -> None:
        """The next pull goes to the master."""
        self._until_s[place] = 0.0
