"""The log's entries by terms and sizes, beside the log; pure.

A core is begun again from a state, and its log is part of that. Its entries cannot be kept, for
they hold commands and are let go of after snapshots; their sizes take four bytes each. A shape is
shared by all states that a ring holds: what is appended changes none of them, as each knows how far
it goes, and where entries are cut or dropped a new one begins.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from gantry_protocol.steps.ring import LogThen

from gantry_controller.decisions.told import encoded_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_controller.raft.messages import Entry

SIZES_MAX = 1_000_000
"""A log of more entries than this is not recorded: 4 MB besides the ring."""


class LogShape:
    """The log's shape now."""

    def __init__(self, base_index: int, entries: Sequence[Entry]) -> None:
        self._first = base_index + 1
        self._sizes: array[int] = array("I")
        self._runs: list[tuple[int, int]] = []
        self.extend(entries)

    @property
    def last_index(self) -> int:
        """Index of the last entry."""
        return self._first + len(self._sizes) - 1

    def extend(self, entries: Sequence[Entry]) -> None:
        """Entries were added, behind a cut if the first one is not the next."""
        if not entries:
            return
        first = entries[0].index
        if first <= self.last_index:
            self._sizes = self._sizes[: first - self._first]
            self._runs = [run for run in self._runs if run[0] < first]
        self._sizes.extend(encoded_sizes(entries))
        term = self._runs[-1][1] if self._runs else None
        if entries[-1].term == term:  # terms never fall, so all of them are of this one
            return
        for entry in entries:
            if entry.term != term:
                term = entry.term
                self._runs.append((entry.index, term))

    def drop(self, base_index: int) -> None:
        """The entries up to ``base_index`` are gone."""
        count = base_index + 1 - self._first
        if count <= 0:
            return
        before = [run for run in self._runs if run[0] <= base_index]
        self._sizes = self._sizes[count:]
        self._first = base_index + 1
        rest = self._runs[len(before) :]
        begins = bool(rest) and rest[0][0] == self._first
        self._runs = rest if begins or not before else [(self._first, before[-1][1]), *rest]

    def now(self) -> LogThen:
        """The log as of this moment."""
        return LogThen(self._first, len(self._sizes), self._sizes, tuple(self._runs))
