"""Op records and tables: what they say, what is refused, and which table counts."""

from __future__ import annotations

import pytest
from gantry_broker.clients.core.transactions.records import (
    Ended,
    OpenTransaction,
    TableReader,
    TransactionOutcome,
    immunity_ms,
    parse_op,
    resolution,
    table_records,
    target,
)
from gantry_protocol.errors import BodyError
from gantry_protocol.records import MessageRecord

HOST = ("10.0.0.2", 10911)
HALF = MessageRecord(
    topic="RMQ_SYS_TRANS_HALF_TOPIC",
    body=b"x",
    properties="REAL_TOPIC\x01T\x02REAL_QID\x013\x02",
    queue_offset=7,
    physical_offset=4096,
)


def _parse(record: MessageRecord):
    return parse_op(record.properties.encode(), record.body)


@pytest.mark.parametrize("outcome", TransactionOutcome)
def test_an_op_record_says_which_half_message_ended_and_how(outcome: TransactionOutcome) -> None:
    assert _parse(resolution(HALF, outcome, HOST)[0]) == Ended((7,), outcome)


def test_upstreams_op_records_are_read_too() -> None:
    assert parse_op(b"TAGS\x01d\x02", b"5,8,13,") == Ended((5, 8, 13), None)


@pytest.mark.parametrize(
    ("properties", "body"),
    [
        pytest.param(b"TAGS\x01x\x02", b"1,", id="another tag"),
        pytest.param(b"", b"1,", id="no tag"),
        pytest.param(b"TAGS\x01d\x02", b"one,", id="no number"),
        pytest.param(b"TAGS\x01d\x02", b"\xff", id="no text"),
        pytest.param(b"TAGS\x01d\x02TRAN_OUTCOME\x01maybe\x02", b"1,", id="no outcome"),
        pytest.param(b"TAGS\x01t\x02", b"[1,2]", id="no table"),
        pytest.param(b"TAGS\x01t\x02", b"", id="empty table"),
    ],
)
def test_what_is_no_op_record_is_refused(properties: bytes, body: bytes) -> None:
    with pytest.raises(BodyError):
        parse_op(properties, body)


@pytest.mark.parametrize(
    "properties", ["", "REAL_TOPIC\x01T\x02", "REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02"]
)
def test_a_half_message_without_a_place_of_its_own_is_refused(properties: str) -> None:
    with pytest.raises(BodyError, match="4096"):
        target(
            MessageRecord(topic="H", properties=properties, physical_offset=4096),
            TransactionOutcome.COMMIT,
        )


@pytest.mark.parametrize(
    ("text", "wanted_ms"),
    [("20", 20_000), ("0", 0), ("-1", 0), ("soon", 0), ("1" * 30, 0), ("", 0)],
)
def test_immunity(text: str, wanted_ms: int) -> None:
    assert immunity_ms(f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{text}\x02".encode()) == wanted_ms


def _rows(count: int) -> list[OpenTransaction]:
    return [
        OpenTransaction(n, 100 * n, 1_700_000_000_000 + n, 0, n % 15, n % 20) for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 500, 501, 1200])
def test_a_table_reads_as_it_was_written(count: int) -> None:
    rows = _rows(count)
    reader = TableReader()
    reader.take(_parse(record) for record in table_records(rows, 2000, 70, HOST))
    assert reader.found is not None
    assert (reader.found.half_next, reader.found.op_next) == (2000, 70)
    assert reader.found.rows == rows


def test_the_newest_whole_table_counts() -> None:
    old = [_parse(record) for record in table_records(_rows(600), 600, 1, HOST)]
    new = [_parse(record) for record in table_records(_rows(1200), 1200, 9, HOST)]
    ended = Ended((1,), TransactionOutcome.COMMIT)
    reader = TableReader()
    reader.take([*new[1:], ended, *old, ended, *new[:2]])  # the second cut off by a new master
    assert reader.found is not None
    assert reader.found.half_next == 600
    reader.take([new[2]])
    assert reader.found.half_next == 1200
    reader.take([*old[:1], *new[1:]])  # pieces of two tables are none
    assert reader.found.half_next == 1200
