"""Sends that came before: which records of the log they are, and when that may be believed.

A client that hears nothing sends the same message again, with the same unique key, maybe to another
queue and to the next master. The keys of the newest records are known (``RecentKeys``); what stands
there decides: topic, body, flags and properties must be the same, and the time between the two not
longer than the window: by the store's clock, or by the client's, which names the time of each try.
Of the two the one may be wrong where masters change. Another message with the same key is another
message (upstream #6919).

A program may also send one message object twice on purpose, and Java's client leaves its key. So a
repeat is taken for one only while its client may not have had the answer. It had it where this very
master answered 0 within ``PROMPT_MS``, and the repeat comes the same way: by the same connection to
this process, from the same client. Nor does anybody give a send up within that time. A client that
lost its connection, or waited for longer, or whose requests somebody else passes on now, may know
nothing. A proxy asks for many by one connection, and its clients make a key for each send: its
repeats are always repeats.

``AGAIN`` among a message's properties asks to store it in any case.
"""

from collections.abc import Callable, Sequence

from gantry_protocol.records import (
    SCHEDULE_TOPIC,
    MessageRecord,
    RecordRun,
    decode_properties,
    decode_record,
)
from gantry_protocol.records.layout import HOST_FAMILIES
from gantry_protocol.records.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    CLUSTER,
    DELAY_MS,
    LEFT_MS,
    MSG_REGION,
    REAL_QUEUE_ID,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRACE_ON,
)
from gantry_protocol.types import Offset

from gantry_broker.queues import MessageStore, lookups
from gantry_broker.store.contract import StoredAt

AGAIN = "GANTRY_STORE_AGAIN"
PROMPT_MS = 1_000  # clients wait for 3 s
_OURS = (MSG_REGION, TRACE_ON, CLUSTER)  # a broker's
_OF_A_WAIT = (REAL_QUEUE_ID, DELAY_MS, LEFT_MS)  # each try names a queue, and has its own step


class Repeats:
    """See the module.

    Args:
        store: the member's.
        answered_ms: tells when the record at a log offset was answered 0 here; None if it was not.

    Attributes:
        merged: messages that were there, ever.
        others: messages whose key another message had, or that were sent twice on purpose, ever.
    """

    def __init__(
        self, store: MessageStore, answered_ms: Callable[[int], int | None] = lambda _: None
    ) -> None:
        self.merged = 0
        self.others = 0
        self._answered_ms = answered_ms
        self._store = store

    def find(
        self,
        records: Sequence[MessageRecord] | RecordRun,
        marks: Sequence[int],
        ways: Sequence[int],
        now_ms: int,
    ) -> list[MessageRecord | None] | None:
        """The records that those of a send are, of which a key is known; None for none.

        Args:
            records: what the send would store.
            marks: of each.
            ways: of each, or one for all.
            now_ms: the store's time.
        """
        taken: set[int] = set()  # a batch may hold one message several times
        found = []
        for at, (sent, mark) in enumerate(zip(records, marks, strict=True)):
            record = self._find(sent, mark, ways[at if len(ways) > 1 else 0], now_ms, taken)
            found.append(record)
            if record is not None:
                taken.add(record.physical_offset)
        self.merged += len(taken)
        return found if taken else None

    def _find(
        self, sent: MessageRecord, mark: int, way: int, now_ms: int, taken: set[int]
    ) -> MessageRecord | None:
        places = self._store.recent.find(mark) if mark else []
        for offset, its_way in places:
            data = None if offset in taken else lookups.record_at(self._store.log, offset)
            record = None if data is None else decode_record(data)
            is_same_way = way == its_way != 0
            if record is not None and self._is_repeat(sent, record, now_ms, is_same_way):
                return record
        self.others += bool(places)
        return None

    def _is_repeat(
        self, sent: MessageRecord, record: MessageRecord, now_ms: int, is_same_way: bool
    ) -> bool:
        if not self._is_recent(sent, record, now_ms) or not is_same(sent, record):
            return False
        properties = decode_properties(sent.properties)
        if AGAIN in properties:
            return False
        if BORN_HOST in properties or not is_same_way:
            return True
        answered_ms = self._answered_ms(record.physical_offset)
        if answered_ms is None and record.physical_offset < self._store.dispatched:
            return True  # it was told something else than 0
        return (answered_ms or now_ms) >= record.store_timestamp + PROMPT_MS

    def _is_recent(self, sent: MessageRecord, record: MessageRecord, now_ms: int) -> bool:
        recent, age_ms = self._store.recent, now_ms - record.store_timestamp
        by_client_ms = abs(sent.born_timestamp - record.born_timestamp)
        return min(age_ms, by_client_ms) <= recent.window_ms and age_ms <= recent.kept_ms


def is_same(sent: MessageRecord, record: MessageRecord) -> bool:
    """Whether a record is what a send would store, wherever it stands and however it came."""
    return (
        sent.topic == record.topic
        and sent.body == record.body
        and sent.flag == record.flag
        and not (sent.sys_flag ^ record.sys_flag) & ~HOST_FAMILIES
        and sent.reconsume_times == record.reconsume_times
        and _said(sent) == _said(record)
    )


def place_of(record: MessageRecord) -> StoredAt:
    """The place of a record that was read."""
    offset = Offset(record.physical_offset)
    return StoredAt(record.queue_id, record.queue_offset, offset, record.size)


def _said(record: MessageRecord) -> dict[str, str]:
    """What the sender said of a message; a delay from now on is later in each try."""
    said = decode_properties(record.properties)
    for name in _OURS:
        said.pop(name, None)
    if said.pop(BORN_HOST, None) is not None:  # a proxy's, with another time for each try
        said.pop(BORN_TIMESTAMP, None)
    if record.topic == SCHEDULE_TOPIC:
        for name in _OF_A_WAIT:
            said.pop(name, None)
        if TIMER_DELIVER_MS not in said:
            said.pop(TIMER_OUT_MS, None)
    return said
