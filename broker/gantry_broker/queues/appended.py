"""Runs that a master has appended and still knows, for their dispatch.

A batch was looked at when it came in. Until it is confirmed, the few things that dispatch derives
from it (places, sizes, properties) wait here, so that a master does not read back and take apart
what it has just written. What is here is never evidence: a run is handed out only at the very log
offset where it was appended, by the mastership that appended it, and the log says the same; what
is not here is read from there.

Refused, and so read from the log: records that have no entry of the usual kind (of transactions, of
system topics, parked ones), long runs, and everything that is too much to keep.
"""

from collections import deque
from itertools import repeat
from typing import NamedTuple

from gantry_protocol.records import RecordRun, entry_code
from gantry_protocol.records.layout import TRANSACTION_MASK
from gantry_protocol.records.schedule import SCHEDULE_TOPIC
from gantry_protocol.types import Offset

from gantry_broker.queues import rows
from gantry_broker.store.contract import QueueKey
from gantry_broker.store.tables.names import SYSTEM_TOPICS
from gantry_broker.store.tables.topics import is_topic_name

RECORDS_MAX = 1024  # of one run; a longer one is dispatched in pieces, from the log
BYTES_MAX = 4 * 1024 * 1024  # of all that wait, about
_RECORD_BYTES = 100  # of one beside its properties: a position and a size
_TAGS = b"TAGS\x01"


class AppendedRun(NamedTuple):
    """One run, as far as dispatch needs it.

    Attributes:
        key: its queue.
        queue_offset: of the first record; the others follow.
        positions: the log offset of each, and of the end of the last.
        sizes: of each, bytes.
        properties: of all, with a zero byte between two.
        stored_ms: store time of all.
    """

    key: QueueKey
    queue_offset: int
    positions: list[int]
    sizes: list[int]
    properties: bytes
    stored_ms: int

    def entries(self) -> bytes:
        """The entries of the consume queue."""
        codes: repeat[int] | map[int] = repeat(0)
        if _TAGS in self.properties:
            topic, each = self.key[0].encode(), self.properties.split(b"\0")
            codes = map(entry_code, repeat(topic), each, repeat(self.stored_ms))
        return b"".join(map(rows.ENTRY.pack, self.positions, self.sizes, codes))


class AppendedRuns:
    """Those that wait for their dispatch, in the order of the log."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._runs: deque[AppendedRun] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: RecordRun, queue_offset: int, positions: list[int], stored_ms: int) -> None:
        """Keep a run that was appended behind everything that waits; or do not, see the module."""
        common = run.common
        size = _size(run.sizes, run.properties)
        if (
            len(run) > RECORDS_MAX
            or self._bytes + size > BYTES_MAX
            or common.sys_flag & TRANSACTION_MASK
            or common.topic == SCHEDULE_TOPIC
            or common.topic in SYSTEM_TOPICS
            or not is_topic_name(common.topic)
        ):
            return
        key = (common.topic, common.queue_id)
        self._runs.append(
            AppendedRun(key, queue_offset, positions, run.sizes, run.properties, stored_ms)
        )
        self._bytes += size

    def take(self, offset: int, upto: int) -> AppendedRun | None:
        """The run at ``offset`` when all of it lies below ``upto``; it waits no longer."""
        runs = self._runs
        while runs and runs[0].positions[0] < offset:
            self._drop()
        if runs and runs[0].positions[0] == offset and runs[0].positions[-1] <= upto:
            return self._drop()
        return None

    def next_start(self, offset: int, upto: int) -> Offset:
        """The end up to which to read the log from ``offset`` on, where ``take`` found none."""
        start = self._runs[0].positions[0] if self._runs else upto
        return Offset(start if offset < start < upto else upto)

    def forget(self) -> None:
        """The mastership is over."""
        self._runs.clear()
        self._bytes = 0

    def _drop(self) -> AppendedRun:
        run = self._runs.popleft()
        self._bytes -= _size(run.sizes, run.properties)
        return run


def _size(sizes: list[int], properties: bytes) -> int:
    return _RECORD_BYTES * len(sizes) + len(properties)
