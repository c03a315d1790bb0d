"""A store behind a link: what is answered when it is lost, overloaded, or says what it may not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gantry_broker.remote import messages as wire
from gantry_broker.remote import store as remote
from gantry_broker.remote.session import UNANSWERED_MAX, Session
from gantry_broker.remote.store import RemoteStore
from gantry_broker.store.contract import (
    GetResult,
    QueueKey,
    QueueRead,
    ReadLimits,
    Refusal,
    SendOutcome,
)
from gantry_broker.store.tables.names import OFFSETS_TOPIC
from gantry_broker.store.tables.offsets import rows_record
from gantry_broker.store.tables.resets import is_mark, owner_of, put_reset
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import WireError
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Offset
from support.remote_group import Host, RemoteGroup

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
    behind.remote.append([message()], outcomes.append)
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
        behind.remote.append([message()], outcomes.append)
    behind.remote.read(READ, others.append)
    behind.cut()
    assert [(one.code, one.stored) for one in outcomes] == [
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, [])
    ] * 3
    refusals = [one for one in others if isinstance(one, Refusal)]
    assert [one.code for one in refusals] == [ResponseCode.SERVICE_NOT_AVAILABLE]
    assert behind.remote.appending_bytes == 0


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
    behind.remote.append([message()], outcomes.append)
    behind.remote.read(READ, results.append)
    assert [outcomes[0].code, results[0].code] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    assert len(behind.heard) == heard


def test_what_is_under_way_is_bounded(behind: RemoteGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "APPENDING_BYTES_MAX", 1000)
    outcomes: list[SendOutcome] = []
    results: list[GetResult | Refusal] = []
    behind.held_answers = []
    behind.remote.append([message(bytes(2000))], outcomes.append)  # one always goes out
    behind.remote.append([message()], outcomes.append)
    monkeypatch.setattr(remote, "WAITING_MAX", 1)
    behind.remote.read(READ, results.append)
    behind.remote.read(READ, results.append)
    assert [one.code for one in outcomes] == [ResponseCode.SYSTEM_BUSY]
    assert [one.code for one in results] == [ResponseCode.SYSTEM_BUSY]
    assert behind.remote.refused == 2
    behind.release()
    assert [one.code for one in outcomes] == [ResponseCode.SYSTEM_BUSY, 0]


def test_no_more_sends_are_under_way_than_the_store_takes(
    behind: RemoteGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the link of who has more."""
    monkeypatch.setattr(remote, "WAITING_MAX", 2)
    outcomes: list[SendOutcome] = []
    behind.held_answers = []
    for _ in range(3):
        behind.remote.append([message()], outcomes.append)
    assert [one.code for one in outcomes] == [ResponseCode.SYSTEM_BUSY]
    assert 2 * remote.WAITING_MAX <= UNANSWERED_MAX, "reads are as many"
    behind.session.unanswered = UNANSWERED_MAX
    behind.session.received(wire.Ping())
    behind.session.unanswered += 1
    with pytest.raises(WireError, match="wait for an answer"):
        behind.session.received(wire.Ping())


def test_the_store_checks_every_append_whatever_the_front_believes(behind: RemoteGroup) -> None:
    behind.refusal = Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    found = send_in_one_turn(behind, [message(b"a"), message(b"b")])
    refused = [(one.code, one.stored) for outcomes in found.values() for one in outcomes]
    assert refused == [(ResponseCode.SYSTEM_ERROR, [])] * 2


def test_what_only_the_master_writes_is_not_taken_from_a_front(behind: RemoteGroup) -> None:
    outcomes: list[SendOutcome] = []
    behind.remote.append([rows_record([("g", "TopicTest", 0, 5)])], outcomes.append)
    assert [one.code for one in outcomes] == [ResponseCode.NO_PERMISSION]
    assert behind.appended == []


def frames_of(group: RemoteGroup) -> list[list[bytes]]:
    """The bodies of the sends that the store heard, by frame."""
    frames = [one for one in group.heard if isinstance(one, wire.AppendRecords)]
    return [[record.body for record in frame.records] for frame in frames]


def send_in_one_turn(
    group: RemoteGroup, records: list[MessageRecord]
) -> dict[bytes, list[SendOutcome]]:
    """The outcomes by body."""
    found: dict[bytes, list[SendOutcome]] = {record.body: [] for record in records}
    group.turn, heard = [], len(group.heard)
    for record in records:
        group.remote.append([record], found[record.body].append)
    assert not any(isinstance(one, wire.AppendRecords) for one in group.heard[heard:])
    group.end_turn()
    return found


def test_the_sends_of_one_turn_leave_in_one_frame_and_are_stored_in_their_order(
    behind: RemoteGroup,
) -> None:
    bodies = [b"%d" % number for number in range(40)]
    found = send_in_one_turn(behind, [message(body) for body in bodies])
    assert (frames_of(behind), [len(one) for one in behind.appended]) == ([bodies], [40])
    for number, outcomes in enumerate(found.values()):
        ((code, places),) = [(one.code, one.stored) for one in outcomes]
        assert (code, [at.queue_offset for at in places]) == (0, [number])
    assert (behind.remote.appending_bytes, behind.session.unanswered) == (0, 0)
    behind.remote.append([message(b"next")], lambda outcome: None)
    assert frames_of(behind)[1:] == [[b"next"]]


@pytest.mark.parametrize(
    ("name", "most"), [("GATHERED_MAX", 3), ("GATHERED_BYTES", 3 * (1 + remote._AROUND_BYTES))]
)
def test_a_frame_has_a_bounded_size(
    behind: RemoteGroup, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(remote, name, most)
    bodies = [b"%d" % number for number in range(8)]
    found = send_in_one_turn(behind, [message(body) for body in bodies])
    assert frames_of(behind) == [bodies[:3], bodies[3:6], bodies[6:]]
    assert {one.code for outcomes in found.values() for one in outcomes} == {0}
    large = send_in_one_turn(behind, [message(bytes(most)), message(b"y")])
    assert [len(outcomes) for outcomes in large.values()] == [1, 1], "one always goes out"


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        pytest.param({"properties": "a\0"}, ResponseCode.MESSAGE_ILLEGAL, "zero byte", id="bytes"),
        pytest.param({"topic": OFFSETS_TOPIC}, ResponseCode.NO_PERMISSION, "forbidden", id="topic"),
    ],
)
def test_a_send_that_cannot_be_stored_is_refused_alone(
    behind: RemoteGroup, bad: dict[str, str], code: ResponseCode, words: str
) -> None:
    records = [message(b"%d" % number) for number in range(3)]
    records[1] = MessageRecord(**{"topic": "TopicTest", "body": b"1", **bad})
    found = send_in_one_turn(behind, records)
    assert [[one.code for one in outcomes] for outcomes in found.values()] == [[0], [code], [0]]
    assert words in (found[b"1"][0].remark or "")
    assert [[one.body for one in records] for records in behind.appended] == [[b"0"], [b"2"]]
    assert (behind.remote.appending_bytes, behind.session.unanswered) == (0, 0)


def test_sends_that_had_not_left_when_the_link_was_lost_do_not_leave(behind: RemoteGroup) -> None:
    outcomes: list[SendOutcome] = []
    behind.turn = []
    behind.remote.append([message()], outcomes.append)
    behind.remote.lost()
    behind.remote.append([message()], outcomes.append)
    assert [one.code for one in outcomes] == [
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SERVICE_NOT_AVAILABLE,
    ]
    assert len(behind.turn) == 1, "the link that is gone takes it"


def test_many_queues_are_told_of_in_pieces(behind: RemoteGroup) -> None:
    told: list[int] = []
    behind.remote.subscribe(lambda confirm, queues: told.append(len(queues)))
    behind.session._confirmed(Offset(1 << 40), [("T" * 255, number) for number in range(5000)])
    assert told == [2000, 2000, 1000]


def test_who_waits_for_a_topic_hears_of_no_other(behind: RemoteGroup) -> None:
    told: list[Offset] = []
    leave = behind.remote.subscribe(lambda confirm, queues: told.append(confirm), {"U"})
    behind.session._confirmed(Offset(1 << 40), [("T", 0)])
    behind.session._confirmed(Offset(1 << 41), [("T", 0), ("U", 0)])
    assert told == [1 << 41]
    leave()
    behind.session._confirmed(Offset(1 << 42), [("U", 0)])
    assert told == [1 << 41]


def reset(group: RemoteGroup, name: str, *, due: bool = True) -> None:
    """The master writes a reset, as it does when an administrator asks for one."""
    put_reset(group.local.committed, name, "TopicTest", 0, 3, due=due)
    records, _ = group.local.committed.take_records()
    group.append(records, lambda outcome: None)


def resets(store: RemoteStore) -> list[str]:
    """The groups that have one to follow, and nothing else that is known of offsets."""
    rows = store.committed.all()
    assert all(is_mark(row[0]) for row in rows)
    return sorted(owner_of(row[0]) for row in rows)


def newcomer(group: RemoteGroup) -> RemoteStore:
    """Another front that begins now."""
    found = RemoteStore(lambda request: None, lambda make: None)

    def told(message: wire.FromStore) -> None:
        if not isinstance(message, wire.Welcome):
            found.received(message)

    Session(Host(group), told).open()
    return found


def test_of_offsets_a_front_is_told_due_resets_alone(behind: RemoteGroup) -> None:
    behind.append([rows_record([("g", "TopicTest", 0, 5)])], lambda outcome: None)
    behind.heard.clear()
    told: list[list[QueueKey]] = []
    behind.remote.subscribe(lambda confirm, queues: told.append(list(queues)))
    behind.append([rows_record([("g", "TopicTest", 0, 6)])], lambda outcome: None)
    assert (resets(behind.remote), told) == ([], []), "nobody here asks for a commit"
    reset(behind, "g")
    assert (resets(behind.remote), told) == (["g"], [[(OFFSETS_TOPIC, 0)]])
    late = newcomer(behind)
    assert (resets(late), late.topics.all()) == (["g"], behind.remote.topics.all())
    reset(behind, "g", due=False)
    assert resets(behind.remote) == resets(late) == []


def test_a_front_that_begins_is_told_of_a_reset_that_is_not_confirmed_yet(
    behind: RemoteGroup,
) -> None:
    """The reset may have been answered by the master before this one."""
    behind.holding = True
    reset(behind, "g")
    assert resets(behind.remote) == []
    assert resets(newcomer(behind)) == ["g"]


def test_resets_end_with_their_topic(behind: RemoteGroup) -> None:
    reset(behind, "g")
    behind.delete_topic("TopicTest", lambda refusal: None)
    assert resets(behind.remote) == []


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        pytest.param(
            wire.Appended(9, 1, ResponseCode.SUCCESS, None, []), "nothing was", id="append"
        ),
        pytest.param(wire.Farewell("x"), "Farewell", id="farewell"),
        pytest.param(wire.Confirmed(Offset(8), []), "fell", id="confirm falls"),
    ],
)
def test_a_store_that_says_what_it_may_not_ends_its_link(said, wrong: str) -> None:
    store = RemoteStore(lambda request: None, lambda make: None)
    store.received(wire.Confirmed(Offset(9), []))
    with pytest.raises(WireError, match=wrong):
        store.received(said)


def test_what_changes_tables_is_told_though_memory_does_not_give_it_at_once(
    behind: RemoteGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux may say of any page that it would have to wait; a change that is not told is lost."""
    waiting: list[object] = []
    behind.local.cold = cast("Any", SimpleNamespace(ask=lambda *asked: waiting.append(asked)))
    monkeypatch.setattr(behind.messages.log, "read_cached", lambda *_: None)
    behind.add_topic(TopicConfig(topic_name="Late", read_queue_nums=1))
    assert behind.remote.topics.lookup("Late") is not None
    reset(behind, "g")
    assert resets(behind.remote) == ["g"]
    assert behind.remote.topics.version == behind.messages.topics.version
    assert waiting == []


def test_nobody_is_told_anything_once_the_session_ended(behind: RemoteGroup) -> None:
    outcomes: list[SendOutcome] = []
    behind.holding = True
    behind.remote.append([message()], outcomes.append)
    behind.held_answers = []
    behind.session.end()
    behind.confirm()
    assert (outcomes, behind.held_answers) == ([], []), "the next session is another broker's"


def test_what_went_through_a_front_is_counted_at_the_store(behind: RemoteGroup) -> None:
    said = wire.Ping({"TopicTest": 3}, {"TopicTest@g": 2}, [("g", "TopicTest", 0, 5)])
    behind._asked(said)
    assert behind.host.counted == [said]
