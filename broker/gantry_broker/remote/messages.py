"""Messages between a front and the storage process that it serves from, and their bytes.

Each message is one frame of the replication links (``ha.wire``: version, size bound, checksum)
whose payload is msgpack. The front speaks first, with ``Hello``; the storage process answers with
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
from gantry_broker.store.contract import GetResult, QueueKey, QueueRead, Refusal, StoredAt
from gantry_broker.store.tables.offsets import OffsetRow

KIND = 17  # of the frame; replicas use the small ones, and 16 was of brokers without a disk
ROWS_MAX = 500  # in one piece of the tables: about 40 KB
QUEUES_MAX = 2_000  # told of at once: 600 KB with the longest names


class Hello(msgspec.Struct, tag=1, frozen=True, array_like=True):
    """The introduction of a caller.

    Attributes:
        newest_epoch: of a master that the caller was served by; an older one is refused.
        address: where clients reach the caller.
        reads: it asks a replica for what that has, and for nothing else. A broker of an older
            version takes it for a caller that looks for the master.
    """

    cluster: str
    group: str
    newest_epoch: Epoch
    address: str
    reads: bool = False


class Welcome(msgspec.Struct, tag=2, frozen=True, array_like=True):
    """The epoch in which it is the master; the tables follow, then a ``State``.

    Attributes:
        host: where clients reach it, which is also in the ids of its messages.
        port: the same.
    """

    epoch: Epoch
    host: str
    port: int


class Rows(msgspec.Struct, tag=3, frozen=True, array_like=True):
    """A piece of the tables: topics, and resets that are due.

    Attributes:
        resets: as offsets under the names that stand for them (``store.tables.resets``).
    """

    topics_version: int
    topics: list[TopicConfig] = []
    resets: list[OffsetRow] = []


class State(msgspec.Struct, tag=4, frozen=True, array_like=True):
    """The acceptance of writes, and the versions that the controllers named last.

    Attributes:
        refusal: why not; None when they are.
        is_offered: a front may serve sends and pulls by itself. All are the master's where it
            must look at each: tenants have quotas, or the disk has no room.
    """

    refusal: Refusal | None
    subscriptions_version: int
    is_offered: bool = True


class Farewell(msgspec.Struct, tag=5, frozen=True, array_like=True):
    """The link ends; why, for people."""

    reason: str


class Ping(msgspec.Struct, tag=6, frozen=True, array_like=True):
    """The caller is alive; answered with a ``State``.

    Attributes:
        put: messages that clients sent through it since the last one, by topic.
        got: that consumers were given by it, by ``topic@group``.
        pulled: the offsets up to which they were.
    """

    put: dict[str, int] = {}
    got: dict[str, int] = {}
    pulled: list[OffsetRow] = []


class Confirmed(msgspec.Struct, tag=7, frozen=True, array_like=True):
    """Confirm has risen.

    Attributes:
        offset: to where.
        queues: that got records.
        changes: topic and body of the records of state among them, in the order of the log; those
            of offsets have only the rows of resets.
    """

    offset: Offset
    queues: list[QueueKey]
    changes: list[tuple[str, bytes]] = []


class AppendRecords(msgspec.Struct, tag=8, frozen=True, array_like=True):
    """Store and replicate the records of some sends, in their order.

    Attributes:
        number: of the first; the others follow.
        parents: of those that the front traces, by their place among the records: its span as a
            `traceparent`. An older front names none, an older master looks at none.
    """

    number: int
    records: list[MessageRecord]
    parents: dict[int, str] = {}


class Appended(msgspec.Struct, tag=9, frozen=True, array_like=True):
    """The outcome of some sends that came together, the same for all.

    Attributes:
        number: of the first; the others follow.
        count: how many.
        stored: where their records are, one for each; empty when they were not stored, or nobody
            knows.
    """

    number: int
    count: int
    code: ResponseCode
    remark: str | None
    stored: list[StoredAt]


class Read(msgspec.Struct, tag=10, frozen=True, array_like=True):
    """Read records of a queue."""

    number: int
    queue: QueueRead


class WasRead(msgspec.Struct, tag=11, frozen=True, array_like=True):
    """The answer to a ``Read``: one of the two."""

    number: int
    result: GetResult | None
    refusal: Refusal | None


FromFront = Hello | Ping | AppendRecords | Read
FromStore = Welcome | Rows | State | Farewell | Confirmed | Appended | WasRead

MessageT = TypeVar("MessageT")

_encoder = msgspec.msgpack.Encoder()
_from_front: msgspec.msgpack.Decoder[FromFront] = msgspec.msgpack.Decoder(FromFront)
_from_store: msgspec.msgpack.Decoder[FromStore] = msgspec.msgpack.Decoder(FromStore)


def encode(message: FromFront | FromStore) -> bytes:
    """The frame of ``message``.

    Raises:
        WireError: it is larger than a frame may be.
    """
    payload = _encoder.encode(message)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise WireError(f"A message of {len(payload)} bytes, {MAX_PAYLOAD_BYTES} are allowed.")
    return framed(KIND, payload)


def from_front(frame: Frame) -> FromFront:
    """Decode a front's message.

    Raises:
        WireError: it is no message of a front.
    """
    return _decoded(frame, _from_front)


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
