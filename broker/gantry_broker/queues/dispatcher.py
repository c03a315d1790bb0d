"""From the log to everything derived from it: queues, topics, consumer offsets.

Only confirmed units are dispatched, each once and in order. So nothing derived ever has to be taken
back when the log is cut, what consumers can see is confirmed by construction, and the derived state
at any log offset is a checkpoint plus replay.
"""

from collections.abc import Callable

from gantry_protocol.errors import BodyError, CorruptionError, RecordError
from gantry_protocol.records import RecordPeek, entry_code
from gantry_protocol.records.layout import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from gantry_protocol.types import Offset

from gantry_broker.log import CommitLog
from gantry_broker.log.units import Unit, parse_units
from gantry_broker.queues.queue_set import QueueSet
from gantry_broker.queues.state_file import DerivedState
from gantry_broker.queues.state_records import decode_piece, gather
from gantry_broker.store.contract import QueueKey
from gantry_broker.tables.names import OFFSETS_TOPIC, STATE_TOPIC, SYSTEM_TOPICS
from gantry_broker.tables.offsets import ConsumerOffsets, decode_rows
from gantry_broker.tables.topics import TopicTable, decode_change, is_topic_name

_STEP_BYTES = 1024 * 1024
_NO_ENTRY = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


class Dispatcher:
    """Derived state and how far it has come.

    Attributes:
        offset: everything below is dispatched; a boundary of units.
        store_timestamp: of the newest dispatched record, ms.
        queues: the consume queues.
        topics: the topic table.
        offsets: the consumer offsets.
        whole_from: where the newest whole state in the log begins, see ``state_records``.
    """

    def __init__(self, log: CommitLog, queues: QueueSet) -> None:
        self._log = log
        self.queues = queues
        self.restart(DerivedState(log.log_start))

    def restart(self, state: DerivedState) -> None:
        """Continue from ``state``; the queues have been restored or cleared by the caller."""
        self.offset = state.offset
        self.store_timestamp = state.store_timestamp
        self.topics = TopicTable(state.topics_version, state.topics)
        self.offsets = ConsumerOffsets(state.consumer_offsets)
        self.whole_from = state.whole_from
        self._gathered = state.gathered

    def snapshot(self) -> DerivedState:
        """The state of now, after the queues' ``write_out``."""
        return DerivedState(
            offset=self.offset,
            store_timestamp=self.store_timestamp,
            queues=self.queues.states(),
            topics_version=self.topics.version,
            topics=self.topics.all(),
            consumer_offsets=self.offsets.applied_rows(),
            whole_from=self.whole_from,
            gathered=self._gathered,
        )

    def dispatch(self, upto: Offset) -> set[QueueKey]:
        """Take in everything below ``upto``, a boundary of units; returns the queues that grew.

        Raises:
            CorruptionError: the log does not continue the state; nothing behind that place is
                dispatched.
        """
        touched: set[QueueKey] = set()
        while self.offset < upto:
            data = self._log.read_units(self.offset, _STEP_BYTES, limit=upto)
            for offset, unit in self.parse(data, self.offset):
                if unit.record is not None:
                    touched.add(self._take(data, offset, unit.record))
                self.offset = Offset(offset + unit.size)
        return touched

    def look_ahead(self, visit: Callable[[bytes, RecordPeek], None]) -> None:
        """Show the undispatched records to ``visit``, with the buffer they stand in."""
        at = self.offset
        while at < self._log.end:
            data = self._log.read_units(at, _STEP_BYTES)
            for _, unit in self.parse(data, at):
                if unit.record is not None:
                    visit(data, unit.record)
            at = Offset(at + len(data))

    def parse(self, data: bytes, offset: Offset) -> list[tuple[int, Unit]]:
        """The units in ``data``, which was read at ``offset``.

        Raises:
            CorruptionError: they are none.
        """
        try:
            return parse_units(data, offset, check_body=False)
        except RecordError as error:
            raise CorruptionError(*self._log.locate(offset), str(error)) from error

    def _take(self, data: bytes, offset: int, record: RecordPeek) -> QueueKey:
        key = (record.topic, record.queue_id)
        if self.queues.get(key) is None and not is_topic_name(record.topic):
            raise CorruptionError(
                *self._log.locate(Offset(offset)), f"{record.topic[:80]!r} is no topic name"
            )
        if record.sys_flag & TRANSACTION_MASK not in _NO_ENTRY:
            entry = (offset, record.size, entry_code(record))
            if not self.queues.append(key, record.queue_offset, entry):
                expected = self.queues.get(key)
                assert expected is not None
                raise CorruptionError(
                    *self._log.locate(Offset(offset)),
                    f"the record has the number {record.queue_offset} in queue {key[1]} of"
                    f" {key[0]}, and {expected.max_offset} comes next",
                )
        self.store_timestamp = max(self.store_timestamp, record.store_timestamp)
        if key[0] in SYSTEM_TOPICS:
            self._apply(data, offset, record)
        return key

    def _apply(self, data: bytes, offset: int, record: RecordPeek) -> None:
        body = data[record.body_start : record.body_start + record.body_size]
        try:
            if record.topic == OFFSETS_TOPIC:
                self.offsets.apply(decode_rows(body))
                return
            if record.topic == STATE_TOPIC:
                self._complete(body, Offset(offset))
                return
            change = decode_change(body)
            gone = self.topics.apply(change)
            self.offsets.drop_topics(gone, ended=change.removed)
            for name in gone:
                for _, queue in self.queues.of_topic(name):
                    queue.hide_below(queue.max_offset)
        except BodyError as error:
            raise CorruptionError(*self._log.locate(Offset(offset)), str(error)) from error

    def _complete(self, body: bytes, offset: Offset) -> None:
        """Take in a piece of a state; news only where the log began after what it speaks of.

        Raises:
            BodyError: it is no piece, or the log says otherwise.
        """
        piece = decode_piece(body)
        self.topics.complete(piece.topics_version, piece.topics)
        self.offsets.apply(piece.offsets)
        for topic, queue_id, first, following in piece.queues:
            if not is_topic_name(topic) or not 0 <= first <= following:
                raise BodyError(f"a state with a queue {topic[:80]!r} [{first}, {following})")
            if not self.queues.ensure((topic, queue_id), first, following):
                raise BodyError(
                    f"by the state {following} comes next in queue {queue_id} of {topic}, by the"
                    " records before it another"
                )
        self._gathered = gather(self._gathered, piece, offset)
        if self._gathered is not None and self._gathered.is_whole:
            self.whole_from = Offset(self._gathered.start)
