"""Offsets that consumer groups have pulled; pulled and not committed is in flight.

Memory of one mastership, for people only: nothing is decided by it but whether somebody is there
who must follow a reset. Bounded: who has not pulled for longest is forgotten first.
"""

from itertools import islice

from gantry_broker.clients.traffic import NAME_CHARS, TAKEN_MAX
from gantry_broker.store.tables.offsets import OffsetRow

MAX_KEPT = 200_000


class PulledOffsets:
    """The next offset of each group in each queue."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        """Nobody has pulled."""
        self._max_kept = max_kept
        self._offsets: dict[tuple[str, str, int], int] = {}  # in the order of the last pulls

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A member of ``group`` got everything below ``offset``."""
        key = (group, topic, queue_id)
        self._offsets.pop(key, None)
        self._offsets[key] = offset
        if len(self._offsets) > self._max_kept:
            del self._offsets[next(iter(self._offsets))]

    def take(self) -> list[OffsetRow]:
        """Some of the offsets, longest known first; they are another's to keep from now on."""
        keys = list(islice(self._offsets, TAKEN_MAX))
        rows = [(*key, self._offsets.pop(key)) for key in keys]
        return [row for row in rows if len(row[0]) <= NAME_CHARS]

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset; None when nobody has pulled, or long ago."""
        return self._offsets.get((group, topic, queue_id))

    def forget(self, group: str, topic: str, queue_id: int) -> None:
        """The group goes on elsewhere."""
        self._offsets.pop((group, topic, queue_id), None)
