"""What a group's log says up to a place: messages of topics, offsets of consumer groups.

Read forwards, record by record, which is the long way: whoever reads a tier backwards, or from an
index, must come to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_broker.log.units import parse_unit
from gantry_broker.store.tables.names import OFFSETS_TOPIC, TOPICS_TOPIC
from gantry_broker.store.tables.offsets import GONE, decode_rows
from gantry_broker.store.tables.topics import decode_change
from gantry_protocol.records import decode_records

if TYPE_CHECKING:
    from gantry_protocol.records import MessageRecord

LARGEST = 1 << 17  # bytes of a record, or more
Row = tuple[str, str, int]  # group, topic, queue id


class Head:
    """See the module.

    Args:
        log: from its first byte on.
        end: where to stop.

    Attributes:
        version: the controllers' version of the newest change of topics.
        offsets: of consumer groups.
        ends: one past the last message of each queue, whatever became of its topic.
    """

    def __init__(self, log: bytes | bytearray, end: int) -> None:
        self.version = 0
        self.offsets: dict[Row, int] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self._messages: dict[tuple[str, int], list[MessageRecord]] = {}
        at = 0
        while at < end:
            unit = parse_unit(bytes(log[at : at + LARGEST]), 0, at, check_body=False)
            if unit.record is not None:
                (record,) = decode_records(bytes(log[at : at + unit.size]))
                self._take(record)
            at += unit.size

    def messages(self, topic: str, queue_id: int) -> list[MessageRecord]:
        """Of the topic that has this name there."""
        return self._messages.get((topic, queue_id), [])

    def _take(self, record: MessageRecord) -> None:
        if record.topic == TOPICS_TOPIC:
            change = decode_change(record.body)
            self.version = max(self.version, change.version)
            for name in change.removed:
                self._remove(name)
        elif record.topic == OFFSETS_TOPIC:
            for group, topic, queue_id, offset in decode_rows(record.body):
                self.offsets[group, topic, queue_id] = offset
                if offset == GONE:
                    del self.offsets[group, topic, queue_id]
        self.ends[record.topic, record.queue_id] = record.queue_offset + 1
        self._messages.setdefault((record.topic, record.queue_id), []).append(record)

    def _remove(self, topic: str) -> None:
        for queue in [queue for queue in self._messages if queue[0] == topic]:
            del self._messages[queue]
        for row in [row for row in self.offsets if row[1] == topic]:
            del self.offsets[row]
