"""Proposals and reads that wait for their outcome, found again by index. No tasks, no futures."""

from collections import deque
from collections.abc import Callable
from typing import Any

from gantry_protocol.errors import GantryError
from gantry_protocol.types import Index, Term

PROPOSALS_MAX = 65_536

Done = Callable[[Any], None]
"""Gets the result, or an exception."""

ReadDone = Callable[[Exception | None], None]


class ProposalDropped(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """Another leader's entry took the place of the proposal: it will never take effect."""

    def __init__(self) -> None:
        super().__init__("The controllers changed their leader before this took effect; try again.")


class Proposals:
    """Proposals in the log, by index.

    A proposal's fate is known when the entry at its index is applied: it is its own if the terms
    agree, and somebody else's otherwise. A change of leader by itself decides nothing.
    """

    def __init__(self) -> None:
        self._by_index: dict[Index, tuple[Term, Done]] = {}

    def __len__(self) -> int:
        return len(self._by_index)

    def add(self, index: Index, term: Term, done: Done) -> None:
        """Wait for the entry at ``index``; one that waited there before has lost its place."""
        before = self._by_index.pop(index, None)
        self._by_index[index] = (term, done)
        if before is not None:
            before[1](ProposalDropped())

    def applied(self, index: Index, term: Term, result: object) -> None:
        """The entry at ``index`` was applied with this result."""
        waiting = self._by_index.pop(index, None)
        if waiting is not None:
            waiting[1](result if waiting[0] == term else ProposalDropped())

    def drop_all(self, error: Exception) -> None:
        """The node stops: nobody here will learn the outcome."""
        waiting, self._by_index = self._by_index, {}
        for _, done in waiting.values():
            done(error)


class Reads:
    """Reads that a quorum has confirmed and that wait for the state machine, oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Index, list[object]]] = deque()

    def add(self, index: Index, contexts: list[object]) -> None:
        """Reads that may be answered once ``index`` is applied."""
        self._waiting.append((index, contexts))

    def answer(self, applied: Index) -> None:
        """Answer those whose index is applied."""
        while self._waiting and self._waiting[0][0] <= applied:
            finish(self._waiting.popleft()[1], None)

    def drop_all(self, error: Exception) -> None:
        """The node stops."""
        while self._waiting:
            finish(self._waiting.popleft()[1], error)


def finish(contexts: list[object], outcome: Exception | None) -> None:
    """Call back the readers; a context is the ``done`` of ``RaftNode.read``."""
    for done in contexts:
        assert callable(done)
        done(outcome)
