"""The replica's log as the core knows it: five numbers and the lineage, with their inequalities.

``log_start <= confirm`` or the log is empty; ``flushed <= end``; ``confirm <= flushed``;
no lineage entry starts above ``end``. Both roles of a replica share one ``LogFacts``, because a
promotion or demotion changes who may write the log and nothing in the log.
"""

from gantry_protocol.types import EpochEntry, Offset

from gantry_broker.replica.effects import StoredState
from gantry_broker.replica.lineage import Lineage


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
