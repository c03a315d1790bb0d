"""The log in memory, and how much of it is durable, committed and applied (thesis §3.5).

    applied <= handed <= min(commit, persisted),  commit <= last
    persisted <= submitted <= last

``submitted`` is what the disk has been asked to write, ``persisted`` what it has confirmed. Batches
are confirmed in the order they were submitted. A conflict that cuts the log while batches are under
way lowers what these batches may still confirm: a confirmation for an entry that was replaced since
must not count, not even if an equal (index, term) came back after it (the ABA race of etcd's
``async_storage_writes_append_aba_race.txt``).

The rules protected here: entries are cut only at a real conflict, never because an older message
arrives, and never at or below commit; index arithmetic happens nowhere else.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from gantry_protocol.types import Index, Term

from gantry_controller.raft.messages import Entry

_TERM_OF = attrgetter("term")


class RaftLog:
    """All entries from index 1 on.

    Attributes:
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
        "commit_index",
        "handed_index",
        "persisted_index",
        "submitted_index",
    )

    def __init__(self, entries: list[Entry], commit_index: Index) -> None:
        """Take over what recovery found; all of it is durable."""
        self._entries = entries
        self.commit_index = commit_index
        self.handed_index = Index(0)
        self.applied_index = Index(0)
        self.submitted_index = self.persisted_index = self.last_index
        self._under_way: deque[Index] = deque()  # per batch: the last index it may confirm
        assert commit_index <= self.last_index

    @property
    def last_index(self) -> Index:
        """Index of the last entry; 0 for an empty log."""
        return Index(len(self._entries))

    @property
    def last_term(self) -> Term:
        """Term of the last entry; 0 for an empty log."""
        return self._entries[-1].term if self._entries else Term(0)

    def term_at(self, index: Index) -> Term | None:
        """Term of the entry at ``index``; 0 before the first; None beyond the last."""
        if index == 0:
            return Term(0)
        return self._entries[index - 1].term if index <= len(self._entries) else None

    def entries_from(self, first: Index, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from ``first`` on, at least one if there is one, up to ``bytes_max``."""
        total = 0
        end = first - 1
        while end < len(self._entries):
            total += len(self._entries[end].encoded)
            if total > bytes_max and end >= first:
                break
            end += 1
        return tuple(self._entries[first - 1 : end])

    def bytes_between(self, after: Index, last: Index) -> int:
        """Encoded size of the entries (``after``, ``last``]."""
        return sum(len(entry.encoded) for entry in self._entries[after:last])

    def is_up_to_date(self, last_index: Index, last_term: Term) -> bool:
        """Whether a log that ends there is at least as up to date as this one (thesis §3.6.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def conflict_hint(self, index: Index, term: Term) -> Index:
        """The last index <= ``index`` whose term is <= ``term``: two logs cannot match above it.

        Terms never fall along a log, so a search by halves finds it (etcd's findConflictByTerm).
        """
        return Index(
            bisect_right(self._entries, term, 0, min(index, self.last_index), key=_TERM_OF)
        )

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
        entries = self._entries[self.submitted_index :]
        self.submitted_index = self.last_index
        return entries

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
        entries = self._entries[self.handed_index : last]
        self.handed_index = Index(max(last, self.handed_index))
        return entries

    def _cut(self, first: Index) -> Index:
        """Drop the entries from ``first`` on."""
        assert first > self.commit_index, "a leader contradicts a committed entry"
        del self._entries[first - 1 :]
        keep = Index(first - 1)
        self.submitted_index = min(self.submitted_index, keep)
        self.persisted_index = min(self.persisted_index, keep)
        self._under_way = deque(min(last, keep) for last in self._under_way)
        return first
