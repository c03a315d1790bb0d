"""The log in memory, and how much of it is durable, committed and applied (thesis §3.5).

    base <= applied <= handed <= min(commit, persisted),  commit <= last
    base <= persisted <= submitted <= last

Entries up to ``base`` are gone: a snapshot covers them (``snapshot``). The log still knows the term
of the base itself, which is what the first entry kept must follow.

``submitted`` is what the disk has been asked to write, ``persisted`` what it has confirmed. Batches
are confirmed in the order they were submitted. A conflict that cuts the log while batches are under
way lowers what these batches may still confirm: a confirmation for an entry that was replaced since
must not count, not even if an equal (index, term) came back after it (the ABA race of etcd's
``async_storage_writes_append_aba_race.txt``).

The rules protected here: entries are cut only at a real conflict, never because an older message
arrives, and never at or below commit; the beginning goes only once it is applied; index arithmetic
happens nowhere else.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from gantry_protocol.types import Index, Term

from gantry_controller.raft.messages import Entry
from gantry_controller.raft.snapshot import Base

_TERM_OF = attrgetter("term")


class RaftLog:
    """The entries behind ``base``.

    Attributes:
        base: the place before the first entry; index 0 for a log that was never compacted.
        commit_index: entries up to here will never change (thesis §3.6).
        handed_index: entries up to here were given out to be applied.
        applied_index: entries up to here are applied.
        submitted_index: entries up to here are written or being written.
        persisted_index: entries up to here are durable.
    """

    __slots__ = (
        "_entries",
        "_under_way",
        "applied_index",
        "base",
        "commit_index",
        "handed_index",
        "persisted_index",
        "submitted_index",
    )

    def __init__(
        self,
        entries: list[Entry],
        commit_index: Index,
        base: Base = Base(),  # noqa: B008 - a frozen value
        applied_index: Index = Index(0),  # noqa: B008 - an int
    ) -> None:
        """Take over what recovery found; all of it is durable, and applied up to the snapshot."""
        self._entries = entries
        self.base = base
        self.commit_index = commit_index
        self.handed_index = applied_index
        self.applied_index = applied_index
        self.submitted_index = self.persisted_index = self.last_index
        self._under_way: deque[Index] = deque()  # per batch: the last index it may confirm
        assert base.index <= applied_index <= commit_index <= self.last_index

    @property
    def last_index(self) -> Index:
        """Index of the last entry; of the base if there is none."""
        return Index(self.base.index + len(self._entries))

    @property
    def last_term(self) -> Term:
        """Term of the last entry; of the base if there is none."""
        return self._entries[-1].term if self._entries else self.base.term

    def term_at(self, index: Index) -> Term | None:
        """Term of the entry at ``index`` or of the base; None before the base and beyond the last.

        Before the first entry of all (index 0) it is 0.
        """
        place = index - self.base.index
        if place == 0:
            return self.base.term
        return self._entries[place - 1].term if 0 < place <= len(self._entries) else None

    def entries_from(self, first: Index, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from ``first`` on, at least one if there is one, up to ``bytes_max``."""
        total = 0
        begin = end = first - self.base.index - 1
        assert begin >= 0, "entries that a snapshot has replaced"
        while end < len(self._entries):
            total += len(self._entries[end].encoded)
            if total > bytes_max and end > begin:
                break
            end += 1
        return tuple(self._entries[begin:end])

    def bytes_between(self, after: Index, last: Index) -> int:
        """Encoded size of the entries (``after``, ``last``]."""
        begin, end = after - self.base.index, last - self.base.index
        assert begin >= 0, "entries that a snapshot has replaced"
        return sum(len(entry.encoded) for entry in self._entries[begin:end])

    def is_up_to_date(self, last_index: Index, last_term: Term) -> bool:
        """Whether a log that ends there is at least as up to date as this one (thesis §3.6.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def conflict_hint(self, index: Index, term: Term) -> Index:
        """The last index <= ``index`` whose term is <= ``term``: two logs cannot match above it.

        Terms never fall along a log, so a search by halves finds it (etcd's findConflictByTerm).
        Nothing is known before the base: there they may match anywhere.
        """
        if index <= self.base.index:
            return index
        end = min(index, self.last_index) - self.base.index
        return Index(self.base.index + bisect_right(self._entries, term, 0, end, key=_TERM_OF))

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries right behind the last one."""
        assert entries[0].index == self.last_index + 1
        self._entries.extend(entries)

    def merge(self, prev_index: Index, entries: Sequence[Entry]) -> Index | None:
        """Take over a leader's entries that follow the matching entry at ``prev_index``.

        Entries that are there already are left alone, and so is whatever stands behind them: an
        old message must not cut what a newer one brought.

        Returns:
            The index at which the log was cut because of a conflict, or None.
        """
        for position, entry in enumerate(entries):
            term = self.term_at(entry.index)
            if term != entry.term:
                assert entry.index == prev_index + 1 + position
                cut = None if term is None else self._cut(entry.index)
                self.append(entries[position:])
                return cut
        return None

    def commit_to(self, index: Index) -> None:
        """Raise commit; it never falls."""
        assert index <= self.last_index
        self.commit_index = max(self.commit_index, index)

    def submit(self) -> list[Entry]:
        """Entries the disk has not been asked to write; it is being asked now."""
        entries = self._entries[self.submitted_index - self.base.index :]
        self.submitted_index = self.last_index
        return entries

    @property
    def writes_under_way(self) -> bool:
        """Whether the disk owes a confirmation."""
        return bool(self._under_way)

    def batch_submitted(self) -> None:
        """Everything submitted so far is one more batch under way."""
        self._under_way.append(self.submitted_index)

    def batch_persisted(self) -> None:
        """The oldest batch under way is durable."""
        self.persisted_index = max(self.persisted_index, self._under_way.popleft())

    @property
    def has_more_to_hand_out(self) -> bool:
        """Whether committed, durable entries have not been given out."""
        return self.handed_index < min(self.commit_index, self.persisted_index)

    def hand_out(self, entries_max: int) -> list[Entry]:
        """Entries to be applied next; at most ``entries_max`` are out at a time."""
        durable = min(self.commit_index, self.persisted_index)
        last = min(durable, self.applied_index + entries_max)
        base = self.base.index
        entries = self._entries[self.handed_index - base : max(last - base, 0)]
        self.handed_index = Index(max(last, self.handed_index))
        return entries

    def _cut(self, first: Index) -> Index:
        """Drop the entries from ``first`` on."""
        assert first > self.commit_index, "a leader contradicts a committed entry"
        del self._entries[first - 1 - self.base.index :]
        keep = Index(first - 1)
        self.submitted_index = min(self.submitted_index, keep)
        self.persisted_index = min(self.persisted_index, keep)
        self._under_way = deque(min(last, keep) for last in self._under_way)
        return first

    def compact(self, index: Index) -> list[Entry]:
        """Drop the entries up to ``index``, which a snapshot covers; returns them.

        To free hundreds of thousands of entries takes longer than a pass may, so the caller gets
        them and lets go of them in its own time.
        """
        assert self.base.index <= index <= self.applied_index, "a snapshot covers what is applied"
        term = self.term_at(index)
        assert term is not None
        count = index - self.base.index
        dropped = self._entries[:count]
        del self._entries[:count]
        self.base = Base(index, term)
        return dropped

    def restart(self, base: Base) -> list[Entry]:
        """Begin anew behind ``base``, which a snapshot has brought; returns the old entries.

        Nothing of the old log counts any more, and what the disk still confirms of it says nothing
        about the new one. ``base`` itself becomes durable with the batch that carries its marker;
        nothing can be counted before, as this node's word about it waits for that batch.
        """
        assert base.index > self.commit_index, "a snapshot that is older than this log's commit"
        dropped, self._entries = self._entries, []
        self.base = base
        self.commit_index = self.handed_index = self.applied_index = base.index
        self.submitted_index = self.persisted_index = base.index
        self._under_way = deque(base.index for _ in self._under_way)
        return dropped
