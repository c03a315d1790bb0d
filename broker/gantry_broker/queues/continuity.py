"""Looks whether records without a sum of their own go on from each other, before they are used.

The newest range sums may be lost with the power. A record's own check covers its body only, so a
bit that flipped in a queue's name or number, in bytes whose sum is gone, passes for another record.
The number of the record, or of the next one of its queue, tells. What it refuses to do: say which
of them is the wrong one.
"""

from collections.abc import Callable

from gantry_protocol.errors import CorruptionError, RecordError, WireError
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX
from gantry_protocol.records import RecordPeek
from gantry_protocol.records.layout import TRANSACTION_MASK

from gantry_broker.log.checked import DamagedError
from gantry_broker.queues import rows
from gantry_broker.queues.dispatcher import Dispatcher
from gantry_broker.store.contract import QueueKey
from gantry_broker.store.tables.names import STATE_TOPIC
from gantry_broker.store.tables.state_records import decode_piece
from gantry_broker.store.tables.topics import is_topic_name


class Continuity:
    """See the module; give it the records in the order of the log.

    Args:
        next_of: the number that comes next in a queue by what is derived; None for an unknown one.
        is_whole: all queues that had a record are known, so that others begin with 0, but for
            those that a mapped queue has come to (ADR 0072).
    """

    def __init__(self, next_of: Callable[[QueueKey], int | None], *, is_whole: bool) -> None:
        self._next_of = next_of
        self._is_whole = is_whole
        self._next: dict[QueueKey, int] = {}

    def look_at(self, data: bytes, record: RecordPeek) -> None:
        """Take the next record, which stands in ``data``.

        Raises:
            RecordError: it does not go on from those before.
        """
        if not is_topic_name(record.topic):
            raise RecordError(f"{record.topic[:80]!r} is no topic name")
        if record.sys_flag & TRANSACTION_MASK not in rows.NO_ENTRY:
            self._goes_on((record.topic, record.queue_id), record.queue_offset)
            self._next[record.topic, record.queue_id] = record.queue_offset + 1
        if record.topic == STATE_TOPIC:
            body = data[record.body_start : record.body_start + record.body_size]
            for topic, queue_id, _, following in decode_piece(body).queues:
                self._next.setdefault((topic, queue_id), following)

    def _goes_on(self, key: QueueKey, number: int) -> None:
        expected = self._next.get(key)
        if expected is None:
            expected = self._next_of(key)
        if expected is None:
            expected = 0 if self._is_whole else number
            if key[1] >= MAPPED_QUEUES_MAX:
                expected = number  # a later segment of a mapped queue begins anywhere
        if number != expected:
            topic, queue_id = key
            raise RecordError(
                f"the record has the number {number} in queue {queue_id} of {topic[:80]}, and"
                f" {expected} comes next"
            )


def find_break(dispatcher: Dispatcher, *, is_whole: bool) -> str:
    """Reason why the log does not go on from what is dispatched; empty where it does.

    Damage that is known hides what stands behind it, which is not derived before that is mended.
    """

    def next_of(key: QueueKey) -> int | None:
        queue = dispatcher.queues.get(key)
        return None if queue is None else queue.max_offset

    try:
        dispatcher.look_ahead(Continuity(next_of, is_whole=is_whole).look_at)
    except DamagedError:
        return ""
    except (CorruptionError, WireError) as error:
        return str(error)
    return ""
