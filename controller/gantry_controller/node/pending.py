"""Callers that wait: for the entry their command became, or for the state to be new enough.

A caller is answered exactly once. A node that stops leading answers all its proposals at once with
``ProposalDropped``: the next leader may still commit them, so their outcome is unknown, and
commands must bear being repeated (they carry the epoch they are about).
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from gantry_protocol.errors import GantryError
from gantry_protocol.types import Index

from gantry_controller.raft.reads import ReadMode, ReadState

Done = Callable[[Any], None]
"""Gets the result of apply, or an exception."""

ReadDone = Callable[[Exception | None], None]
"""Gets None when the state machine may be read."""


class ProposalDropped(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """Leadership ended before the outcome was known; the command may still take effect."""

    def __init__(self) -> None:
        super().__init__(
            "This controller node stopped leading before the command was committed; it may still "
            "take effect, so look before trying again."
        )


class Proposals:
    """Proposals of the present leadership, by index."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Index, Done]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, first: Index, callers: list[Done]) -> None:
        """``callers`` wait for the entries from ``first`` on."""
        self._waiting.extend((Index(first + place), done) for place, done in enumerate(callers))

    def take(self, index: Index) -> Done | None:
        """The caller that waits for ``index``. Indexes are asked for in rising order."""
        if self._waiting and self._waiting[0][0] == index:
            return self._waiting.popleft()[1]
        return None

    def drop(self, error: Exception) -> None:
        """Answer all with ``error``."""
        waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done(error)


class Reads:
    """Reads, from the moment they are asked for until they are answered.

    Attributes:
        open: how many are neither answered nor refused, wherever they wait.
    """

    def __init__(self) -> None:
        self.open = 0
        self._waiting: deque[ReadState] = deque()

    def add(self, reads: list[ReadState]) -> None:
        """A quorum has confirmed these; indexes never fall from one to the next."""
        self._waiting.extend(reads)

    def serve(self, applied: Index, served: dict[ReadMode, int]) -> None:
        """Answer those whose index is applied, and count them in ``served``."""
        while self._waiting and self._waiting[0].index <= applied:
            read = self._waiting.popleft()
            served[read.mode] += len(read.contexts)
            self.answer(read.contexts, None)

    def drop(self, error: Exception) -> None:
        """Answer those that a quorum has confirmed with ``error``."""
        waiting, self._waiting = self._waiting, deque()
        for read in waiting:
            self.answer(read.contexts, error)

    def answer(self, contexts: list[object], outcome: Exception | None) -> None:
        """Call each context, which is the caller's ``done``."""
        self.open -= len(contexts)
        for done in contexts:
            assert callable(done)
            done(outcome)
