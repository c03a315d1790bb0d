"""The layout of records: one behind another, and a new file when the old one has no room.

A file ends in a blank that fills it up to the configured size, so a record goes there only if the
blank's head still fits behind it. A record too large for any file stands alone in one.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gantry_protocol.records import BLANK_HEADER_BYTES
from gantry_protocol.types import Offset


class Tail(NamedTuple):
    """The place of the next record.

    Attributes:
        start: log offset where the file begins that it would go to.
        end: end of the log; equal to ``start`` where a file is still to be made.
        size_bytes: when files end.
    """

    start: Offset
    end: Offset
    size_bytes: int

    def fits(self, size: int) -> bool:
        """Whether records of ``size`` bytes together certainly stand in this file.

        A record too large for any file is not one of them; ``positions`` tells where that goes.
        """
        return self.end - self.start + size + BLANK_HEADER_BYTES <= self.size_bytes

    def positions(self, sizes: Sequence[int]) -> list[Offset]:
        """The places of records of these sizes when they are appended in this order."""
        start, at, _ = self
        found: list[Offset] = []
        for size in sizes:
            if at != start and not Tail(start, at, self.size_bytes).fits(size):
                start = at = Offset(at + max(BLANK_HEADER_BYTES, self.size_bytes - (at - start)))
            found.append(at)
            at = Offset(at + size)
        return found


def check_patched(records: Iterable[bytes], position: int) -> None:
    """Assert that each of ``records``, which stand from ``position`` on, says where it stands."""
    for record in records:
        assert int.from_bytes(record[28:36], "big") == position, "patched for another position"
        position += len(record)
