"""The ledger of POP: what a log says is what was decided, and what is taken back never was."""

from __future__ import annotations

import base64
from itertools import pairwise

import pytest
from gantry_broker.clients.core.clocks import Clocks
from gantry_broker.clients.core.pop.ledger import DeliveryState, LogReader, PopLedger
from gantry_broker.clients.core.pop.receipts import bits, parse_receipt
from gantry_broker.clients.core.pop.records import (
    ROW_MESSAGES,
    Acked,
    Changed,
    Event,
    InFlight,
    ModeSet,
    OffsetMoved,
    Piece,
    Popped,
    QueueId,
    events_record,
    parse,
    table_records,
)
from gantry_protocol.errors import BodyError
from gantry_protocol.records import MessageRecord
from hypothesis import given
from hypothesis import strategies as st

HOST = ("127.0.0.1", 1)
NOW = Clocks(1_000_000, 5_000)
ONE, TWO = QueueId("g", "T", 0), QueueId("h", "T", 1)


def taken(ledger: PopLedger, queue: QueueId, first: int, count: int, popped_ms: int) -> Popped:
    """The event of a pop of new messages."""
    messages = [InFlight(first + at, popped_ms, 10_000, 1) for at in range(count)]
    known = ledger.queues.get(queue)
    behind = 0 if known is None else known.next
    return Popped(queue, max(behind, first + count), "", messages)


def events() -> st.SearchStrategy[list[Event]]:
    queue = st.sampled_from([ONE, TWO])
    offset = st.integers(0, 9)
    message = st.builds(
        InFlight, offset, st.integers(999_990, 1_000_000), st.integers(0, 20_000), st.integers(1, 3)
    )
    messages = st.lists(message, max_size=4, unique_by=lambda item: item.offset)
    ordered = messages.map(lambda found: sorted(found, key=lambda item: item.offset))
    return st.lists(
        st.one_of(
            st.builds(Popped, queue, st.integers(10, 12), st.sampled_from(["", "x"]), ordered),
            st.builds(Acked, queue, st.lists(offset, max_size=3, unique=True)),
            st.builds(Changed, queue, message),
            st.builds(OffsetMoved, queue, offset),
            st.builds(ModeSet, st.just("T"), st.just("g"), st.booleans(), st.integers(-1, 2)),
        ),
        max_size=12,
    )


def state(ledger: PopLedger) -> object:
    """All of it, as far as anybody can see."""
    return (
        {
            queue_id: (
                queue.next,
                queue.attempt,
                [item.message for item in queue.held.values()],
                [item.message for item in queue.held.values() if item.due_ms <= NOW.steady_ms],
                queue.visible(NOW.steady_ms, 99),
                queue.next_due_ms(),
                queue.floor,
            )
            for queue_id, queue in ledger.queues.items()
        },
        dict(ledger.modes),
        ledger.in_flight,
    )


def stored(record: MessageRecord) -> list[Event] | Piece:
    return parse(record.properties.encode(), record.body)


@given(events(), st.integers(0, 12))
def test_the_log_says_what_was_decided(happened: list[Event], table_at: int) -> None:
    ledger, reader = PopLedger(), LogReader(NOW)
    offset = 0
    for at, event in enumerate(happened):
        if at == table_at:
            for record in table_records(list(ledger.rows()), HOST):
                reader.take(offset, stored(record))
                offset += 1
        ledger.apply(event, NOW)
        reader.take(offset, stored(events_record([event], HOST)))
        offset += 1
    assert state(reader.ledger) == state(ledger)


@given(events(), events())
def test_what_is_taken_back_never_was(before: list[Event], happened: list[Event]) -> None:
    ledger = PopLedger()
    for event in before:
        ledger.apply(event, NOW)
    was = state(ledger)
    undos = [ledger.apply(event, NOW) for event in happened]
    for undo in reversed(undos):
        ledger.undo(undo)
    assert state(ledger) == was


@given(events())
def test_messages_in_flight_stand_in_order_and_are_counted(happened: list[Event]) -> None:
    ledger = PopLedger()
    for event in happened:
        ledger.apply(event, NOW)
    for queue in ledger.queues.values():
        assert all(one < other for one, other in pairwise(queue.held))
    assert ledger.in_flight == sum(len(queue.held) for queue in ledger.queues.values())


def test_the_state_of_a_delivery() -> None:
    ledger = PopLedger()
    ledger.apply(taken(ledger, ONE, 0, 2, 7), NOW)
    ledger.apply(Acked(ONE, [0]), NOW)
    assert ledger.state(ONE, 0, 7) is DeliveryState.DONE
    assert ledger.state(ONE, 1, 7) is DeliveryState.CURRENT
    assert ledger.state(ONE, 1, 6) is DeliveryState.OVER
    assert ledger.state(ONE, 2, 7) is DeliveryState.UNKNOWN
    assert ledger.state(TWO, 0, 7) is DeliveryState.UNKNOWN


@pytest.mark.parametrize(
    ("wall_ms", "due_ms"),
    [(7, 10_000), (4_007, 6_001), (10_007, 1), (99_999, 0), (0, 10_000)],
    ids=["at once", "later", "over", "long over", "a clock that is behind"],
)
def test_what_an_earlier_master_handed_out_stays_hidden_for_the_rest(
    wall_ms: int, due_ms: int
) -> None:
    ledger = PopLedger()
    ledger.apply(taken(ledger, ONE, 0, 1, 7), NOW)
    reader = LogReader(Clocks(wall_ms, 0))
    for at, record in enumerate(table_records(list(ledger.rows()), HOST)):
        reader.take(at, stored(record))
    assert reader.ledger.queues[ONE].next_due_ms() == due_ms


def test_a_table_that_is_cut_off_counts_for_nothing() -> None:
    ledger = PopLedger()
    reader = LogReader(NOW)
    first = taken(ledger, ONE, 0, 4 * ROW_MESSAGES, 1_795_241_311_540)
    ledger.apply(first, NOW)
    reader.take(0, [first])
    pieces = [stored(record) for record in table_records(list(ledger.rows()), HOST)]
    assert len(pieces) > 1
    reader.take(1, pieces[0])
    reader.take(2, [Acked(ONE, [0])])
    reader.take(3, pieces[1])
    assert reader.table_at is None
    assert reader.ledger.queues[ONE].floor == 1
    for at, piece in enumerate(pieces, start=4):
        reader.take(at, piece)
    assert reader.table_at == 4
    assert reader.ledger.queues[ONE].floor == 0


def test_a_queue_has_a_bound_and_so_have_all() -> None:
    ledger = PopLedger()
    assert ledger.room(None) == 10_000
    ledger.apply(taken(ledger, ONE, 0, 9_999, 7), NOW)
    assert ledger.room(ledger.queues[ONE]) == 1
    ledger.in_flight = 200_000
    assert ledger.room(None) == 0


@pytest.mark.parametrize("added", ["", " 4096"], ids=["of a client", "of RocketMQ's proxy"])
def test_a_receipt_reads(added: str) -> None:
    found = parse_receipt("3 1795241311540 60000 0 0 broker-a 2 5" + added)
    assert (found.popped_ms, found.invisible_ms, found.revive_queue) == (1795241311540, 60_000, 0)
    assert (found.broker_name, found.queue_id, found.offset) == ("broker-a", 2, 5)


def test_a_bit_set_reads() -> None:
    assert bits(base64.b64encode(bytes([0b101, 0b1])).decode()) == [0, 2, 8]
    assert bits("") == []


@pytest.mark.parametrize("text", ["?", "é", base64.b64encode(bytes([255]) * 5000).decode()])
def test_a_bit_set_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BodyError):
        bits(text)
