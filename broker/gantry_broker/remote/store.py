"""``RemoteStore``: the storage boundary over a link to a storage process, as far as a front needs.

It keeps no record, only the topics and the resets that are due, which it makes from what the
storage process says when the link opens and keeps by what is told then, in that order. It knows no
socket: ``send`` takes its messages, ``received`` brings the answers, ``lost`` ends it for good;
each link has a store of its own, because what is parked belongs to one mastership.

Rules protected: nothing is answered 0 before the storage process said so; when the link is lost,
every append under way is answered 12, since nobody knows, and everything else with a refusal
that makes clients try again (14). What is under way is bounded in bytes and in number. The sends of
one turn of the event loop leave in one frame, of a bounded size, in their order; each has an
outcome of its own.
"""

import itertools
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar, assert_never

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import WireError
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Offset

from gantry_broker.remote import messages as wire
from gantry_broker.store.contract import (
    Appended,
    Confirmed,
    QueueKey,
    QueueRead,
    Records,
    Refusal,
    SendOutcome,
    WasRead,
)
from gantry_broker.store.tables.changes import apply_change
from gantry_broker.store.tables.offsets import ConsumerOffsets
from gantry_broker.store.tables.topics import TopicTable

APPENDING_BYTES_MAX = 64 * 1024 * 1024
WAITING_MAX = 10_000  # sends, and reads
GATHERED_MAX = 256  # sends in one frame, which the store takes in one turn of its loop
GATHERED_BYTES = 256 * 1024  # of one frame, beyond its first record
_AROUND_BYTES = 256  # of a record, beside its body and properties; about
_OVERLOAD = "[OVERLOAD]too much is under way to the store"
_LOST = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now. the store is away")
_UNKNOWN = SendOutcome(
    ResponseCode.FLUSH_SLAVE_TIMEOUT, "the link to the store was lost before it said what became"
)

AnswerT = TypeVar("AnswerT")


class RemoteStore:
    """See the module; implements ``RecordStore``.

    Args:
        send: takes each message for the storage process.
        send_later: takes what gives such a message when this turn of the loop ends.

    Attributes:
        topics: the topics, as of the newest confirmation that was told.
        committed: of the consumer offsets those that stand for due resets, as of the same.
        state: whether the storage process accepts writes; None before it has said so.
        appending_bytes: of records that wait for their outcome.
        refused: requests that were too many, ever.
        parent: of what is appended next, where it is traced: a ``traceparent``; else empty.
    """

    def __init__(
        self,
        send: Callable[[wire.FromFront], None],
        send_later: Callable[[Callable[[], wire.FromFront]], None],
    ) -> None:
        """The tables are empty before the storage process has told them."""
        self.topics = TopicTable()
        self.committed = ConsumerOffsets()
        self.state: wire.State | None = None
        self.appending_bytes = 0
        self.refused = 0
        self.parent = ""
        self._offset = Offset(0)
        self._send = send
        self._send_later = send_later
        self._numbers = itertools.count(1)
        self._sent = 0  # number of the newest send
        self._sends: dict[int, tuple[int, Appended]] = {}
        self._gathered: wire.AppendRecords | None = None  # that leaves when this turn ends
        self._gathered_bytes = 0
        self._reads: dict[int, WasRead] = {}
        self._listeners: list[Confirmed] = []
        self._is_lost = False

    # ---- RecordStore

    def append(self, records: Records, done: Appended, *, once: int | None = None) -> None:
        """Store and replicate one record, once; see ``RecordStore``."""
        (record,) = records  # a front leaves batches to the master
        size = len(record.body) + len(record.properties) + _AROUND_BYTES
        if self._is_lost:
            done(SendOutcome(*_LOST))
        elif self._is_full(size):
            self.refused += 1
            done(SendOutcome(ResponseCode.SYSTEM_BUSY, _OVERLOAD))
        else:
            self._sent += 1
            self._sends[self._sent] = (size, done)
            self.appending_bytes += size
            self._gather(record, size)

    def _gather(self, record: MessageRecord, size: int) -> None:
        """Let it leave with the other sends of this turn."""
        gathered, self._gathered_bytes = self._gathered, self._gathered_bytes + size
        if (
            gathered is not None
            and len(gathered.records) < GATHERED_MAX
            and self._gathered_bytes <= GATHERED_BYTES
        ):
            gathered.records.append(record)
            self._name_parent(gathered)
            return
        self._gathered, self._gathered_bytes = wire.AppendRecords(self._sent, [record]), size
        self._name_parent(self._gathered)
        self._send_later(partial(self._leave, self._gathered))

    def _name_parent(self, gathered: wire.AppendRecords) -> None:
        """Of its last record, where it is traced."""
        if self.parent:
            gathered.parents[len(gathered.records) - 1] = self.parent

    def _leave(self, gathered: wire.AppendRecords) -> wire.AppendRecords:
        """The turn ends: nothing more is added to these sends."""
        if gathered is self._gathered:
            self._gathered = None
        return gathered

    def _is_full(self, size: int) -> bool:
        """Whether an append of ``size`` bytes is too much; one always goes out."""
        return len(self._sends) >= WAITING_MAX or (
            self.appending_bytes > 0 and self.appending_bytes + size > APPENDING_BYTES_MAX
        )

    def read(self, wanted: QueueRead, done: WasRead) -> None:
        """Confirmed records; see ``RecordStore``."""
        if self._is_lost:
            done(_LOST)
        elif len(self._reads) >= WAITING_MAX:
            self.refused += 1
            done(Refusal(ResponseCode.SYSTEM_BUSY, _OVERLOAD))
        else:
            number = next(self._numbers)
            self._reads[number] = done
            self._send(wire.Read(number, wanted))

    def subscribe(
        self, confirmed: Confirmed, topics: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Tell of each rise of confirm; see ``RecordStore``."""

        def told(offset: Offset, queues: Collection[QueueKey]) -> None:
            if topics is None or any(topic in topics for topic, _ in queues):
                confirmed(offset, queues)

        self._listeners.append(told)

        def unsubscribe() -> None:
            if told in self._listeners:
                self._listeners.remove(told)

        return unsubscribe

    # ---- the link

    @property
    def waiting(self) -> int:
        """Reads that are not answered yet."""
        return len(self._reads)

    def received(self, message: wire.FromStore) -> None:
        """Take in what the storage process said.

        Raises:
            WireError: it answers what was not asked, or says what it does not say now.
        """
        match message:
            case wire.Appended():
                self._appended(message)
            case wire.WasRead(number=number, result=result, refusal=refusal):
                _take(self._reads, number)(_one(result, refusal))
            case wire.Confirmed():
                self._confirmed(message)
            case wire.Rows(topics_version=version, topics=topics, resets=resets):
                self.topics.complete(version, topics)
                self.committed.apply(resets)
            case wire.State():
                self.state = message
            case wire.Welcome() | wire.Farewell():
                raise WireError(f"A {type(message).__name__} came from a store that serves.")
            case _:
                assert_never(message)

    def lost(self) -> None:
        """The link is gone: answer everybody who waits, and everybody who asks from now on."""
        self._is_lost = True
        self.appending_bytes = 0
        self._gathered = None
        for _, done in _emptied(self._sends):
            done(_UNKNOWN)
        for was_read in _emptied(self._reads):
            was_read(_LOST)

    def _appended(self, message: wire.Appended) -> None:
        """Give each of the sends its part of their outcome."""
        for index in range(message.count):
            size, done = _take(self._sends, message.number + index)
            self.appending_bytes -= size
            done(SendOutcome(message.code, message.remark, message.stored[index : index + 1]))

    def _confirmed(self, message: wire.Confirmed) -> None:
        """The tables first, then whoever waits for records."""
        if message.offset < self._offset:
            raise WireError(f"Confirm fell from {self._offset} to {message.offset}.")
        self._offset = message.offset
        for topic, body in message.changes:
            apply_change(self.topics, self.committed, topic, body)
        self.committed.take_changed()  # nothing is saved here
        if message.queues:
            for listener in list(self._listeners):
                listener(message.offset, message.queues)


def _take(waiting: dict[int, AnswerT], number: int) -> AnswerT:
    found = waiting.pop(number, None)
    if found is None:
        raise WireError(f"An answer came under {number}, where nothing was asked.")
    return found


def _emptied(waiting: dict[int, AnswerT]) -> list[AnswerT]:
    """What waited; an answer may bring the next question, which is refused."""
    found = list(waiting.values())
    waiting.clear()
    return found


def _one(answer: AnswerT | None, refusal: Refusal | None) -> AnswerT | Refusal:
    found = answer if refusal is None else refusal
    if found is None:
        raise WireError("An answer came that says nothing.")
    return found
