"""Losses of the tier: what cannot be read, when it is asked for again, what is gone; pure.

One answer "not there" proves nothing: stores err, mounts vanish, rights are taken away. So nothing
is decided by it, and it is never remembered for ever. Rules protected:

* Whatever cannot be read is asked for again, after waits that double up to a bound.
* Only the oldest objects can count as removed (a rule of the bucket does that), and only after
  ``LOOKS`` listings over at least ``OVER_S`` that all lack them and show what comes behind them. A
  listing that shows nothing of the tier at all proves nothing.
* Listings that were begun go on until they prove it, or show it; what was read meanwhile is there.
* A hole in the middle is never skipped: whoever needs it is told to ask again.
* What counts as removed and appears again is read again.

What it refuses: to delete or to write anything; the bucket stays as it is, for whoever restores it.
"""

from collections.abc import Iterable

import msgspec
from gantry_protocol.tier.manifests import PackEntry

FIRST_S = 1.0  # until an object is asked for again
LAST_S = 60.0  # at most, however often it failed
GROWTH = 2.0
LOOKS = 5
OVER_S = 60.0
REMOVED_S = 300.0  # between two looks at what counts as removed already
OLDEST_S = 300.0  # until the oldest pack is asked for, also if nobody reads it
AT_ONCE = 16  # objects asked for again in one round


class Patience(msgspec.Struct, frozen=True):
    """The time for which nothing is concluded from a missing object. Times in seconds."""

    first_s: float = FIRST_S
    last_s: float = LAST_S
    looks: int = LOOKS
    over_s: float = OVER_S
    removed_s: float = REMOVED_S
    oldest_s: float = OLDEST_S


class Lost(msgspec.Struct):
    """A pack that cannot be read now.

    Attributes:
        entry: of the chain.
        reason: one sentence with the object.
        absent: the store says that it is not there; otherwise what is there cannot be used.
        indexed: its footer was read before, so it is known which records are in it.
        tries: how often it was asked for.
        since_s: the clock at the first failure.
        due_s: when it is asked for again.
    """

    entry: PackEntry
    reason: str
    absent: bool
    indexed: bool
    since_s: float
    due_s: float
    tries: int = 1


class Losses:
    """See the module. The clock is the caller's, in seconds.

    Attributes:
        packs: that cannot be read, by key; those that were removed are not among them.
        removed_below: everything below this offset of the log was removed from the store; 0: none.
        asked_again: objects that were asked for again, ever.
    """

    def __init__(self, patience: Patience) -> None:
        """Everything can be read."""
        self.packs: dict[str, Lost] = {}
        self.removed_below = 0
        self.asked_again = 0
        self._patience = patience
        self._candidate: int | None = None  # all looks lacked what is below
        self._looks = 0
        self._since_s = 0.0
        self._look_due_s = 0.0

    # ---- packs

    def note(
        self, entry: PackEntry, reason: str, now_s: float, *, absent: bool, indexed: bool
    ) -> None:
        """A pack could not be read."""
        lost = self.packs.get(entry.key)
        if lost is None:
            due_s = now_s + self._patience.first_s
            self.packs[entry.key] = Lost(entry, reason, absent, indexed, now_s, due_s)
            return
        lost.reason, lost.absent = reason, absent
        lost.indexed = lost.indexed or indexed
        wait_s = self._patience.first_s * GROWTH ** min(lost.tries, 30)
        lost.due_s = now_s + min(wait_s, self._patience.last_s)
        lost.tries += 1

    def read(self, key: str) -> None:
        """A pack was read: listings that lacked it prove nothing any more."""
        lost, candidate = self.packs.pop(key, None), self._candidate
        if lost is not None and candidate is not None and lost.entry.lo < candidate:
            self._forget_looks()

    def due(self, now_s: float) -> list[Lost]:
        """The objects to be asked for again now; the oldest of the log first."""
        found = [pack for pack in self.packs.values() if pack.due_s <= now_s]
        found.sort(key=lambda item: item.entry.lo)
        return found[:AT_ONCE]

    @property
    def next_due_s(self) -> float:
        """The clock when something is asked for again; infinite when nothing is."""
        return min((pack.due_s for pack in self.packs.values()), default=float("inf"))

    def first_hidden(self, after: str | None, before: str | None) -> Lost | None:
        """The first pack whose records are not known, between two others in the chain's order.

        Args:
            after: key of a pack; None for all from the first.
            before: key of a pack; None for all to the last.
        """
        return min(
            (
                item
                for key, item in self.packs.items()
                if not item.indexed
                and (after is None or key > after)
                and (before is None or key < before)
            ),
            key=lambda item: item.entry.lo,
            default=None,
        )

    @property
    def first(self) -> Lost | None:
        """The oldest pack that cannot be read; None when all can."""
        return min(self.packs.values(), key=lambda item: item.entry.lo, default=None)

    # ---- what counts as removed

    @property
    def in_doubt(self) -> bool:
        """Whether listings lack more than what counts as removed, and are not enough yet."""
        return self._candidate is not None

    def look_is_due(self, now_s: float) -> bool:
        """Whether the store is to be listed."""
        return now_s >= self._look_due_s

    def looked(self, first_there: int | None, start: int, now_s: float) -> bool:
        """A listing was read; whether ``removed_below`` moved by it.

        Args:
            first_there: where the oldest object of the chain that was listed begins in the log;
                None: none was, which proves nothing.
            start: where the tier should begin.
            now_s: the clock.
        """
        before = self.removed_below
        if first_there is None:
            self._forget_looks()
        elif first_there <= start:
            self._forget_looks()
            self.removed_below = 0
        elif first_there < before:  # some of it was restored
            self._forget_looks()
            self.removed_below = first_there
        elif first_there > before:
            self._gather(first_there, now_s)
        else:
            self._forget_looks()
        settled = before and self.removed_below == before and self._candidate is None
        wait_s = self._patience.removed_s if settled else self._spread_s
        self._look_due_s = now_s + wait_s
        return self.removed_below != before

    @property
    def _spread_s(self) -> float:
        return self._patience.over_s / self._patience.looks

    def _gather(self, first_there: int, now_s: float) -> None:
        if self._candidate is None:
            self._candidate, self._looks, self._since_s = first_there, 0, now_s
        self._candidate = min(self._candidate, first_there)
        self._looks += 1
        waited_s = now_s - self._since_s
        if self._looks >= self._patience.looks and waited_s >= self._patience.over_s:
            self.removed_below = self._candidate
            self._forget_looks()

    def _forget_looks(self) -> None:
        self._candidate, self._looks = None, 0

    def drop(self, keys: Iterable[str]) -> None:
        """These packs count as removed: they are not asked for one by one any more."""
        for key in keys:
            self.packs.pop(key, None)
