"""A replica's log as its core knows it: who wrote what (its lineage), and how much of it is safe.

A lineage is a list of (epoch, start), strictly rising in both. Rule protected: two replicas that
agree on an (epoch, start) pair hold identical bytes up to the nearer of that epoch's two ends (log
matching). Three things keep it true:

* A master appends (e, end) *before* its first record of epoch e, and nobody else may ever write
  under e; so (e, start) names one history.
* An epoch that wrote nothing vanishes: appending (e, s) first drops every entry that starts at or
  above s. RocketMQ's ``EpochFileCache.appendEntry`` refuses the *new* entry instead and its caller
  ignores that, so the new master's records pass for the old master's and two logs differ for good.
  Kafka met the same and fixed it (KAFKA-7415, KAFKA-10706).
* Entries never reach beyond the log: what is cut from the log is cut here.

A ``Lineage`` is a value. It refuses entries that do not rise; it never repairs them.

``LogFacts`` joins it with five numbers and their inequalities: ``log_start <= confirm`` or the log
is empty; ``flushed <= end``; ``confirm <= flushed``; no lineage entry starts above ``end``. Both
roles of a replica share one, because a promotion or demotion changes who may write the log and
nothing in the log.
"""

from bisect import bisect_right
from collections.abc import Iterable

import msgspec
from gantry_protocol.types import Epoch, EpochEntry, Offset


class LineageError(ValueError):
    """Entries that no history can have: the peer's or the disk's fault, never repaired."""


class Lineage:
    """An immutable list of epoch entries, oldest first."""

    __slots__ = ("_starts", "entries")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """Take the entries as they are.

        Raises:
            LineageError: epochs or starts that do not rise strictly, or a negative number.
        """
        self.entries = tuple(entries)
        self._starts = [entry.start_offset for entry in self.entries]
        epoch, start = 0, -1
        for entry in self.entries:
            if entry.epoch <= epoch or entry.start_offset <= start:
                raise LineageError(
                    f"epoch {entry.epoch} from {entry.start_offset} cannot follow "
                    f"epoch {epoch} from {start}"
                )
            epoch, start = entry.epoch, entry.start_offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lineage) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        listed = ", ".join(f"{entry.epoch}@{entry.start_offset}" for entry in self.entries)
        return f"Lineage({listed})"

    @property
    def last(self) -> EpochEntry | None:
        """The newest entry; None before the first record of all."""
        return self.entries[-1] if self.entries else None

    @property
    def last_epoch(self) -> Epoch:
        """The newest epoch; 0 before the first, which no master ever has."""
        return self.entries[-1].epoch if self.entries else Epoch(0)

    def with_epoch(self, entry: EpochEntry) -> "Lineage":
        """Begin ``entry.epoch`` at ``entry.start_offset``, and never refuse it for its start.

        Raises:
            LineageError: an older start has the same or a newer epoch, so ``entry`` is not new.
        """
        kept = [old for old in self.entries if old.start_offset < entry.start_offset]
        return Lineage([*kept, entry])

    def cut(self, end: Offset) -> "Lineage":
        """The lineage of a log cut at ``end``: an epoch that has lost all its records vanishes."""
        return Lineage(entry for entry in self.entries if entry.start_offset < end)

    def recovered(self, end: Offset) -> "Lineage":
        """The lineage of a log whose unflushed tail a power cut took.

        An entry that starts exactly at ``end`` stays: it was made durable for an epoch that has
        written nothing yet, and it is evidence of that epoch.
        """
        return Lineage(entry for entry in self.entries if entry.start_offset <= end)

    def entry_at(self, offset: Offset) -> EpochEntry | None:
        """The entry under which the byte at ``offset`` is, or would be, written; None below all."""
        index = bisect_right(self._starts, offset) - 1
        return self.entries[index] if index >= 0 else None

    def boundary_after(self, offset: Offset) -> Offset | None:
        """The end of the epoch of ``offset``; None in the newest, which is open."""
        index = bisect_right(self._starts, offset)
        return self.entries[index].start_offset if index < len(self.entries) else None

    def end_of(self, index: int, log_end: Offset) -> Offset:
        """The end of the records of the entry at ``index`` in a log that ends at ``log_end``."""
        if index + 1 < len(self.entries):
            return self.entries[index + 1].start_offset
        return log_end


def consistent_point(
    mine: Lineage, my_end: Offset, theirs: Lineage, their_end: Offset
) -> Offset | None:
    """The offset up to which two logs are the same; None when no epoch is common to both.

    The newest common (epoch, start) decides: both logs were equal when that epoch began (its only
    master had one log), both hold a prefix of what it wrote, and either may have been cut or
    overwritten since. So they are equal up to the nearer of the two ends of that epoch.
    """
    their_index = {entry: index for index, entry in enumerate(theirs.entries)}
    for index in range(len(mine.entries) - 1, -1, -1):
        other = their_index.get(mine.entries[index])
        if other is not None:
            return min(mine.end_of(index, my_end), theirs.end_of(other, their_end))
    return None


class StoredState(msgspec.Struct, frozen=True):
    """The state that a replica must remember across a power cut, beside its log.

    Attributes:
        epoch: the newest epoch it has acted in; it never acts in an older one again.
        confirm: a lower bound of the confirm offset; the log is never cut below it.
    """

    epoch: Epoch
    lineage: Lineage
    confirm: Offset


class LogFacts:
    """The contents of the log, and how much of it is safe.

    Attributes:
        log_start: the oldest byte.
        end: one past the newest byte.
        flushed: everything below is on the disk.
        confirm: everything below is on the disk of every member of the sync-state set, as far as
            this replica knows. Never falls.
        lineage: who wrote what.
        epoch: the newest epoch this replica has acted in. Never falls.
        cuts: how often the log was cut, so that a flush that was asked for before a cut is not
            taken for a flush of what was written after it.
    """

    __slots__ = ("confirm", "cuts", "end", "epoch", "flushed", "lineage", "log_start")

    def __init__(
        self, *, log_start: Offset, end: Offset, flushed: Offset, stored: StoredState
    ) -> None:
        """Join what the log recovered with what was stored beside it.

        The caller has refused a log that ends below the stored confirm offset: that is a damaged
        volume, not a torn tail.
        """
        self.log_start = log_start
        self.end = end
        self.flushed = flushed
        self.lineage = stored.lineage.recovered(end)
        self.epoch = max(stored.epoch, stored.lineage.last_epoch)
        self.confirm = stored.confirm
        self.cuts = 0
        assert self.confirm <= flushed <= end, f"confirm {self.confirm} > flushed {flushed}"

    def stored(self) -> StoredState:
        """The state that has to survive a power cut."""
        return StoredState(epoch=self.epoch, lineage=self.lineage, confirm=self.confirm)

    def appended(self, end: Offset) -> None:
        """The log grew to ``end``."""
        assert end >= self.end, f"the log's end fell from {self.end} to {end} without a cut"
        self.end = end

    def append_refused(self, end: Offset) -> None:
        """Bytes that were to be appended were not; the log still ends at ``end``."""
        assert self.flushed <= end <= self.end, f"the log ends at {end}, flushed {self.flushed}"
        self.end = end

    def flush_done(self, flushed: Offset, cuts: int) -> bool:
        """A flush ended; returns whether ``flushed`` rose."""
        if cuts != self.cuts or flushed <= self.flushed:
            return False
        assert flushed <= self.end, f"flushed {flushed} lies beyond the end {self.end}"
        self.flushed = flushed
        return True

    def confirm_up_to(self, offset: Offset) -> bool:
        """Raise confirm to ``offset``, as far as it is flushed here; returns whether it rose."""
        reached = min(offset, self.flushed)
        if reached <= self.confirm:
            return False
        self.confirm = reached
        return True

    def cut(self, point: Offset, *, reset: bool) -> None:
        """The log ends at ``point`` now, all of it durable; after a reset it also starts there.

        The ends of flushes that were asked for before are of the log before, and not told.
        """
        assert point >= self.confirm, f"cut at {point} below confirm {self.confirm}"
        self.cuts += 1
        self.end = self.flushed = point
        if reset:
            self.log_start = self.confirm = point
            self.lineage = Lineage()
        else:
            self.lineage = self.lineage.cut(point)

    def trimmed(self, start: Offset) -> None:
        """The log now starts at ``start``; the lineage still tells who wrote what was below."""
        assert self.log_start <= start <= self.confirm, f"trimmed to {start} above {self.confirm}"
        self.log_start = start

    def begin_epoch(self, entry: EpochEntry) -> None:
        """``entry`` becomes the newest line; nothing is written under it before it is saved."""
        self.lineage = self.lineage.with_epoch(entry)
