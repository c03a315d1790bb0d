"""Transactions as a producer and a consumer see them: 310, 37, 39, and what can be pulled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from gantry_broker.clients.access import MAY
from gantry_broker.clients.transaction_metrics import TransactionCollector
from gantry_broker.log import DiskFullError
from gantry_broker.store.contract import Refusal, SendOutcome
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import GantryError
from gantry_protocol.records import (
    decode_offset_msg_id,
    decode_properties,
    decode_record,
)
from support import stores
from support.group_view import FakeConnection
from support.late_store import LateStore
from support.transactions import (
    COMMIT,
    GROUP,
    HALF,
    HEARTBEAT,
    KEY,
    OPS,
    ROLLBACK,
    UNKNOWN,
    claim,
    half,
    read_queue,
)

from .conftest import START_S, Client, Jumping

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def _read_log() -> None:
    """Let a new master read what there is."""
    await asyncio.sleep(0.1)


async def test_a_half_message_is_answered_with_its_place_in_the_half_topic(serve, group) -> None:
    client = Client(serve())
    client.call(310, half(key="A" * 32), b"first")
    answer = client.call(310, half(), b"second")
    assert answer.code == 0
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("2", "1")
    assert answer.ext["transactionId"] == KEY
    stored = read_queue(group.messages, HALF)[1]
    assert decode_offset_msg_id(answer.ext["msgId"]) == (
        group.store_host,
        stored.physical_offset,
    )
    assert (stored.queue_id, stored.sys_flag, stored.flag, stored.body) == (0, 0, 7, b"second")
    properties = decode_properties(stored.properties)
    assert properties["REAL_TOPIC"] == "TopicTest"
    assert properties["REAL_QID"] == "2"
    assert properties["__transactionId__"] == KEY
    assert properties["TRAN_MSG"] == "true"
    assert read_queue(group.messages, "TopicTest", 2) == []


async def test_consumers_cannot_pull_half_messages(serve) -> None:
    client = Client(serve())
    client.call(310, half(), b"x")
    pull = {
        "consumerGroup": "g", "topic": HALF, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
        "subscription": "*",
    }  # fmt: skip
    assert client.call(11, pull).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_commit_brings_the_message_and_its_op_record_in_one_append(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"paid")
    assert client.call(37, claim(sent, COMMIT)).code == 0
    assert [record.topic for record in group.appended[-1]] == [OPS, "TopicTest"]
    (record,) = read_queue(group.messages, "TopicTest", 2)
    stored = read_queue(group.messages, HALF)[0]
    assert (record.body, record.sys_flag, record.flag) == (b"paid", COMMIT, 7)
    assert record.prepared_transaction_offset == stored.physical_offset
    assert (record.born_timestamp, record.born_host) == (stored.born_timestamp, stored.born_host)
    assert record.properties == stored.properties  # as upstream: TRAN_MSG and the rest stay
    (op,) = read_queue(group.messages, OPS)
    assert op.body == b"0,"
    assert decode_properties(op.properties)["TAGS"] == "d"


async def test_a_rollback_leaves_an_op_record_only(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    assert client.call(37, claim(sent, ROLLBACK)).code == 0
    assert [record.body for record in read_queue(group.messages, OPS)] == [b"0,"]
    assert read_queue(group.messages, "TopicTest", 2) == []


async def test_the_first_outcome_holds(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    client.call(37, claim(sent, ROLLBACK))
    answers = [client.call(37, claim(sent, outcome)) for outcome in (ROLLBACK, COMMIT)]
    assert [answer.code for answer in answers] == [0, 0]
    assert "first outcome holds" in answers[1].remark
    assert len(read_queue(group.messages, OPS)) == 1
    assert read_queue(group.messages, "TopicTest", 2) == []
    assert client.processor.transactions.counters.repeated == 2


async def test_an_outcome_that_is_being_confirmed_is_taken(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    group.holding = True
    first, answer = client.ask(37, claim(sent, COMMIT))
    assert answer is None
    assert client.call(37, claim(sent, ROLLBACK)).code == ResponseCode.SYSTEM_BUSY
    group.confirm()
    assert client.conn.answer_to(first).code == 0
    assert len(read_queue(group.messages, OPS)) == 1
    assert len(read_queue(group.messages, "TopicTest", 2)) == 1


async def test_an_outcome_that_was_stored_and_not_confirmed_stays_taken(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    group.holding = True
    first, _ = client.ask(37, claim(sent, COMMIT))
    group.give_up()
    assert client.conn.answer_to(first).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert client.call(37, claim(sent, ROLLBACK)).code == ResponseCode.SYSTEM_BUSY


async def test_an_outcome_that_may_be_stored_nobody_knows_where_stays_taken(
    serve, group, monkeypatch
) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    lost = SendOutcome(ResponseCode.FLUSH_SLAVE_TIMEOUT, "the connection to the store is lost")
    with monkeypatch.context() as cut:
        cut.setattr(group.store, "append", lambda records, done: done(lost))
        assert client.call(37, claim(sent, COMMIT)).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert client.call(37, claim(sent, ROLLBACK)).code == ResponseCode.SYSTEM_BUSY


async def test_an_end_waits_for_its_half_message_to_be_read(serve, group, monkeypatch) -> None:
    client = Client(serve())
    await _read_log()
    group.store = LateStore(group.store)
    client.processor = serve()
    await _read_log()
    sent = client.call(310, half(), b"paid")
    asked, answer = client.ask(37, claim(sent, COMMIT))
    assert answer is None
    await _read_log()
    assert client.conn.answer_to(asked).code == 0
    assert len(read_queue(group.messages, "TopicTest", 2)) == 1


def _being_read(client, group, end) -> tuple[RemotingCommand, Callable[[], None]]:
    """A 37 whose half message is being read, and what lets the store answer."""
    late: list[Callable[[], None]] = []
    read = group.store.read
    group.store.read = lambda at, done: read(at, lambda result: late.append(lambda: done(result)))
    asked, _ = client.ask(37, end)
    group.store.read = read
    (answer_now,) = late
    return asked, answer_now


async def test_an_end_waits_until_it_is_known_again_what_has_ended(serve, group) -> None:
    client = Client(serve())
    await _read_log()
    sent = client.call(310, half(), b"x")
    await _read_log()
    asked, answer_now = _being_read(client, group, claim(sent, COMMIT))
    client.processor.transactions._fail(GantryError("it does not read"))
    answer_now()
    assert read_queue(group.messages, "TopicTest", 2) == []
    await asyncio.sleep(1)
    assert client.conn.answer_to(asked).code == 0
    assert len(read_queue(group.messages, "TopicTest", 2)) == 1


async def test_an_end_that_a_former_mastership_was_reading_for_ends_nothing(serve, group) -> None:
    """The next one, of this very broker, knows what has ended since."""
    client = Client(serve())
    await _read_log()
    sent = client.call(310, half(), b"x")
    await _read_log()
    asked, answer_now = _being_read(client, group, claim(sent, COMMIT))
    client.processor = serve()
    await _read_log()
    assert client.call(37, claim(sent, ROLLBACK)).code == 0
    answer_now()
    assert client.conn.answer_to(asked).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert read_queue(group.messages, "TopicTest", 2) == []


async def test_a_confirmed_outcome_holds_before_it_was_read_back(serve, group, monkeypatch) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    monkeypatch.setattr(client.processor.transactions, "_arrived", lambda *_: None)
    monkeypatch.setattr(client.processor.transactions.ledger, "take_ended", lambda *_: 0)
    assert client.call(37, claim(sent, COMMIT)).code == 0
    repeated = client.call(37, claim(sent, ROLLBACK))
    assert (repeated.code, "first outcome holds" in repeated.remark) == (0, True)


async def test_an_outcome_that_was_not_stored_may_be_said_again(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    group.append_error = DiskFullError("no room")
    assert client.call(37, claim(sent, COMMIT)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    group.append_error = None
    assert client.call(37, claim(sent, COMMIT)).code == 0
    assert len(read_queue(group.messages, "TopicTest", 2)) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"commitLogOffset": 1}, "commit log offset", id="another place in the log"),
        pytest.param({"tranStateTableOffset": 1}, "Find prepared", id="no such half message"),
        pytest.param({"tranStateTableOffset": -1}, "Find prepared", id="negative"),
        pytest.param({"producerGroup": "PG_X"}, "producer group", id="another group"),
        pytest.param({"transactionId": "B" * 32}, "transaction id", id="another transaction"),
        pytest.param({"commitOrRollback": 4}, "neither 8 nor 12", id="no outcome"),
    ],
)
async def test_an_end_of_another_message_is_refused(serve, group, changes, words) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    for outcome in (COMMIT, ROLLBACK):
        answer = client.call(37, claim(sent, outcome, **changes))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert words in answer.remark
    assert read_queue(group.messages, OPS) == []


async def test_who_may_not_send_to_its_topic_ends_no_transaction(serve, group) -> None:
    """The request may name any topic; that of the half message counts, also after a wait."""
    named: list[str] = []
    client = Client(serve())
    await _read_log()
    sent = client.call(310, half(), b"x")
    await _read_log()
    client.conn.attrs[MAY] = named.append
    answer = client.call(37, claim(sent, ROLLBACK, topic="another"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "Find prepared" in answer.remark
    client.conn.attrs[MAY] = named.append
    asked, answer_now = _being_read(client, group, claim(sent, COMMIT))
    client.processor.transactions._fail(GantryError("it does not read"))
    answer_now()
    await asyncio.sleep(1)
    assert client.conn.answer_to(asked).code == ResponseCode.SYSTEM_ERROR
    assert named == [half()["b"]] * 2
    assert read_queue(group.messages, OPS) == []
    assert client.call(37, claim(sent, COMMIT)).code == 0, "each was judged for itself"


async def test_unknown_changes_nothing(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    assert client.call(37, claim(sent, UNKNOWN)).code == 0
    assert len(client.processor.transactions.ledger) == 1


async def test_an_end_is_refused_while_writes_are(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "leaving")
    assert client.call(37, claim(sent, COMMIT)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    group.refusal = None
    assert client.call(37, claim(sent, COMMIT)).code == 0


async def test_a_late_unasked_answer_is_refused_where_immunity_was_wanted(serve, group) -> None:
    client = Client(serve())
    immune = "CHECK_IMMUNITY_TIME_IN_SECONDS\x0120\x02"
    sent = client.call(310, half(more=immune), b"x")
    await asyncio.sleep(21)
    late = client.call(37, claim(sent, COMMIT))
    assert late.code == ResponseCode.ILLEGAL_OPERATION
    assert client.call(37, claim(sent, COMMIT, fromTransactionCheck=True)).code == 0


async def test_a_retried_copy_of_a_committed_message_is_no_half_message(serve, group) -> None:
    client = Client(serve())
    group.add_topic(TopicConfig(topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=1))
    assert client.call(310, half(b="%RETRY%g", e=0, f=0), b"x").code == 0
    assert len(read_queue(group.messages, "%RETRY%g")) == 1
    assert read_queue(group.messages, HALF) == []


async def test_too_many_open_transactions(serve, group) -> None:
    client = Client(serve(open_max=2))
    sent = [client.call(310, half(key=f"{n:032}"), b"x") for n in range(2)]
    refused = client.call(310, half(), b"x")
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "2 transactions are open" in refused.remark
    client.call(37, claim(sent[0], COMMIT))
    assert client.call(310, half(), b"x").code == 0
    assert client.processor.transactions.counters.refused_halves == 1


# Asking


def _checks(conn: FakeConnection) -> list[RemotingCommand]:
    return [command for command in conn.sent if command.code == 39]


async def test_a_producer_is_asked_with_the_message_as_it_was_sent(serve, group) -> None:
    client = Client(serve())
    client.call(34, None, HEARTBEAT)
    sent = client.call(310, half(), b"paid")
    await asyncio.sleep(31)
    (check,) = _checks(client.conn)
    assert check.is_oneway
    assert check.flag == 2
    stored = read_queue(group.messages, HALF)[0]
    assert check.ext == {  # the golden vector of the protocol document
        "bname": "broker-a",
        "commitLogOffset": str(stored.physical_offset),
        "msgId": KEY,
        "offsetMsgId": sent.ext["msgId"],
        "topic": HALF,
        "transactionId": KEY,
        "tranStateTableOffset": "0",
    }
    asked_for = decode_record(check.body)
    assert (asked_for.topic, asked_for.queue_id, asked_for.body) == ("TopicTest", 2, b"paid")
    assert decode_properties(asked_for.properties)["PGROUP"] == "PG_T"
    assert decode_properties(asked_for.properties)["TRANSACTION_CHECK_TIMES"] == "1"
    answer = client.call(37, claim(sent, COMMIT, fromTransactionCheck=True))
    assert answer.code == 0
    await asyncio.sleep(60)
    assert len(_checks(client.conn)) == 1


async def test_nobody_is_asked_too_early(serve, group) -> None:
    client = Client(serve())
    client.call(34, None, HEARTBEAT)
    await asyncio.sleep(25)
    client.call(310, half(), b"young")
    client.call(310, half(more="CHECK_IMMUNITY_TIME_IN_SECONDS\x0140\x02"), b"immune")
    group.now_ms = int(START_S * 1000) + 25_000
    client.call(310, half(), b"younger")
    await asyncio.sleep(6)
    bodies = [decode_record(check.body).body for check in _checks(client.conn)]
    assert bodies == [b"young"]


@pytest.mark.parametrize("jump_s", [3600, -3600], ids=["forward", "back"])
async def test_a_clock_that_jumps_asks_nobody_too_early_or_an_hour_late(
    serve, group, jump_s
) -> None:
    """Store times follow the wall clock, and never fall: neither tells an age after a jump."""
    wall = Jumping()
    client = Client(serve(clock=wall))
    client.call(34, None, HEARTBEAT)
    await asyncio.sleep(25)
    group.now_ms = int(wall() * 1000)
    client.call(310, half(), b"before")
    wall.ahead_s = jump_s
    group.now_ms = max(group.now_ms, int(wall() * 1000))
    client.call(310, half(), b"after")
    await asyncio.sleep(5.5)  # a round, 5 s after both
    assert _checks(client.conn) == []
    await asyncio.sleep(31)  # the next one
    bodies = [decode_record(check.body).body for check in _checks(client.conn)]
    assert bodies == [b"before", b"after"]


async def test_only_producers_of_the_group_are_asked_each_in_turn(serve, group) -> None:
    processor = serve()
    one, two, other = Client(processor), Client(processor), Client(processor)
    one.call(34, None, HEARTBEAT)
    two.call(34, None, HEARTBEAT)
    other.call(34, None, HEARTBEAT.replace(b"PG_T", b"PG_U"))
    for number in range(4):
        one.call(310, half(key=f"{number:032}"), b"x")
    await asyncio.sleep(31)
    assert [len(_checks(client.conn)) for client in (one, two, other)] == [2, 2, 0]


async def test_who_may_not_send_to_the_topic_is_not_asked(serve, group) -> None:
    processor = serve()
    one, two = Client(processor), Client(processor)
    one.call(34, None, HEARTBEAT)
    two.call(34, None, HEARTBEAT)
    asked: set[str] = set()
    processor._rounds._may_be_asked = lambda conn, topic: (asked.add(topic), conn is two.conn)[1]
    for number in range(4):
        one.call(310, half(key=f"{number:032}"), b"x")
    await asyncio.sleep(31)
    assert [len(_checks(client.conn)) for client in (one, two)] == [0, 4]
    assert asked == {half()["b"]}


async def test_many_large_half_messages_are_asked_for_in_slices(serve) -> None:
    client = Client(serve())
    client.call(34, None, HEARTBEAT)
    for number in range(5):
        client.call(310, half(key=f"{number:032}"), bytes(600_000))
    await asyncio.sleep(30.01)
    assert len(_checks(client.conn)) == 2
    await asyncio.sleep(1)
    assert len(_checks(client.conn)) == 5


async def test_after_the_last_check_the_message_is_put_where_people_find_it(serve, group) -> None:
    client = Client(serve(checks_max=2))
    client.call(34, None, HEARTBEAT)
    sent = client.call(310, half(), b"whose?")
    await asyncio.sleep(5 * 30)
    assert len(_checks(client.conn)) == 2
    (given_up,) = read_queue(group.messages, "TRANS_CHECK_MAX_TIME_TOPIC")
    assert given_up.body == b"whose?"
    assert decode_properties(given_up.properties)["REAL_TOPIC"] == "TopicTest"
    assert client.call(37, claim(sent, COMMIT)).remark is not None
    assert read_queue(group.messages, "TopicTest", 2) == []
    assert len(client.processor.transactions.ledger) == 0


async def test_a_check_counts_only_when_somebody_was_asked(serve) -> None:
    client = Client(serve(checks_max=2))
    client.call(310, half(), b"x")
    await asyncio.sleep(10 * 30)
    counters = client.processor.transactions.counters
    assert (counters.checks, counters.unasked) == (0, 10)
    client.call(34, None, HEARTBEAT)
    await asyncio.sleep(30)
    assert len(_checks(client.conn)) == 1


async def test_a_message_whose_producer_never_comes_is_given_up_in_the_end(serve, group) -> None:
    client = Client(serve(rounds_max=3))
    client.call(310, half(), b"x")
    await asyncio.sleep(6 * 30)
    assert len(read_queue(group.messages, "TRANS_CHECK_MAX_TIME_TOPIC")) == 1


async def test_metrics(serve) -> None:
    client = Client(serve())
    client.call(37, claim(client.call(310, half(), b"x"), COMMIT))
    client.call(310, half(), b"x")
    collector = TransactionCollector(lambda: client.processor.transactions)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in collector.collect()
        for sample in family.samples
    }
    assert found["gantry_broker_transactions_open",] == 1
    assert found["gantry_broker_transactions_ended_total", "commit"] == 1
    assert {one.name for one in TransactionCollector(lambda: None).collect()} == {
        one.name for one in collector.collect()
    }


# The next master


async def test_the_next_master_knows_what_is_open_and_how_often_it_was_asked_for(
    serve, group
) -> None:
    client = Client(serve(checks_max=3))
    client.call(34, None, HEARTBEAT)
    sent = [client.call(310, half(key=f"{n:032}"), b"x") for n in range(4)]
    client.call(37, claim(sent[1], COMMIT))
    await asyncio.sleep(61)
    client.call(37, claim(sent[2], ROLLBACK))
    successor = Client(serve(checks_max=3))
    await _read_log()
    ledger = successor.processor.transactions.ledger
    assert {row.offset: row.checks for row in ledger.table().rows} == {0: 2, 3: 2}
    for outcome in (COMMIT, ROLLBACK):  # as decided before
        assert "has ended" in successor.call(37, claim(sent[1], outcome)).remark
        assert "has ended" in successor.call(37, claim(sent[2], outcome)).remark
    assert successor.call(37, claim(sent[0], COMMIT)).code == 0
    assert len(read_queue(group.messages, "TopicTest", 2)) == 2


async def test_the_next_master_reads_from_the_newest_table_on(serve, group) -> None:
    client = Client(serve())
    for number in range(20):
        sent = client.call(310, half(key=f"{number:032}"), b"x")
        if number != 5:
            client.call(37, claim(sent, COMMIT))
    await asyncio.sleep(31)
    offsets = group.store.committed
    assert offsets.query(GROUP, HALF, 0) == 5
    assert offsets.query(GROUP, OPS, 0) == 19
    get, read = group.messages.get, []

    def counting(topic, queue_id, offset, *rest):
        read.append((topic, offset))
        return get(topic, queue_id, offset, *rest)

    group.messages.get = counting
    successor = serve()
    await _read_log()
    assert [row.offset for row in successor.transactions.ledger.table().rows] == [5]
    assert set(read) == {(OPS, 19)}  # the table alone, looked for and passed over


async def test_a_table_counts_once_it_is_confirmed(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    client.call(37, claim(sent, COMMIT))
    group.holding = True
    await asyncio.sleep(31)
    group.give_up()
    assert group.store.committed.query(GROUP, HALF, 0) is None
    group.holding = False
    await asyncio.sleep(30)
    assert group.store.committed.query(GROUP, HALF, 0) == 1


async def test_nothing_is_written_while_nothing_happens(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    client.call(37, claim(sent, ROLLBACK))
    await asyncio.sleep(31)
    ops = len(read_queue(group.messages, OPS))
    await asyncio.sleep(300)
    assert len(read_queue(group.messages, OPS)) == ops == 2
    assert client.processor.transactions.counters.tables == 1


def _cut_behind_the_op_record(client, group) -> RemotingCommand:
    """A commit of which the next master finds the op record only; returns the half's answer."""
    sent = client.call(310, half(), b"paid")
    group.holding = True
    client.ask(37, claim(sent, COMMIT))
    _op, message = group.appended[-1]
    group.messages.drop_mastership()
    group.messages.truncate(message.physical_offset)
    group.messages.take_mastership()
    group.holding = False
    return sent


async def test_what_was_sent_behind_a_cut_is_not_taken_for_the_message_that_it_took(
    serve, group
) -> None:
    _cut_behind_the_op_record(Client(serve()), group)
    stores.put(group.messages, stores.message("TopicTest", 2, b"another"))
    stores.confirm(group.messages)
    serve()
    await _read_log()
    bodies = [record.body for record in read_queue(group.messages, "TopicTest", 2)]
    assert bodies == [b"another", b"paid"]


async def test_a_message_that_a_cut_took_is_appended_once_it_may_be(serve, group) -> None:
    _cut_behind_the_op_record(Client(serve()), group)
    group.confirm()
    append, refusals = group.append, [ResponseCode.SERVICE_NOT_AVAILABLE] * 3

    def refusing(records, done) -> None:
        if refusals:
            done(SendOutcome(refusals.pop(), "not yet"))
        else:
            append(records, done)

    group.append = group.store.append = refusing
    serve()
    await asyncio.sleep(1)
    bodies = [record.body for record in read_queue(group.messages, "TopicTest", 2)]
    assert (bodies, refusals) == ([b"paid"], [])


async def test_a_cut_behind_the_op_record_does_not_lose_the_message(serve, group) -> None:
    client = Client(serve())
    sent = _cut_behind_the_op_record(client, group)
    successor = Client(serve())
    asked, answer = successor.ask(37, claim(sent, ROLLBACK))
    assert answer is None  # held: what the old master wrote is not confirmed yet
    group.confirm()
    await _read_log()
    assert "has ended" in successor.conn.answer_to(asked).remark
    assert [record.body for record in read_queue(group.messages, "TopicTest", 2)] == [b"paid"]
    serve()  # and a third one finds nothing to do
    await _read_log()
    assert [record.body for record in read_queue(group.messages, "TopicTest", 2)] == [b"paid"]


async def test_a_cut_before_the_op_record_leaves_the_transaction_open(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"paid")
    group.holding = True
    client.ask(37, claim(sent, COMMIT))
    op, _message = group.appended[-1]
    group.messages.drop_mastership()
    group.messages.truncate(op.physical_offset)
    group.messages.take_mastership()
    group.holding = False
    successor = Client(serve())
    await _read_log()
    assert successor.call(37, claim(sent, ROLLBACK)).code == 0
    assert read_queue(group.messages, "TopicTest", 2) == []


async def test_a_log_that_lost_op_records_serves_everything_but_transactions(serve, group) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    group.store.committed.commit(GROUP, OPS, 0, 0)  # as if a table had been confirmed
    successor = Client(serve())
    refused = successor.call(37, claim(sent, COMMIT))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "Restore this broker" in refused.remark
    assert successor.call(310, half(), b"x").code == ResponseCode.SYSTEM_ERROR
    assert successor.call(310, half(f=0, i="TAGS\x01a\x02"), b"x").code == 0


def _unreadable(group, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """While the list is not empty, records of transactions do not read."""
    trouble = [True]
    read = group.store.read

    def sometimes(wanted, done) -> None:
        if trouble and getattr(wanted, "topic", "") in (HALF, OPS):
            done(Refusal(ResponseCode.SYSTEM_BUSY, "the disk is too slow, try again later"))
        else:
            read(wanted, done)

    monkeypatch.setattr(group.store, "read", sometimes)
    return trouble


async def test_a_read_that_failed_once_stops_transactions_for_a_moment(
    serve, group, monkeypatch
) -> None:
    client = Client(serve())
    first = client.call(310, half(), b"x")
    ended = client.call(310, half(), b"y")
    client.call(37, claim(ended, COMMIT))
    trouble = _unreadable(group, monkeypatch)
    assert client.call(310, half(), b"z").code == 0, "and it is not read back"
    refused = client.call(310, half(), b"not now")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "too slow" in refused.remark
    assert client.call(37, claim(first, COMMIT)).code == ResponseCode.SYSTEM_ERROR
    await asyncio.sleep(0.6)
    transactions = client.processor.transactions
    assert transactions.failure, "it was tried, and is still so"
    trouble.clear()
    await asyncio.sleep(1.1)
    assert not transactions.failure
    assert transactions.counters.failures == 2
    assert len(transactions.ledger) == 2
    assert client.call(37, claim(first, COMMIT)).code == 0
    assert "ended" in client.call(37, claim(ended, ROLLBACK)).remark
    bodies = [record.body for record in read_queue(group.messages, "TopicTest", 2)]
    assert bodies == [b"y", b"x"], "each once"


async def test_a_read_that_fails_for_long_is_tried_every_minute(serve, group, monkeypatch) -> None:
    client = Client(serve())
    client.call(310, half(), b"x")
    _unreadable(group, monkeypatch)
    client.call(310, half(), b"y")
    await asyncio.sleep(3600)
    assert 60 <= client.processor.transactions.counters.failures <= 70


async def test_what_is_under_way_when_reading_fails_is_waited_for(
    serve, group, monkeypatch
) -> None:
    client = Client(serve())
    sent = client.call(310, half(), b"x")
    group.holding = True
    asked, _ = client.ask(37, claim(sent, COMMIT))  # appended, and not confirmed yet
    trouble = _unreadable(group, monkeypatch)
    client.processor.transactions._fail(GantryError("as if a read had failed"))
    trouble.clear()
    await asyncio.sleep(0.6)
    _, answer = client.ask(37, claim(sent, ROLLBACK))
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    group.holding = False
    group.confirm()
    await asyncio.sleep(1)
    assert client.conn.answer_to(asked).code == 0
    assert "ended" in client.call(37, claim(sent, ROLLBACK)).remark
    assert len(read_queue(group.messages, "TopicTest", 2)) == 1
