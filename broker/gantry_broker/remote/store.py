"""``RemoteStore``: the storage boundary over a link to a storage process.

It keeps no record, only the tables, which it makes from what the storage process says when the
link opens and keeps by what is told then, in that order. It knows no socket: ``send`` takes its
messages, ``received`` brings the answers, ``lost`` ends it for good; each link has a store of its
own, because what was parked, locked and committed belongs to one mastership.

Rules protected: nothing is answered 0 before the storage process said so; when the link is lost,
every append under way is answered 12, since nobody knows, and everything else with a refusal
that makes clients try again (14). What is under way is bounded in bytes and in number.
"""

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar, assert_never

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import ConnectionClosed, RecordError, RemotingError, WireError
from gantry_protocol.records import MessageRecord
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.types import Offset

from gantry_broker.remote import messages as wire
from gantry_broker.store.contract import (
    Appended,
    Confirmed,
    KeyRead,
    Learned,
    QueueKey,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    Read,
    Records,
    Refusal,
    SendOutcome,
    Snapshot,
    Taken,
    Trimmed,
    WasRead,
)
from gantry_broker.store.stored import encode
from gantry_broker.store.tables.changes import apply_change
from gantry_broker.store.tables.offsets import ConsumerOffsets
from gantry_broker.store.tables.topics import TopicTable

APPENDING_BYTES_MAX = 64 * 1024 * 1024
RECORDS_MAX = 100_000  # of one append: the answer that says where they are is one frame
WAITING_MAX = 10_000  # requests that are not appends
_OVERLOAD = "[OVERLOAD]too much is under way to the store"
_LOST = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now. the store is away")
_UNKNOWN = SendOutcome(
    ResponseCode.FLUSH_SLAVE_TIMEOUT, "the link to the store was lost before it said what became"
)

AnswerT = TypeVar("AnswerT")
Changed = Callable[[Refusal | None], None]


class RemoteStore:
    """See the module; implements ``Store``.

    Args:
        send: takes each message for the storage process.

    Attributes:
        topics: the topics, as of the newest confirmation that was told.
        committed: the consumer offsets, with what was committed here.
        state: whether the storage process accepts writes; None before it has said so.
        appending_bytes: of records that wait for their outcome.
        refused: requests that were too many, ever.
        unknown: appends that were answered 12 because the link was lost.
    """

    def __init__(self, send: Callable[[wire.FromBroker], None]) -> None:
        """The tables are empty before the storage process has told them."""
        self.topics = TopicTable()
        self.committed = ConsumerOffsets()
        self.state: wire.State | None = None
        self.appending_bytes = 0
        self.refused = 0
        self.unknown = 0
        self._offset = Offset(0)
        self._send = send
        self._numbers = itertools.count(1)
        self._appends: dict[int, tuple[int, Appended]] = {}
        self._reads: dict[int, WasRead] = {}
        self._questions: dict[int, Learned] = {}
        self._changes: dict[int, Changed] = {}
        self._calls: dict[int, tuple[RemotingCommand, Callable[[Outcome], None]]] = {}
        self._listeners: list[Confirmed] = []
        self._is_lost = False

    # ---- Store

    def append(self, records: Records, done: Appended) -> None:
        """Store and replicate; see ``Store``."""
        records = list(records)
        if len(records) > RECORDS_MAX:
            raise RecordError(f"The batch has {len(records)} messages, {RECORDS_MAX} are allowed.")
        sizes = [len(encode(record)) for record in records]
        size = sum(sizes)
        if self._is_lost:
            done(SendOutcome(*_LOST))
        elif self.appending_bytes and self.appending_bytes + size > APPENDING_BYTES_MAX:
            self.refused += 1
            done(SendOutcome(ResponseCode.SYSTEM_BUSY, _OVERLOAD))
        else:
            number = next(self._numbers)
            self._appends[number] = (size, done)
            self.appending_bytes += size
            pieces = _pieces(records, sizes)
            for piece in pieces[:-1]:
                self._send(wire.AppendRecords(number, piece, more=True))
            version = self.topics.version
            self._send(wire.AppendRecords(number, pieces[-1], topics_version=version))

    def read(self, wanted: Read, done: WasRead) -> None:
        """Confirmed records; see ``Store``."""
        refusal = self._refusal()
        if refusal is not None:
            done(refusal)
            return
        number = next(self._numbers)
        self._reads[number] = done
        if isinstance(wanted, QueueRead):
            self._send(wire.Read(number, queue=wanted))
        elif isinstance(wanted, KeyRead):
            self._send(wire.Read(number, key=wanted))
        else:
            self._send(wire.Read(number, offset=wanted))

    def offsets(self, questions: Sequence[QueueQuestion], done: Learned) -> None:
        """The offsets of some queues; see ``Store``."""
        refusal = self._refusal()
        if refusal is not None:
            done(refusal)
            return
        gathered = _Gathered(done, -(-len(questions) // wire.QUEUES_MAX) or 1)
        for at in range(0, len(questions) or 1, wire.QUEUES_MAX):
            number = next(self._numbers)
            self._questions[number] = gathered.piece()
            self._send(wire.Ask(number, list(questions[at : at + wire.QUEUES_MAX])))

    def trim(self, below: Offset, done: Trimmed) -> None:
        """Nothing below a log offset is needed any more; see ``Store``."""
        refusal = self._refusal()
        if refusal is not None:
            done(refusal)
            return
        number = next(self._numbers)
        self._changes[number] = done
        self._send(wire.Trim(number, below))

    def subscribe(
        self, confirmed: Confirmed, topics: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Tell of each rise of confirm; see ``Store``."""

        def told(offset: Offset, queues: Collection[QueueKey]) -> None:
            if topics is None or any(topic in topics for topic, _ in queues):
                confirmed(offset, queues)

        self._listeners.append(told)

        def unsubscribe() -> None:
            if told in self._listeners:
                self._listeners.remove(told)

        return unsubscribe

    def snapshot(self, done: Taken) -> None:
        """The tables as of what was told last; see ``Store``."""
        topics = self.topics
        done(Snapshot(self._offset, topics.version, topics.all(), self.committed.all()))

    # ---- what else the storage process does

    def change_topic(
        self, name: str, topic: TopicConfig | None, done: Changed, *, if_absent: bool
    ) -> None:
        """Create or change a topic, or delete it where ``topic`` is None."""
        refusal = self._refusal()
        if refusal is not None:
            done(refusal)
            return
        number = next(self._numbers)
        self._changes[number] = done
        self._send(wire.ChangeTopic(number, name, topic, if_absent))

    def ask(
        self, command: RemotingCommand, done: Callable[[Outcome], None], timeout_s: float
    ) -> None:
        """Have the controllers asked; an ``Asker``. The storage process keeps the time-out."""
        refusal = self._refusal()
        if refusal is not None:
            done(ConnectionClosed(refusal.remark))
            return
        number = next(self._numbers)
        self._calls[number] = (command, done)
        self._send(wire.Question(number, command.code, command.ext, command.body))

    # ---- the link

    @property
    def refusing(self) -> bool:
        """Whether the storage process said last that its disk has no room for messages."""
        return self.state is not None and self.state.disk_is_full

    @property
    def waiting(self) -> int:
        """Requests that are not answered yet, appends excepted."""
        return len(self._reads) + len(self._questions) + len(self._changes) + len(self._calls)

    def received(self, message: wire.FromStore) -> None:
        """Take in what the storage process said.

        Raises:
            WireError: it answers what was not asked, or says what it does not say now.
        """
        match message:
            case wire.Appended(number=number, code=code, remark=remark, stored=stored):
                size, done = _take(self._appends, number)
                self.appending_bytes -= size
                done(SendOutcome(code, remark, stored))
            case wire.WasRead(number=number, result=result, refusal=refusal):
                _take(self._reads, number)(_one(result, refusal))
            case wire.Learned(number=number, answers=answers, refusal=refusal):
                _take(self._questions, number)(_one(answers, refusal))
            case wire.Done(number=number, refusal=refusal):
                _take(self._changes, number)(refusal)
            case wire.Reply():
                command, answered = _take(self._calls, message.number)
                answered(_outcome(command, message))
            case wire.Confirmed():
                self._confirmed(message)
            case wire.Rows(topics_version=version, topics=topics, committed=committed):
                self.topics.complete(version, topics)
                self.committed.apply(committed)
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
        for _, done in _emptied(self._appends):
            self.unknown += 1
            done(_UNKNOWN)
        for was_read in _emptied(self._reads):
            was_read(_LOST)
        for learned in _emptied(self._questions):
            learned(_LOST)
        for changed in _emptied(self._changes):
            changed(_LOST)
        for _, answered in _emptied(self._calls):
            answered(ConnectionClosed(_LOST.remark))

    def _refusal(self) -> Refusal | None:
        if self._is_lost:
            return _LOST
        if self.waiting >= WAITING_MAX:
            self.refused += 1
            return Refusal(ResponseCode.SYSTEM_BUSY, _OVERLOAD)
        return None

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


class _Gathered:
    """Answers that come in pieces, in any order, and are given as one; the first refusal is it."""

    def __init__(self, done: Learned, count: int) -> None:
        self._done = done
        self._waiting = count
        self._pieces: list[list[QueueOffsets]] = []

    def piece(self) -> Learned:
        """The receiver of the next piece."""
        at = len(self._pieces)
        self._pieces.append([])

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if not self._waiting:
                return  # refused already
            if isinstance(answers, Refusal):
                self._waiting = 0
                self._done(answers)
                return
            self._pieces[at] = answers
            self._waiting -= 1
            if not self._waiting:
                self._done([item for piece in self._pieces for item in piece])

        return learned


def _pieces(records: list[MessageRecord], sizes: list[int]) -> list[list[MessageRecord]]:
    """The records by what goes into one frame, in their order; at least one piece."""
    pieces: list[list[MessageRecord]] = [[]]
    held = 0
    for record, size in zip(records, sizes, strict=True):
        if pieces[-1] and held + size > wire.PIECE_BYTES:
            pieces.append([])
            held = 0
        pieces[-1].append(record)
        held += size
    return pieces


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


def _outcome(command: RemotingCommand, message: wire.Reply) -> Outcome:
    if message.code is None:
        return RemotingError(message.remark or "the controllers did not answer")
    return reply(command, message.code, message.remark, message.ext, message.body)
