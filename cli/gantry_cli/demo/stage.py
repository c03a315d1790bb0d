"""The state of the show, kept apart from how it is drawn.

The script writes sentences and phases here; the live view reads all of it several times a second,
the plain narrator prints each sentence once. Neither can change what happens.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_cli.demo.tier import TierWatch
    from gantry_cli.trial.load import Load
    from gantry_cli.trial.observer import Observer

EVENTS_KEPT = 200


class Event(msgspec.Struct, frozen=True):
    """Something that was said, and when, counted from the start of the demonstration."""

    at_s: float
    text: str
    kind: str  # "did": we caused it, "saw": the controllers or the client told it, "gap": measured


class DemoStage:
    """The show so far.

    Args:
        on_event: told every event at once; the plain narrator prints it.
    """

    def __init__(self, on_event: Callable[[Event], None] | None = None) -> None:
        self.began_s = time.monotonic()
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.phase = "starting"
        self.load: Load | None = None
        self.observer: Observer | None = None
        self.tier: TierWatch | None = None
        self.gaps: dict[str, float] = {}
        self._on_event = on_event

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began_s

    def did(self, text: str) -> None:
        """The script did something."""
        self._say(text, "did")

    def saw(self, text: str) -> None:
        """Somebody told about a change."""
        self._say(text, "saw")

    def measured(self, what: str, gap_ms: float) -> None:
        """A gap in the acknowledgements is known."""
        self.gaps[what] = gap_ms
        self._say(f"{what}: no acknowledged write for {gap_ms:.0f} ms", "gap")

    def _say(self, text: str, kind: str) -> None:
        event = Event(self.elapsed_s, text, kind)
        self.events.append(event)
        if self._on_event is not None:
            self._on_event(event)
