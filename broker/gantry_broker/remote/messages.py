"""Messages between a broker and the storage process behind it, and their bytes.

Each message is one frame of the replication links (``ha.wire``: version, size bound, checksum)
whose payload is msgpack. The broker speaks first, with ``Hello``; the storage process answers with
``Welcome`` and the tables in pieces, or with ``Farewell``. From then on requests carry a number,
and each is answered once under it; what is told without being asked stands between the answers in
the order in which it became true.

What is refused: a frame that is no such message, of another version, or larger than the bound.
"""

from typing import TypeVar

import msgspec
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import WireError
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Epoch, Offset

from gantry_broker.ha.wire import MAX_PAYLOAD_BYTES, Frame, framed
from gantry_broker.store.contract import (
    GetResult,
    KeyRead,
    QueueKey,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    Refusal,
    StoredAt,
)
from gantry_broker.store.tables.offsets import OffsetRow

KIND = 16  # of the frame; replicas use the small ones
ROWS_MAX = 500  # in one piece of the tables: about 40 KB
QUEUES_MAX = 2_000  # in one question, or told of at once: 600 KB with the longest names
PIECE_BYTES = 2 * 1024 * 1024  # of records in one ``AppendRecords``, beyond the first


class Hello(msgspec.Struct, tag=1, frozen=True):
    """The introduction of a caller.

    Attributes:
        newest_epoch: of a master that the caller was served by; an older one is refused.
        address: where clients reach the caller.
    """

    cluster: str
    group: str
    newest_epoch: Epoch
    address: str


class Welcome(msgspec.Struct, tag=2, frozen=True):
    """By what the storage process is the master; the tables follow, then a ``State``."""

    epoch: Epoch
    broker_id: int
    incarnation: str


class Rows(msgspec.Struct, tag=3, frozen=True):
    """A piece of the tables."""

    topics_version: int
    topics: list[TopicConfig] = []
    committed: list[OffsetRow] = []


class State(msgspec.Struct, tag=4, frozen=True):
    """The acceptance of writes, and the versions that the controllers named last.

    Attributes:
        refusal: why not; None when they are.
        disk_is_full: messages are to be refused for want of room; what keeps the group alive (its
            offsets, topics, timers) is taken.
    """

    refusal: Refusal | None
    subscriptions_version: int
    disk_is_full: bool = False


class Farewell(msgspec.Struct, tag=5, frozen=True):
    """The link ends; why, for people."""

    reason: str


class Ping(msgspec.Struct, tag=6, frozen=True):
    """The caller is alive; answered with a ``State``."""


class Confirmed(msgspec.Struct, tag=7, frozen=True):
    """Confirm has risen.

    Attributes:
        offset: to where.
        queues: that got records.
        changes: topic and body of the records of state among them, in the order of the log.
    """

    offset: Offset
    queues: list[QueueKey]
    changes: list[tuple[str, bytes]] = []


class AppendRecords(msgspec.Struct, tag=8, frozen=True):
    """Store and replicate; a large batch comes in pieces, one directly after the other.

    Attributes:
        more: further records of the same append follow; nothing is stored before the last piece.
        topics_version: the topics as the broker knows them; None from one that does not say so.
    """

    number: int
    records: list[MessageRecord]
    more: bool = False
    topics_version: int | None = None


class Appended(msgspec.Struct, tag=9, frozen=True):
    """The outcome of an ``AppendRecords``."""

    number: int
    code: ResponseCode
    remark: str | None
    stored: list[StoredAt]


class Read(msgspec.Struct, tag=10, frozen=True):
    """Read a queue, what has a key, or the record at a log offset: one of the three."""

    number: int
    queue: QueueRead | None = None
    key: KeyRead | None = None
    offset: Offset | None = None


class WasRead(msgspec.Struct, tag=11, frozen=True):
    """The answer to a ``Read``: one of the two."""

    number: int
    result: GetResult | None
    refusal: Refusal | None


class Ask(msgspec.Struct, tag=12, frozen=True):
    """Questions about queues."""

    number: int
    questions: list[QueueQuestion]


class Learned(msgspec.Struct, tag=13, frozen=True):
    """The answer to an ``Ask``: one of the two."""

    number: int
    answers: list[QueueOffsets] | None
    refusal: Refusal | None


class Trim(msgspec.Struct, tag=14, frozen=True):
    """Nothing below a log offset is needed any more."""

    number: int
    below: Offset


class Done(msgspec.Struct, tag=15, frozen=True):
    """The answer to a ``Trim`` or a ``ChangeTopic``; no refusal means that it is done."""

    number: int
    refusal: Refusal | None


class ChangeTopic(msgspec.Struct, tag=16, frozen=True):
    """Create or change a topic, or delete one: by the controllers, then in the log.

    Attributes:
        topic: what to create; None deletes.
    """

    number: int
    name: str
    topic: TopicConfig | None
    if_absent: bool


class Question(msgspec.Struct, tag=17, frozen=True):
    """Something for the controllers, who know the storage process."""

    number: int
    code: int
    ext: dict[str, str] | None
    body: bytes


class Reply(msgspec.Struct, tag=18, frozen=True):
    """The controllers' answer; without a code nobody knows, and the remark says why."""

    number: int
    code: int | None
    remark: str | None
    ext: dict[str, str] | None = None
    body: bytes = b""


FromBroker = Hello | Ping | AppendRecords | Read | Ask | Trim | ChangeTopic | Question
FromStore = (
    Welcome | Rows | State | Farewell | Confirmed | Appended | WasRead | Learned | Done | Reply
)

MessageT = TypeVar("MessageT")

_encoder = msgspec.msgpack.Encoder()
_from_broker: msgspec.msgpack.Decoder[FromBroker] = msgspec.msgpack.Decoder(FromBroker)
_from_store: msgspec.msgpack.Decoder[FromStore] = msgspec.msgpack.Decoder(FromStore)


def encode(message: FromBroker | FromStore) -> bytes:
    """The frame of ``message``.

    Raises:
        WireError: it is larger than a frame may be.
    """
    payload = _encoder.encode(message)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise WireError(f"A message of {len(payload)} bytes, {MAX_PAYLOAD_BYTES} are allowed.")
    return framed(KIND, payload)


def from_broker(frame: Frame) -> FromBroker:
    """Decode a broker's message.

    Raises:
        WireError: it is no message of a broker.
    """
    return _decoded(frame, _from_broker)


def from_store(frame: Frame) -> FromStore:
    """Decode a storage process's message.

    Raises:
        WireError: it is no message of one.
    """
    return _decoded(frame, _from_store)


def _decoded(frame: Frame, decoder: msgspec.msgpack.Decoder[MessageT]) -> MessageT:
    if frame.kind != KIND:
        raise WireError(f"A frame of the kind {frame.kind} came, the store speaks {KIND}.")
    try:
        return decoder.decode(frame.payload)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(f"A message of the store does not read: {error}.") from error
