"""Records of a load that nobody has fetched yet: lines of a history, and observations.

The rule protected here: nothing is left out in silence. A buffer that is full drops what comes and
counts it, and whoever judges refuses a history of which something was dropped. Records that were
asked for are kept until a later question shows that they arrived, so a lost answer loses nothing.

Pure: who writes and who asks is given.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from gantry_chaos.errors import HistoryError
from gantry_chaos.history import lines, observations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_chaos.history.lines import Line
    from gantry_chaos.history.observations import Observation

RECORDS_MAX = 500_000  # about 100 MB; ten minutes at 800 records a second
BATCH_MAX = 20_000  # records of one answer, about 3 MB


class Batch(msgspec.Struct, frozen=True, rename="camel"):
    """Some records.

    Attributes:
        records: in order, each the text of a line or of an observation.
        next: what to ask for next.
        dropped: records that nobody will ever get, since the buffer was full.
    """

    records: list[str]
    next: int
    dropped: int


class Records:
    """A bounded buffer of records, numbered from 0.

    Args:
        keep: records that wait to be fetched, at most.
    """

    def __init__(self, *, keep: int = RECORDS_MAX) -> None:
        self._keep = keep
        self._waiting: deque[str] = deque()
        self._first = 0  # number of the oldest record that is kept
        self.dropped = 0

    def __len__(self) -> int:
        """Records that wait."""
        return len(self._waiting)

    def line(self, line: Line) -> None:
        """A line of the history."""
        self._add(lines.encode(line))

    def seen(self, observation: Observation) -> None:
        """An observation."""
        self._add(observations.encode((observation,)).decode().rstrip("\n"))

    def batch(self, after: int, *, most: int = BATCH_MAX) -> Batch:
        """The records from number `after` on; those before it are forgotten.

        Raises:
            ValueError: `after` was forgotten already, or does not exist yet.
        """
        if not self._first <= after <= self._first + len(self._waiting):
            raise ValueError(
                f"record {after} is not kept, only {self._first} to "
                f"{self._first + len(self._waiting)}"
            )
        while self._first < after:
            self._waiting.popleft()
            self._first += 1
        found = list(islice(self._waiting, most))
        return Batch(found, after + len(found), self.dropped)

    def _add(self, text: str) -> None:
        if len(self._waiting) >= self._keep:
            self.dropped += 1
            return
        self._waiting.append(text)


def split(records: Iterable[str], source: str) -> tuple[list[Line], list[Observation]]:
    """Records as the lines and the observations that they are.

    Args:
        records: as a batch has them.
        source: how errors call them.

    Raises:
        HistoryError: one is neither.
    """
    found: list[Line] = []
    seen: list[Observation] = []
    for number, text in enumerate(records):
        try:
            if text.startswith("{"):
                seen.append(observations.decode(text))
            else:
                found.append(lines.decode(text))
        except (ValueError, msgspec.DecodeError) as error:
            raise HistoryError(source, number, f"record {number}: {error}") from error
    return found, seen
