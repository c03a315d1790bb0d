"""The place of a queue's record in the tier: sorted runs of each queue, and a binary search.

The index is built from the packs' footers, in the order of the chain, and can be thrown away and
built again. Rule protected: a read is answered with a place, with "it is not in the tier yet", or
with the next offset that is there; never with silence, and never with another queue's record.

A queue whose offsets begin anew (its topic was deleted and created again) has a run that starts at
or below what is known: what was before belongs to a queue that is gone, and leaves the index.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec


class Queue(msgspec.Struct, frozen=True):
    """A queue's name."""

    topic: str
    queue_id: int


class RunPlace(msgspec.Struct, frozen=True):
    """One run of one pack.

    Attributes:
        first: queue offset of the first record.
        count: records.
        pack: key of the pack.
        run: index of the run in the pack's footer.
        min_ts, max_ts: smallest and largest store timestamp in it, ms.
    """

    first: int
    count: int
    pack: str
    run: int
    min_ts: int = 0
    max_ts: int = 0

    @property
    def after(self) -> int:
        """One past the last queue offset."""
        return self.first + self.count


class Found(msgspec.Struct, frozen=True):
    """The record is the ``position``-th of this run (0 is the first)."""

    place: RunPlace
    position: int


class Gone(msgspec.Struct, frozen=True):
    """The record is not in the tier (any more); ``next_valid`` is the next offset that is."""

    next_valid: int


class Beyond(msgspec.Struct, frozen=True):
    """The tier does not reach so far (yet); ``tier_end`` is where it ends for this queue."""

    tier_end: int


class RunIndex:
    """Runs by queue. One entry per run of a live pack; the chain bounds how many packs live.

    Attributes:
        size: how many runs it holds.
    """

    def __init__(self) -> None:
        """An index of no packs."""
        self.size = 0
        self._runs: dict[Queue, list[RunPlace]] = {}

    def add(self, queue: Queue, place: RunPlace) -> None:
        """Take one run; packs come in the order of the chain."""
        assert place.count > 0, "a run holds at least one record"
        runs = self._runs.setdefault(queue, [])
        if runs and place.first < runs[-1].after:
            self.size -= len(runs)
            runs.clear()
        runs.append(place)
        self.size += 1

    def insert(self, queue: Queue, place: RunPlace) -> None:
        """Take one run of a pack that could not be read in its turn.

        The keys of packs sort in the order of the chain, so its place among the others is known.
        """
        runs = self._runs.setdefault(queue, [])
        at = bisect_right(runs, place.pack, key=lambda item: item.pack)
        earlier, later = runs[:at], runs[at:]
        if later and place.after > later[0].first:
            return  # the queue began anew behind it
        if earlier and place.first < earlier[-1].after:
            earlier = []
        self._runs[queue] = [*earlier, place, *later]
        self.size += 1 + len(earlier) + len(later) - len(runs)

    def around(self, queue: Queue, offset: int) -> tuple[str | None, str | None]:
        """The packs between which a record would be that no run of the index has.

        Returns:
            The key of the last pack with earlier records of the queue, and of the first with later
            ones; None where there is none.
        """
        runs = self._runs.get(queue, [])
        index = bisect_right(runs, offset, key=lambda place: place.first)
        earlier = runs[index - 1].pack if index else None
        return earlier, runs[index].pack if index < len(runs) else None

    def drop_packs(self, keys: Iterable[str]) -> None:
        """Forget packs that the chain has dropped."""
        gone = frozenset(keys)
        for queue in list(self._runs):
            kept = [place for place in self._runs[queue] if place.pack not in gone]
            self.size -= len(self._runs[queue]) - len(kept)
            if kept:
                self._runs[queue] = kept
            else:
                del self._runs[queue]

    def places(self, queue: Queue) -> Sequence[RunPlace]:
        """The runs of the queue, in the order of their offsets."""
        return self._runs.get(queue, ())

    def start(self, queue: Queue) -> int | None:
        """The smallest offset of the queue in the tier; None when there is none of it."""
        runs = self._runs.get(queue)
        return runs[0].first if runs else None

    def earliest(self, queue: Queue) -> int | None:
        """The smallest store timestamp (ms) of the queue's first run; None when there is none."""
        runs = self._runs.get(queue)
        return runs[0].min_ts if runs else None

    def since(self, queue: Queue, timestamp: int) -> int | None:
        """The first offset of the first run with a record stored at ``timestamp`` (ms) or later.

        At or before the one that was looked for; None when all of the queue here is older.
        """
        for place in self._runs.get(queue, ()):
            if place.max_ts >= timestamp:
                return place.first
        return None

    def locate(self, queue: Queue, offset: int) -> Found | Gone | Beyond | None:
        """The place of ``offset`` of ``queue``; None when the tier holds nothing of this queue."""
        runs = self._runs.get(queue)
        if not runs:
            return None
        index = bisect_right(runs, offset, key=lambda place: place.first) - 1
        if index >= 0 and offset < runs[index].after:
            return Found(place=runs[index], position=offset - runs[index].first)
        if index + 1 < len(runs):
            return Gone(next_valid=runs[index + 1].first)
        return Beyond(tier_end=runs[-1].after)
