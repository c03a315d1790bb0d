"""The last steps of a core, in memory, from a state on; pure.

A step is an input with what came out and what chance said. The core is a machine with a state, so
steps are of use from a state on that is known: a *stretch* begins with one and holds the steps
behind it. What is beyond the bound goes by whole stretches, the oldest first.

Recording costs no decision: should it fail, it ends, says why, and the core goes on.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

BYTES_MAX: Final = 4 * 1024 * 1024
STEPS_MAX: Final = 4096
"""Of one stretch."""
STEP_BYTES: Final = 200
"""What a step takes besides what is told of its size, about."""
RUN: Final = "run"
"""Kind of a step that stands for several (``CoreKind.items``)."""
STRETCHES: Final = 8
"""As many fit at least, if their states are small, so that an eighth of the ring goes at a time."""


class LogThen(msgspec.Struct, frozen=True):
    """The entries of a core's log as of some moment; of a core that has one.

    Attributes:
        first_index: of the first of ``sizes``, which goes on for later moments.
        count: of the entries then.
        runs: index and term of each entry whose term differs from that of the one before it.
    """

    first_index: int
    count: int
    sizes: Any
    runs: tuple[tuple[int, int], ...]


class Stretch:
    """Steps behind a state.

    Attributes:
        number: of its first step; steps are counted from the start of the process.
        at: the time at which it begins, as text.
        state: JSON (``CoreKind.state_of``).
        log: of that state, beside it.
        steps: kind, what was given, what chance said, what came out.
        size: bytes, about.
    """

    __slots__ = ("at", "log", "number", "size", "state", "steps")

    def __init__(self, number: int, at: str, state: bytes, log: LogThen | None) -> None:
        self.number = number
        self.at = at
        self.state = state
        self.log = log
        self.steps: list[tuple[str, Any, Any, Any]] = []
        self.size = len(state)


class HeldSteps(msgspec.Struct, frozen=True):
    """The content of a ring at a moment; may be written by another thread.

    Attributes:
        stretches: each with the number of its steps then.
    """

    stretches: tuple[tuple[Stretch, int], ...]
    dropped: int
    ended: str


class StepRing:
    """A ring of steps.

    Args:
        bytes_max: of all that is kept, but for the sizes of a log's entries (``LogThen``).

    Attributes:
        steps: where the next step goes: those of the newest stretch.
        dropped: steps that made room for others, or came before the first state.
        ended: why nothing is recorded any more; empty while it is.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.steps: list[tuple[str, Any, Any, Any]] = []
        self.dropped = 0
        self.ended = ""
        self._bytes_max = bytes_max
        self._stretches: deque[Stretch] = deque()
        self._closed = 0  # bytes of all but the newest
        self._sized = 0  # steps of the newest whose size is known

    @property
    def entries(self) -> int:
        """Steps that are held."""
        return sum(len(one.steps) for one in self._stretches)

    @property
    def size(self) -> int:
        """Bytes that they take, about."""
        return self._closed + (self._stretches[-1].size if self._stretches else 0)

    def passed(self, size: int) -> bool:
        """A pass is complete; whether the next one should begin a stretch.

        Args:
            size: bytes of its steps, besides ``STEP_BYTES`` for each.
        """
        if not self._stretches:
            return True
        last, count = self._stretches[-1], len(self.steps)
        last.size += size + STEP_BYTES * (count - self._sized)
        self._sized = count
        if self._closed + last.size > self._bytes_max:
            self._bound()
        of_steps = last.size - len(last.state)
        return count >= STEPS_MAX or of_steps * STRETCHES > self._bytes_max

    def begin(self, at: str, state: bytes, log: LogThen | None = None) -> None:
        """Begins a stretch."""
        number = 1 + self.dropped + self.entries
        if self._stretches:
            self._closed += self._stretches[-1].size
        else:
            number += len(self.steps)
            self.dropped += len(self.steps)
        self._stretches.append(Stretch(number, at, state, log))
        self.steps = self._stretches[-1].steps
        self._sized = 0
        self._bound()

    def restart(self) -> None:
        """Another core goes on: its state is none that the steps before it lead to."""
        if self._stretches:
            self.dropped += 1  # a step that nobody took

    def end(self, why: str) -> None:
        """Nothing is recorded from now on; what is held stays."""
        self.ended = why
        self.steps = []

    def held(self) -> HeldSteps:
        """All of it, as of now."""
        found = tuple((one, len(one.steps)) for one in self._stretches)
        return HeldSteps(found, self.dropped, self.ended)

    def _bound(self) -> None:
        while self._stretches and self.size > self._bytes_max:
            gone = self._stretches.popleft()
            if self._stretches:
                self._closed -= gone.size
            self.dropped += len(gone.steps)
            if gone.steps is self.steps:
                self.steps = []
