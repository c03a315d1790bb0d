"""Ranges of a log that are written anew, and ranges that nobody here can vouch for.

A range that differs from its sum is overwritten with the right bytes, which somebody else has. A
power cut can take the newest sums away, and then one flipped bit of a header in their bytes is
unseen by the records' own checks. Who notices that these bytes do not go on from each other has
them *doubted*: their sums become ``UNKNOWN``, so that they are damage at every opening, and they
are fetched, too.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from gantry_protocol.errors import NO_ROOM
from gantry_protocol.process import log as logs

from gantry_broker.log import sums
from gantry_broker.log.checked import Checks, Damage, DamagedError
from gantry_broker.log.errors import LogFailedError
from gantry_broker.log.segments import Segment, segment_start
from gantry_broker.log.writer import Writer

_log = logs.get("log")


class Mending:
    """See the module; of one log.

    Args:
        writer: of its files.
        checks: its damage.
        segment_at: the file that holds a flushed offset.
        compare: looks at a range again.
        failed: notes that the disk failed and makes the error that ends the process.

    Attributes:
        unproved: ranges whose sums this opening of the log made, from whole records; in order.
    """

    def __init__(
        self,
        writer: Writer,
        checks: Checks,
        segment_at: Callable[[int], Segment],
        compare: Callable[[int, int], None],
        failed: Callable[[OSError], LogFailedError],
    ) -> None:
        self.unproved: list[sums.RangeSum] = []
        self._writer = writer
        self._checks = checks
        self._segment_at = segment_at
        self._compare = compare
        self._failed = failed

    def look_again(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note which of these, from and to, are damaged."""
        for start, end in ranges:
            with suppress(DamagedError):
                self._compare(start, end)

    def doubt(self, reason: str) -> None:
        """Take what is ``unproved`` for damaged, now and at every later opening; blocks.

        Raises:
            OSError: there is no room to note it.
        """
        first, last = self.unproved[0], self.unproved[-1]
        _log.error(
            "the newest checksums are gone, and the log does not go on from itself there: its bytes"
            " are wanted from another member",
            file=self._segment_at(first.start).path,
            start=first.start,
            end=last.end,
            reason=reason,
        )
        for start, length, _ in self.unproved:
            self._restate(sums.RangeSum(start, length, sums.UNKNOWN))
        self.look_again((entry.start, entry.end) for entry in self.unproved)
        self.unproved = []

    def overwrite(self, damage: Damage, data: bytes) -> bool:
        """Write the right bytes of a damaged range; for a thread, blocks until they are durable.

        Cuts and trims wait meanwhile. False where the range was cut, trimmed or repaired before.

        Raises:
            OSError: the disk does not take them.
        """
        with self._writer.paused():
            if self._checks.damage.get(damage.start) is not damage:
                return False
            segment = Segment(damage.path, segment_start(damage.path), 0)
            segment.overwrite(damage.start - segment.start, data)
        return True

    def state(self, damage: Damage, crc: int) -> None:
        """The bytes of a range whose sum was unknown are right now, and this is it; blocks.

        Raises:
            OSError: there is no room to note it.
        """
        if self._checks.damage.get(damage.start) is damage:
            self._restate(sums.RangeSum(damage.start, damage.length, crc))

    def _restate(self, entry: sums.RangeSum) -> None:
        segment = self._segment_at(entry.start)
        with self._writer.paused():
            try:
                self._writer.restate(segment, [entry])
            except OSError as error:
                if error.errno in NO_ROOM:
                    raise
                raise self._failed(error) from error
        self._checks.forget(entry.start, entry.end)
