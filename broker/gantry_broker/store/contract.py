"""The storage boundary (RIP-19): six calls and their values.

Topics, consumers, delay, retry, transactions and filters are built on a ``Store`` alone. Where it
keeps its records, and on how many disks, is its own affair. A front has its part of it, a
``RecordStore``, over a link to another process. Import-linter checks that nothing above reaches
below.

Every answer comes by ``done``, exactly once and maybe before the call returns; all calls and
callbacks are on the event loop's thread. No object is made per message on the way out: a read gives
whole records in one piece of bytes.

Rules protected: only confirmed records are read and told of (H9); whatever changes state is a
record that was appended (H10); tables are those of one log offset, and everything appended after
that offset is told of in its order (H12).
"""

from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol, TypeAlias

import msgspec
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import MessageRecord, RecordRun
from gantry_protocol.types import Offset

from gantry_broker.store.tables.offsets import ConsumerOffsets, OffsetRow
from gantry_broker.store.tables.topics import TopicTable

QueueKey = tuple[str, int]  # topic, queue id
FIRST, LAST = -2, -1  # as ``QueueQuestion.at``: the first record served, the last confirmed one


class Refusal(NamedTuple):
    """The reason why something is not done, with the code that RocketMQ clients understand."""

    code: ResponseCode
    remark: str


class StoredAt(NamedTuple):
    """The place of a record."""

    queue_id: int
    queue_offset: int
    offset: Offset
    size: int

    @property
    def end(self) -> Offset:
        """The log offset behind it: confirmed once the confirm offset reaches this."""
        return Offset(self.offset + self.size)


class SendOutcome(msgspec.Struct, frozen=True):
    """The outcome of an append.

    Attributes:
        code: 0 when every record is confirmed; 12 when they are or may be stored and nobody knows
            whether they stay; anything else when they were not stored.
        remark: text for people, None on 0.
        stored: where the records are, in the order given; empty when they were not stored, or
            with 12 when the master that has them may be none any more: who sent them should do so
            again, to whoever is.
        found: of these, records that had been stored before (``once``).
    """

    code: ResponseCode
    remark: str | None = None
    stored: Sequence[StoredAt] = []
    found: Sequence[MessageRecord] = ()

    @property
    def may_be_stored(self) -> bool:
        """Whether the records stay in the log for as long as this mastership lasts."""
        return bool(self.stored) or self.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


class GetStatus(Enum):
    """The end of a read; names as in upstream's ``GetMessageStatus``."""

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()  # entries were examined, none passes the filter
    NO_MESSAGE_IN_QUEUE = auto()
    OFFSET_OVERFLOW_ONE = auto()  # at the confirmed end, or not confirmed yet: wait
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_TOO_SMALL = auto()
    OFFSET_IN_TIER = auto()  # in the tier, which cannot be read now: ask again


class ReadLimits(msgspec.Struct, frozen=True, array_like=True):
    """The bounds of one read; the first record always goes out."""

    max_count: int
    max_bytes: int


class QueueRead(msgspec.Struct, array_like=True):
    """A wish to read records of a queue.

    Attributes:
        offset: queue offset to begin at; whoever waits moves it on.
        limits: how much to return.
        codes: tag codes to deliver; None delivers everything.
    """

    topic: str
    queue_id: int
    offset: int
    limits: ReadLimits
    codes: frozenset[int] | None = None


class KeyRead(msgspec.Struct, frozen=True):
    """A wish to read the records of a topic that have a key, newest first.

    Attributes:
        key: a unique key, or one word of the keys.
        max_count: how many at most; the store has a bound of its own.
        begin_ms: store times wanted, from this one on.
        end_ms: up to and with this one.
        is_unique: only as a unique key.
    """

    topic: str
    key: str
    max_count: int
    begin_ms: int
    end_ms: int
    is_unique: bool = False


class GetResult(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of one read.

    Attributes:
        status: how it ended.
        next_offset: where the reader goes on; of a key, the log offset of the newest record whose
            keys are known, -1 without any.
        min_offset: first queue offset that is served.
        max_offset: one past the last confirmed one.
        body: whole records, one after the other.
        count: how many.
        remark: what people should know of it; empty for nothing beyond the status.
        known_ms: of a key, the store time of the newest record whose keys are known; 0 without any.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    count: int = 0
    remark: str = ""
    known_ms: int = 0


class QueueQuestion(msgspec.Struct, frozen=True):
    """A question about a queue.

    Attributes:
        at: queue offset of a record whose store time is wanted, or ``FIRST`` or ``LAST``.
        since: store time in ms that an offset is wanted for; None when none is.
        upper: of ``since``: the last record at or before it (before all: the first); otherwise the
            first at or after it (after all: the end).
    """

    topic: str
    queue_id: int
    at: int | None = None
    since: int | None = None
    upper: bool = False


class QueueOffsets(msgspec.Struct, frozen=True):
    """The offsets of a queue; 0 everywhere for a queue without any record.

    Attributes:
        min_offset: the first queue offset that is served.
        max_offset: one past the last confirmed one.
        next_offset: what the next record will get, unconfirmed ones counted; never below
            ``max_offset``.
        stored_at: when the record ``at`` was stored, ms; None when there is none.
        bytes_held: of the log, from the queue's offset 0 on; None when that record is not held.
        found: the queue offset for ``since``; None when it was not asked for.
    """

    min_offset: int
    max_offset: int
    next_offset: int
    stored_at: int | None = None
    bytes_held: int | None = None
    found: int | None = None


class LiteTopic(msgspec.Struct, frozen=True):
    """A lite topic.

    Attributes:
        name: its own, without its parent's.
        last: the offset of its last message.
        stored_ms: when that one was stored.
    """

    name: str
    last: int
    stored_ms: int


class Snapshot(msgspec.Struct, frozen=True):
    """The tables as of a log offset.

    Attributes:
        offset: everything below is confirmed and in the tables, nothing else is.
        topics_version: the controllers' version of the topics.
        topics: every topic.
        committed: every consumer offset.
    """

    offset: Offset
    topics_version: int
    topics: list[TopicConfig]
    committed: list[OffsetRow]


Records: TypeAlias = list[MessageRecord] | RecordRun  # what one append stores
# Records of a queue, those with a key, or the one that begins at a log offset.
Read: TypeAlias = QueueRead | KeyRead | Offset
Appended = Callable[[SendOutcome], None]
WasRead = Callable[[GetResult | Refusal], None]
Learned = Callable[[list[QueueOffsets] | Refusal], None]
Taken = Callable[[Snapshot | Refusal], None]
Trimmed = Callable[[Refusal | None], None]
Confirmed = Callable[[Offset, Collection[QueueKey]], None]


class RecordStore(Protocol):
    """The part of a store that sends and pulls need, which a front has, too."""

    @property
    def topics(self) -> TopicTable:
        """The topics, as of the newest confirmation that was told."""

    @property
    def committed(self) -> ConsumerOffsets:
        """Consumer offsets; a front knows only those that stand for due resets."""

    def append(self, records: Records, done: Appended, *, once: int | None = None) -> None:
        """Store and replicate ``records``, which get their positions and store times by that.

        ``once``: they are what a producer sent, maybe for another time. What of it is there is not
        stored again; it has its outcome when it is confirmed. It is the number of the connection by
        which they came, negative for a front's, 0 where that says nothing of the client. A front
        does not say it: all that it appends is that.

        Raises:
            RecordError: a record cannot be stored; ``done`` is not called.
        """

    def read(self, wanted: QueueRead, done: WasRead) -> None:
        """Confirmed records, whole and in order; never silence, another queue's or a later one."""

    def subscribe(
        self, confirmed: Confirmed, topics: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Tell of each rise of confirm, with the queues that got records; returns how to end it.

        The tables are those of that offset already, and what is read then is there.

        Args:
            confirmed: is told.
            topics: only of rises that brought records of one of these; None for all rises.
        """


class Store(RecordStore, Protocol):
    """One broker group's storage, while its master serves."""

    @property
    def committed(self) -> ConsumerOffsets:
        """The consumer offsets: the confirmed ones, and what was committed here since."""

    def read(self, wanted: Read, done: WasRead) -> None:
        """As above; also those with a key, or the one at a log offset.

        A log offset at which no confirmed record begins finds nothing.
        """

    def offsets(self, questions: Sequence[QueueQuestion], done: Learned) -> None:
        """The offsets of some queues; the answers stand in the order of the questions."""

    def lite_topics(self, parent: str, after: str, count: int) -> list[LiteTopic]:
        """Confirmed lite topics of a parent behind the one of this name, in order.

        Some that have just come, or got a message, may be missing, or be as they were.
        """

    def lite_count(self, parent: str) -> int:
        """The number of confirmed lite topics of a parent; of all parents where it is empty."""

    def lite_end(self, queue: str) -> Offset | None:
        """Behind the last confirmed message of the lite topic whose queue has this name.

        None when it has none.
        """

    def trim(self, below: Offset, done: Trimmed) -> None:
        """Nothing below a log offset is needed any more by anybody above.

        The log begins at the last file at or below it that nothing below needs either; the state
        is written into it first. ``done(None)`` also when there was nothing to let go.
        """

    def snapshot(self, done: Taken) -> None:
        """The tables as of now."""
