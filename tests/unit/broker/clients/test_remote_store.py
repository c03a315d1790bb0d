"""A store behind a link: what is answered when it is lost, overloaded, or says what it may not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gantry_broker.remote import messages as wire
from gantry_broker.remote import store as remote
from gantry_broker.remote.store import RemoteStore
from gantry_broker.store.contract import (
    Appended,
    GetResult,
    Learned,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    ReadLimits,
    Refusal,
    SendOutcome,
)
from gantry_broker.store.tables.offsets import rows_record
from gantry_broker.store.tables.topics import TopicChange, change_record
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import ConnectionClosed, RecordError, WireError
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Offset
from support.remote_group import RemoteGroup

READ = QueueRead("TopicTest", 0, 0, ReadLimits(32, 1 << 20))


@pytest.fixture
def behind(tmp_path: Path):
    made = RemoteGroup(tmp_path)
    made.add_topic(TopicConfig(topic_name="TopicTest", read_queue_nums=1, write_queue_nums=1))
    yield made
    made.messages.log.close()


def message(body: bytes = b"x") -> MessageRecord:
    return MessageRecord(topic="TopicTest", body=body)


def test_nothing_is_answered_before_the_store_has_confirmed_it(behind: RemoteGroup) -> None:
    outcomes: list[SendOutcome] = []
    behind.holding = True
    behind.store.append([message()], outcomes.append)
    assert outcomes == []
    behind.confirm()
    assert [(one.code, one.stored[0].queue_offset) for one in outcomes] == [(0, 0)]
    assert behind.remote.appending_bytes == 0


def test_a_lost_link_answers_every_append_as_unknown_and_the_rest_to_try_again(
    behind: RemoteGroup,
) -> None:
    outcomes: list[SendOutcome] = []
    others: list[object] = []
    behind.held_answers = []
    for _ in range(3):
        behind.store.append([message()], outcomes.append)
    behind.store.read(READ, others.append)
    behind.store.offsets([QueueQuestion("TopicTest", 0)], others.append)
    behind.delete_topic("TopicTest", others.append)
    behind.remote.ask(request(1), others.append, 1.0)
    behind.cut()
    assert [(one.code, one.stored) for one in outcomes] == [
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, [])
    ] * 3
    refusals = [one for one in others if isinstance(one, Refusal)]
    assert [one.code for one in refusals] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 3
    assert isinstance(others[-1], ConnectionClosed)
    assert behind.remote.unknown == 3


def test_an_ended_session_reads_nothing_more(
    behind: RemoteGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind.session.end()
    read: list[object] = []
    monkeypatch.setattr(behind.local, "read", lambda wanted, done: read.append(wanted))
    behind.local.append([rows_record([("g", "TopicTest", 0, 5)])], lambda outcome: None)
    assert behind.local.committed.query("g", "TopicTest", 0) == 5
    assert read == []


def test_after_the_link_is_lost_nothing_is_sent_any_more(behind: RemoteGroup) -> None:
    outcomes: list[SendOutcome] = []
    results: list[GetResult | Refusal] = []
    behind.cut()
    heard = len(behind.heard)
    behind.store.append([message()], outcomes.append)
    behind.store.read(READ, results.append)
    assert [outcomes[0].code, results[0].code] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    assert len(behind.heard) == heard


def test_what_is_under_way_is_bounded(behind: RemoteGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "APPENDING_BYTES_MAX", 1000)
    monkeypatch.setattr(remote, "WAITING_MAX", 1)
    outcomes: list[SendOutcome] = []
    results: list[GetResult | Refusal] = []
    behind.held_answers = []
    behind.store.append([message(bytes(2000))], outcomes.append)  # one always goes out
    behind.store.append([message()], outcomes.append)
    behind.store.read(READ, results.append)
    behind.store.read(READ, results.append)
    assert [one.code for one in outcomes] == [ResponseCode.SYSTEM_BUSY]
    assert [one.code for one in results] == [ResponseCode.SYSTEM_BUSY]
    assert behind.remote.refused == 2
    behind.release()
    assert [one.code for one in outcomes] == [ResponseCode.SYSTEM_BUSY, 0]


def test_the_store_checks_every_append_whatever_the_broker_believes(behind: RemoteGroup) -> None:
    outcomes: list[SendOutcome] = []
    behind.refusal = Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    behind.store.append([message()], outcomes.append)
    assert (outcomes[0].code, outcomes[0].stored) == (ResponseCode.SYSTEM_ERROR, [])
    behind.store.committed.commit("g", "TopicTest", 0, 1)
    records, _ = behind.store.committed.take_records()
    behind.store.append(records, outcomes.append)  # a master that leaves still takes offsets
    assert outcomes[1].code == 0


def test_a_record_no_log_can_hold_is_refused_where_it_is_sent(behind: RemoteGroup) -> None:
    with pytest.raises(RecordError, match="zero byte"):
        behind.store.append([MessageRecord(topic="T", properties="a\0")], lambda outcome: None)
    assert not [one for one in behind.heard if isinstance(one, wire.AppendRecords)]


def test_questions_about_many_queues_go_in_frames_of_a_bounded_size(
    behind: RemoteGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(questions: list[QueueQuestion], done: Learned) -> None:
        done([QueueOffsets(0, one.queue_id, one.queue_id) for one in questions])

    monkeypatch.setattr(behind.local, "offsets", answer)
    learned: list[list[QueueOffsets] | Refusal] = []
    questions = [QueueQuestion("T" * 255, number) for number in range(100_000)]
    behind.store.offsets(questions, learned.append)
    (answers,) = learned
    assert not isinstance(answers, Refusal)
    assert [one.max_offset for one in answers] == list(range(100_000))
    assert max(len(wire.encode(one)) for one in behind.heard) < 1 << 20
    behind.store.offsets([], learned.append)
    assert learned[1:] == [[]]


def test_many_questions_are_refused_once(behind: RemoteGroup) -> None:
    learned: list[list[QueueOffsets] | Refusal] = []
    behind.held_answers = []
    behind.store.offsets([QueueQuestion("T", 0)] * 5000, learned.append)
    behind.cut()
    assert [one.code for one in learned if isinstance(one, Refusal)] == [
        ResponseCode.SERVICE_NOT_AVAILABLE
    ]
    assert len(learned) == 1


def test_a_batch_larger_than_a_frame_is_stored_whole(behind: RemoteGroup) -> None:
    outcomes: list[SendOutcome] = []
    records = [message(bytes(1000)) for _ in range(6000)]
    behind.store.append(records, outcomes.append)
    assert [(one.code, len(one.stored)) for one in outcomes] == [(0, 6000)]
    assert [len(one) for one in behind.appended] == [6000]
    assert len([one for one in behind.heard if isinstance(one, wire.AppendRecords)]) == 4
    with pytest.raises(RecordError, match="100000 are allowed"):
        behind.store.append([message()] * 100_001, outcomes.append)
    assert behind.remote.appending_bytes == 0


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        pytest.param([(1, True), (2, False)], "between the pieces", id="mixed"),
        pytest.param([(1, True)] * 33, "more than 32 pieces", id="endless"),
    ],
)
def test_pieces_of_an_append_are_of_one_append(
    behind: RemoteGroup, said: list[tuple[int, bool]], wrong: str
) -> None:
    *first, (number, more) = said
    for one, has_more in first:
        behind.session.received(wire.AppendRecords(one, [message()], has_more))
    with pytest.raises(WireError, match=wrong):
        behind.session.received(wire.AppendRecords(number, [message()], more))
    assert behind.appended == []


def test_many_queues_are_told_of_in_pieces(behind: RemoteGroup) -> None:
    told: list[int] = []
    behind.store.subscribe(lambda confirm, queues: told.append(len(queues)))
    behind.session._confirmed(Offset(1 << 40), [("T" * 255, number) for number in range(5000)])
    assert told == [2000, 2000, 1000]


def test_who_waits_for_a_topic_hears_of_no_other(behind: RemoteGroup) -> None:
    told: list[Offset] = []
    leave = behind.store.subscribe(lambda confirm, queues: told.append(confirm), {"U"})
    behind.session._confirmed(Offset(1 << 40), [("T", 0)])
    behind.session._confirmed(Offset(1 << 41), [("T", 0), ("U", 0)])
    assert told == [1 << 41]
    leave()
    behind.session._confirmed(Offset(1 << 42), [("U", 0)])
    assert told == [1 << 41]


def test_the_tables_of_a_second_broker_are_those_of_the_first(behind: RemoteGroup) -> None:
    behind.store.committed.commit("g", "TopicTest", 0, 5)
    records, _ = behind.store.committed.take_records()
    behind.holding = True
    behind.store.append(records, lambda outcome: None)  # known to a master, though not confirmed
    told: list[wire.FromStore] = []
    second = RemoteStore(lambda request: None)
    behind.session._send = told.append
    behind.session.open()
    for one in told[1:]:
        second.received(one)
    assert second.topics.all() == behind.store.topics.all()
    assert second.committed.query("g", "TopicTest", 0) == 5


@pytest.mark.parametrize("first", [3, 9])
def test_an_offset_that_was_told_does_not_fall_back_when_older_records_are_confirmed(
    behind: RemoteGroup, first: int
) -> None:
    """A delayed message that was delivered would be delivered again."""
    behind.holding = True
    ends = []
    for offset in (first, 5):
        behind.store.append([rows_record([("g", "TopicTest", 0, offset)])], lambda outcome: None)
        ends.append(behind.messages.log.end)
    second = RemoteStore(lambda request: None)
    told: list[wire.FromStore] = []
    behind.session._send = told.append
    behind.session.open()
    behind.messages.log.flush()
    known: list[int | None] = []
    for end in ends:
        behind.messages.dispatch(end)
        for one in told:
            if not isinstance(one, wire.Welcome):
                second.received(one)
        told.clear()
        known.append(second.committed.query("g", "TopicTest", 0))
    assert known == [5, 5]


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        pytest.param(wire.Appended(9, ResponseCode.SUCCESS, None, []), "nothing was", id="append"),
        pytest.param(wire.Farewell("x"), "Farewell", id="farewell"),
        pytest.param(wire.Confirmed(Offset(8), []), "fell", id="confirm falls"),
    ],
)
def test_a_store_that_says_what_it_may_not_ends_its_link(said, wrong: str) -> None:
    store = RemoteStore(lambda request: None)
    store.received(wire.Confirmed(Offset(9), []))
    with pytest.raises(WireError, match=wrong):
        store.received(said)


def offsets_of(group: RemoteGroup, topic: str) -> list[int]:
    """What both sides of the link know of a topic: a broker, its store, and what is written."""
    tables = (group.remote.committed, group.messages.offsets)
    rows = [*tables[0].all(), *tables[1].all(), *tables[1].applied_rows()]
    return [row[3] for row in rows if row[1] == topic]


def commit(group: RemoteGroup, offset: int, outcomes: list[SendOutcome]) -> None:
    """A consumer commits, and the broker writes it."""
    group.remote.committed.commit("g", "TopicTest", 0, offset)
    records, _ = group.remote.committed.take_records()
    group.remote.append(records, outcomes.append)


@pytest.mark.parametrize("life", ["over", "anew"])
def test_a_commit_that_crosses_the_end_of_its_topic_does_not_bring_offsets_back(
    behind: RemoteGroup, life: str
) -> None:
    """The broker has not heard of the deletion yet when it writes what was committed before."""
    outcomes: list[SendOutcome] = []
    behind.held_answers = []
    behind.delete_topic("TopicTest", lambda refusal: None)
    if life == "anew":
        behind.add_topic(TopicConfig(topic_name="TopicTest", read_queue_nums=1))
    commit(behind, 2, outcomes)
    behind.release()
    assert [one.code for one in outcomes] == [0]
    assert offsets_of(behind, "TopicTest") == []
    assert behind.session.stale_rows == 1


def test_a_commit_behind_an_end_that_is_not_confirmed_is_left_out(behind: RemoteGroup) -> None:
    outcomes: list[SendOutcome] = []
    behind.messages.offsets.end_topic("TopicTest")
    behind.messages.put([change_record(TopicChange(9, [], ["TopicTest"]))], now_ms=behind.now_ms)
    behind.remote.committed.commit("g", "Other", 0, 7)
    commit(behind, 2, outcomes)
    assert [one.code for one in outcomes] == [0]
    assert offsets_of(behind, "TopicTest") == []
    assert offsets_of(behind, "Other") == [7, 7, 7]


def test_a_commit_to_the_next_topic_of_a_name_counts(behind: RemoteGroup) -> None:
    outcomes: list[SendOutcome] = []
    behind.delete_topic("TopicTest", lambda refusal: None)
    behind.add_topic(TopicConfig(topic_name="TopicTest", read_queue_nums=1))
    commit(behind, 3, outcomes)
    assert offsets_of(behind, "TopicTest") == [3, 3, 3]


def test_a_refused_write_of_offsets_does_not_bring_back_what_ended_meanwhile(
    behind: RemoteGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[SendOutcome] = []
    commit(behind, 1, outcomes)
    waiting: list[Appended] = []
    monkeypatch.setattr(behind.local, "append", lambda records, done: waiting.append(done))
    commit(behind, 2, outcomes)
    behind.delete_topic("TopicTest", lambda refusal: None)
    waiting[0](SendOutcome(ResponseCode.SERVICE_NOT_AVAILABLE, "no longer the master"))
    assert [one.code for one in outcomes] == [0, ResponseCode.SERVICE_NOT_AVAILABLE]
    assert offsets_of(behind, "TopicTest") == []


def test_what_changes_tables_is_told_though_memory_does_not_give_it_at_once(
    behind: RemoteGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux may say of any page that it would have to wait; a change that is not told is lost."""
    waiting: list[object] = []
    behind.local.cold = cast("Any", SimpleNamespace(ask=lambda *asked: waiting.append(asked)))
    monkeypatch.setattr(behind.messages.log, "read_cached", lambda *_: None)
    behind.add_topic(TopicConfig(topic_name="Late", read_queue_nums=1))
    assert behind.remote.topics.lookup("Late") is not None
    outcomes: list[SendOutcome] = []
    behind.store.append([rows_record([("g", "Late", 0, 5)])], outcomes.append)
    assert behind.remote.committed.query("g", "Late", 0) == 5
    assert behind.remote.topics.version == behind.messages.topics.version
    assert waiting == []


def test_nobody_is_told_anything_once_the_session_ended(behind: RemoteGroup) -> None:
    outcomes: list[SendOutcome] = []
    behind.holding = True
    behind.store.append([message()], outcomes.append)
    behind.held_answers = []
    behind.session.end()
    behind.confirm()
    assert (outcomes, behind.held_answers) == ([], []), "the next session is another broker's"


def test_an_offset_that_was_not_stored_is_not_known(behind: RemoteGroup) -> None:
    behind.append_error = RecordError("no")
    record = rows_record([("g", "TopicTest", 0, 5)])
    outcomes: list[SendOutcome] = []
    behind.store.append([record], outcomes.append)
    assert [one.stored for one in outcomes] == [[]]
    assert behind.local.committed.query("g", "TopicTest", 0) is None
