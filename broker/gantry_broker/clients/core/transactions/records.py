"""The records transactions are made of, and what a request may say of them. Pure.

A half message lies in ``RMQ_SYS_TRANS_HALF_TOPIC``, queue 0, which no client may read. It ends by
an *op record* in ``RMQ_SYS_TRANS_OP_HALF_TOPIC``: tag ``d`` and the half's queue offset, as
upstream writes them, and the outcome as a property, which upstream's readers pass over. The message
itself, or the copy of one that was given up, follows its op record in the same append. From time to
time the table of open half messages is written between the op records (tag ``t``, which upstream's
reader skips), so that nobody has to read either queue from its start.

Upstream: ``TransactionalMessageBridge``, ``TransactionalMessageUtil``, ``EndTransactionProcessor``.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import BodyError
from gantry_protocol.headers.client import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from gantry_protocol.records import (
    Host,
    MessageRecord,
    append_properties,
    decode_properties,
    encode_properties,
    encode_record,
    find_property,
    offset_msg_id,
    without_property,
)
from gantry_protocol.records.layout import TRANSACTION_COMMIT, TRANSACTION_MASK
from gantry_protocol.records.properties import TRANSACTION_ID

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"  # its consumer offsets say what is still needed of both queues

_ENDED_TAG = "d"
_TABLE_TAG = "t"
_OUTCOME = "TRAN_OUTCOME"
_BY_BROKER = ("REAL_TOPIC", "REAL_QID", TRANSACTION_ID)
_MAX_ROWS = 500  # in one piece of a table: some 30 KB


class TransactionOutcome(Enum):
    """The end of a transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    GIVEN_UP = "given-up"  # nobody answered; a copy is where people can find it


class OpenTransaction(msgspec.Struct, array_like=True, gc=False):
    """One open half message, in memory and in tables.

    Attributes:
        offset: of the half message in its queue; its name.
        physical: where it stands in the log.
        stored_ms: when it was stored, by the broker's clock.
        immunity_ms: how long its producer wants not to be asked; 0 leaves that to the broker.
        checks: how often a producer was asked.
        rounds: how often it was due to be asked, whether or not a producer was there.
    """

    offset: int
    physical: int
    stored_ms: int
    immunity_ms: int = 0
    checks: int = 0
    rounds: int = 0


class Ended(msgspec.Struct, frozen=True):
    """The contents of an op record.

    Attributes:
        offsets: queue offsets of half messages that are no longer open.
        outcome: how they ended; None where a tool of upstream's wrote it.
    """

    offsets: tuple[int, ...]
    outcome: TransactionOutcome | None


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A part of the table of open half messages.

    Attributes:
        half_next: half messages below are in the table or ended.
        op_next: op records below have been taken into account.
        index: of this piece, from 0.
        count: of all pieces; they have consecutive queue offsets.
        rows: some of the open ones, by ascending offset.
    """

    half_next: int
    op_next: int
    index: int
    count: int
    rows: list[OpenTransaction]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Piece)


def half_record(message: MessageRecord, unique_key: str) -> MessageRecord:
    """``message`` as it waits for its outcome; its topic and queue become properties."""
    properties = message.properties
    for name in _BY_BROKER:
        properties = without_property(properties, name)
    added = {"REAL_TOPIC": message.topic, "REAL_QID": str(message.queue_id)}
    return msgspec.structs.replace(
        message,
        topic=HALF_TOPIC,
        queue_id=0,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
        properties=append_properties(properties, {**added, TRANSACTION_ID: unique_key}),
    )


def immunity_ms(properties: bytes) -> int:
    """The time in which the producer of a half message must not be asked; 0 when it did not say."""
    text = find_property(properties, "CHECK_IMMUNITY_TIME_IN_SECONDS")
    return int(text) * 1000 if text is not None and text.isdecimal() and len(text) < 9 else 0


def resolution(
    half: MessageRecord, outcome: TransactionOutcome, store_host: Host
) -> list[MessageRecord]:
    """The records that end ``half`` in one append: the op record, then what follows from it.

    Raises:
        BodyError: the half message does not say where it belongs.
    """
    op = MessageRecord(
        topic=OP_TOPIC,
        body=f"{half.queue_offset},".encode(),
        properties=encode_properties({"TAGS": _ENDED_TAG, _OUTCOME: outcome.value}),
        born_host=store_host,
        store_host=store_host,
    )
    if outcome is TransactionOutcome.ROLLBACK:
        return [op]
    topic, queue_id = target(half, outcome)
    commit = TRANSACTION_COMMIT if outcome is TransactionOutcome.COMMIT else 0
    follows = msgspec.structs.replace(
        half,
        topic=topic,
        queue_id=queue_id,
        sys_flag=half.sys_flag & ~TRANSACTION_MASK | commit,
        prepared_transaction_offset=half.physical_offset,
        store_host=store_host,
    )
    return [op, follows]


def target(half: MessageRecord, outcome: TransactionOutcome) -> tuple[str, int]:
    """Topic and queue of the record that follows an op record with this outcome.

    Raises:
        BodyError: the half message does not say where it belongs.
    """
    if outcome is TransactionOutcome.GIVEN_UP:
        return GIVEN_UP_TOPIC, 0
    properties = decode_properties(half.properties)
    topic, queue_id = properties.get("REAL_TOPIC"), properties.get("REAL_QID", "")
    if topic is None or not queue_id.isdecimal():
        raise BodyError(f"the half message at {half.physical_offset} has no topic and queue")
    return topic, int(queue_id)


def refuse_end(
    half: MessageRecord, claim: EndTransactionRequestHeader, now_ms: int
) -> tuple[ResponseCode, str] | None:
    """The reason why ``claim`` may not end ``half``, or comes too late; None when it may.

    Upstream: ``EndTransactionProcessor.checkPrepareMessage`` and ``rejectCommitOrRollback``.
    """
    properties = decode_properties(half.properties)
    if half.physical_offset != claim.commit_log_offset:
        return ResponseCode.SYSTEM_ERROR, "The transaction's commit log offset is wrong"
    if half.queue_offset != claim.tran_state_table_offset:
        return ResponseCode.SYSTEM_ERROR, "The transaction state table offset is wrong"
    if properties.get("PGROUP") != claim.producer_group:
        return ResponseCode.SYSTEM_ERROR, "The producer group is wrong"
    if claim.transaction_id and claim.transaction_id != properties.get(TRANSACTION_ID):
        return ResponseCode.SYSTEM_ERROR, "The transaction id is wrong"
    immune_ms = immunity_ms(half.properties.encode())
    late = immune_ms and now_ms - half.store_timestamp >= immune_ms
    if late and not claim.from_transaction_check:
        return ResponseCode.ILLEGAL_OPERATION, "The time for an answer without a check is over"
    return None


def check_request(
    half: MessageRecord, checks: int, broker_name: str
) -> tuple[CheckTransactionStateRequestHeader, bytes]:
    """CheckTransactionState (39) for ``half``: the message with its own topic and queue.

    Args:
        half: the half message.
        checks: which check this is, from 1; listeners may look at it.
        broker_name: the group's name.

    Raises:
        BodyError: the half message does not say where it belongs.
        RecordError: the count does not fit its properties any more.
    """
    topic, queue_id = target(half, TransactionOutcome.COMMIT)
    unique_key = find_property(half.properties.encode(), "UNIQ_KEY")
    counted = append_properties(half.properties, {"TRANSACTION_CHECK_TIMES": str(checks)})
    message = msgspec.structs.replace(half, topic=topic, queue_id=queue_id, properties=counted)
    header = CheckTransactionStateRequestHeader(
        topic=HALF_TOPIC,
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.physical_offset,
        msg_id=unique_key,
        transaction_id=unique_key,
        offset_msg_id=offset_msg_id(*half.store_host, half.physical_offset),
        broker_name=broker_name,
    )
    return header, encode_record(message)


def table_records(
    rows: Sequence[OpenTransaction], half_next: int, op_next: int, store_host: Host
) -> list[MessageRecord]:
    """The records of a table; to be appended together, so that they follow each other."""
    parts = [rows[at : at + _MAX_ROWS] for at in range(0, len(rows), _MAX_ROWS)] or [[]]
    return [
        MessageRecord(
            topic=OP_TOPIC,
            body=_encoder.encode(Piece(half_next, op_next, index, len(parts), list(part))),
            properties=encode_properties({"TAGS": _TABLE_TAG}),
            born_host=store_host,
            store_host=store_host,
        )
        for index, part in enumerate(parts)
    ]


def parse_op(properties: bytes, body: bytes) -> Ended | Piece:
    """Decode a record of the op topic.

    Raises:
        BodyError: it is none of ours and none of upstream's.
    """
    tag = find_property(properties, "TAGS")
    try:
        if tag == _ENDED_TAG:
            offsets = tuple(int(text) for text in body.decode().split(",") if text)
            outcome = find_property(properties, _OUTCOME)
            return Ended(offsets, None if outcome is None else TransactionOutcome(outcome))
        if tag == _TABLE_TAG:
            return _decoder.decode(body)
    except (ValueError, msgspec.DecodeError) as error:
        raise BodyError(f"an op record of transactions does not read: {error}") from error
    raise BodyError(f"an op record of transactions has the tag {tag!r}")


class Table(msgspec.Struct, frozen=True):
    """Every half message that was open at some place of the two queues; see ``Piece``."""

    half_next: int
    op_next: int
    rows: list[OpenTransaction]


class TableReader:
    """Finds the newest whole table among op records.

    Attributes:
        found: that table; None so far.
    """

    def __init__(self) -> None:
        self.found: Table | None = None
        self._pieces: list[Piece] = []

    def take(self, records: Iterable[Ended | Piece]) -> None:
        """Look at the next op records, in their order."""
        for record in records:
            if not isinstance(record, Piece) or record.index != len(self._pieces):
                self._pieces = []  # cut off by a change of master
            if isinstance(record, Piece) and record.index == len(self._pieces):
                self._pieces.append(record)
                if len(self._pieces) == record.count:
                    rows = [row for piece in self._pieces for row in piece.rows]
                    self.found = Table(record.half_next, record.op_next, rows)
                    self._pieces = []
