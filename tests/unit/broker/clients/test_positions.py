"""Consumer offsets (14, 15), queue positions (29 to 32), single messages (33)."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.store.contract import Refusal
from gantry_broker.store.tables.names import OFFSETS_TOPIC
from gantry_broker.store.tables.offsets import decode_rows
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import RecordError
from gantry_protocol.records import decode_record
from support import stores
from support.group_view import FakeGroup
from support.patience import PATIENCE_S

QUEUE: dict[str, object] = {"topic": "TopicTest", "queueId": 1}
WHO: dict[str, object] = {"consumerGroup": "g", **QUEUE}


def _fill(group: FakeGroup, *times_ms: int, queue_id: int = 1) -> None:
    for now_ms in times_ms:
        stores.put(group.messages, stores.message("TopicTest", queue_id), now_ms=now_ms)
    stores.confirm(group.messages)


def _written(group: FakeGroup) -> list[tuple[str, str, int, int]]:
    return [
        row
        for records in group.appended
        for record in records
        if record.topic == OFFSETS_TOPIC
        for row in decode_rows(record.body)
    ]


def _commit(client, offset: int, **changes: object) -> None:
    """As nearly all clients do, without waiting for an answer."""
    client.ask(15, {**WHO, "commitOffset": offset, **changes}, oneway=True)


async def _until(condition) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantry_broker.clients.offsets.WRITE_INTERVAL_S", 0.001)
    monkeypatch.setattr("gantry_broker.clients.offsets.GATHER_S", 0.001)


async def test_a_commit_is_answered_by_the_next_query_and_may_go_back(client) -> None:
    for offset in (5, 3, 0):
        _commit(client, offset)
        answer = client.call(14, WHO)
        assert (answer.code, answer.ext) == (0, {"offset": str(offset)})
    assert client.call(14, {**WHO, "consumerGroup": "other", "setZeroIfNotFound": False}).code == 22


@pytest.mark.parametrize(
    ("changes", "messages", "code"),
    [
        pytest.param({}, 0, 0, id="empty queue"),
        pytest.param({}, 3, 0, id="young queue"),
        pytest.param({"setZeroIfNotFound": True}, 3, 0, id="said so"),
        pytest.param({"setZeroIfNotFound": False}, 3, 22, id="asked not to"),
        pytest.param({"topic": "Nope"}, 0, 22, id="unknown topic"),
        pytest.param({"queueId": 4}, 0, 22, id="unknown queue"),
        pytest.param({"queueId": -1}, 0, 22, id="negative queue"),
    ],
)
async def test_a_group_without_an_offset(client, group, changes, messages, code) -> None:
    _fill(group, *[1000] * messages)
    answer = client.call(14, {**WHO, **changes})
    assert answer.code == code
    assert (answer.ext or {}).get("offset") == ("0" if code == 0 else None)


async def test_an_old_queue_lets_the_client_choose(client, group, monkeypatch) -> None:
    monkeypatch.setattr("gantry_broker.clients.offsets._YOUNG_QUEUE_BYTES", 300)
    _fill(group, *[1000] * 10)
    assert client.call(14, WHO).code == 22


async def test_a_queue_that_does_not_begin_at_zero_lets_the_client_choose(client, group) -> None:
    _fill(group, 1000, 1000)
    queue = group.messages._queues.get(("TopicTest", 1))
    assert queue is not None
    queue.hide_below(1)
    assert client.call(14, WHO).code == 22


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "Nope"}, 17),
        ({"queueId": 4}, 29),
        ({"queueId": -1}, 29),
        ({"commitOffset": -1}, 29),
    ],
)
async def test_commits_that_are_refused(client, group, changes, code) -> None:
    assert client.call(15, {**WHO, "commitOffset": 1, **changes}).code == code
    assert not group.store.committed.is_dirty


async def test_commits_go_to_the_log_together(client, group) -> None:
    for queue_id in range(4):
        for offset in range(5):
            _commit(client, offset, queueId=queue_id)
    assert _written(group) == []
    await _until(lambda: _written(group))
    assert _written(group) == [("g", "TopicTest", queue_id, 4) for queue_id in range(4)]
    assert len(group.appended) == 1
    (record,) = group.appended[0]
    assert record.store_host == group.store_host
    await asyncio.sleep(0.01)
    assert len(group.appended) == 1, "nothing more to write"


async def test_a_commit_is_answered_when_it_is_confirmed(client, group) -> None:
    group.holding = True
    asked, answer = client.ask(15, {**WHO, "commitOffset": 5})
    assert answer is None
    await _until(lambda: group.appended)
    assert client.conn.replies == [], "a kill would take it back"
    group.confirm()
    assert client.conn.answer_to(asked).code == 0
    assert client.call(15, {**WHO, "commitOffset": 5}).code == 0, "it is confirmed already"
    assert len(group.appended) == 1


async def test_commits_that_are_waited_for_share_a_write(client, group) -> None:
    asked = [
        client.ask(15, {**WHO, "queueId": queue_id, "commitOffset": 5})[0] for queue_id in range(4)
    ]
    await _until(lambda: len(client.conn.replies) == 4)
    assert {client.conn.answer_to(one).code for one in asked} == {0}
    assert len(group.appended) == 1


async def test_a_commit_that_comes_during_a_write_is_answered_by_the_next(client, group) -> None:
    group.holding = True
    first, _ = client.ask(15, {**WHO, "commitOffset": 1})
    await _until(lambda: group.appended)
    second, _ = client.ask(15, {**WHO, "commitOffset": 2})
    again, _ = client.ask(15, {**WHO, "commitOffset": 2})
    group.confirm()
    assert [asked for asked, _ in client.conn.replies] == [first]
    await _until(lambda: len(group.appended) == 2)
    group.confirm()
    assert client.conn.answer_to(second).code == client.conn.answer_to(again).code == 0


@pytest.mark.parametrize("spoil", ["unconfirmed", "refused", "closed", "no record"])
async def test_a_commit_that_may_not_last_is_not_answered_0(
    client, group, processor, spoil: str
) -> None:
    group.holding = True
    if spoil == "refused":
        group.refusal = Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    if spoil == "no record":
        group.append_error = RecordError("too large")
    asked, answer = client.ask(15, {**WHO, "commitOffset": 5})
    assert answer is None
    if spoil == "unconfirmed":
        await _until(lambda: group.appended)
        group.give_up()
    if spoil == "closed":
        processor.close()
    await _until(lambda: client.conn.replies)
    assert client.conn.answer_to(asked).code != 0
    group.refusal = group.append_error = None
    assert client.call(14, WHO).ext == {"offset": "5"}, "it is known here, and tried again"


async def test_writes_that_are_refused_are_tried_again_at_growing_intervals(
    client, group, processor, monkeypatch
) -> None:
    monkeypatch.setattr("gantry_broker.clients.offsets.RETRY_MAX_S", 0.004)
    group.append_error = RecordError("no")
    _commit(client, 5)
    await _until(lambda: processor.commits_failed >= 4)
    group.append_error = None
    await _until(lambda: _written(group))


async def test_who_waits_for_a_commit_does_not_hurry_the_next_try(
    client, group, processor, monkeypatch
) -> None:
    for name in ("WRITE_INTERVAL_S", "RETRY_MAX_S"):
        monkeypatch.setattr(f"gantry_broker.clients.offsets.{name}", 1000.0)
    group.append_error = RecordError("no")
    client.ask(15, {**WHO, "commitOffset": 5})
    await _until(lambda: processor.commits_failed == 1)
    group.append_error = None
    client.ask(15, {**WHO, "commitOffset": 6})
    await asyncio.sleep(0.05)  # 50 times as long as commits that are waited for gather here
    assert not _written(group)


@pytest.mark.parametrize("was_stored", [True, False])
async def test_a_commit_that_is_written_again_ends_with_the_last_record_of_it(
    client, group, *, was_stored: bool
) -> None:
    """The table waits for the records that are in the log, and for no others."""
    group.holding = True
    if not was_stored:
        group.append_error = RecordError("no")
    _commit(client, 5)
    await _until(lambda: group.appended if was_stored else client.processor.commits_failed)
    if was_stored:
        group.give_up()
    group.append_error = None
    await _until(lambda: len(group.appended) == 1 + was_stored)
    (stored, _), *_ = group._held
    if was_stored:
        stores.confirm(group.messages, stored[0].offset)
        assert group.store.committed._pending == {("g", "TopicTest", 1): 5}
    group.confirm()
    await _until(lambda: not group.store.committed._pending)


async def test_a_commit_no_record_can_carry_keeps_nobody_else_from_the_log(client, group) -> None:
    """It cannot come through a door any more; what is in memory must not stop the others."""
    group.store.committed.commit("x" * 5_500_000, "TopicTest", 1, 1)
    for number in range(500):
        group.store.committed.commit(f"{number}{'y' * 9000}", "TopicTest", 1, number)
    _commit(client, 7)
    await _until(lambda: ("g", "TopicTest", 1, 7) in _written(group))
    assert len(_written(group)) == 501
    assert group.store.committed.unwritable == 1
    assert not group.store.committed.is_dirty


async def test_one_write_at_a_time_and_what_failed_is_written_again(client, group) -> None:
    group.holding = True
    _commit(client, 1)
    await _until(lambda: group.appended)
    _commit(client, 2)
    await asyncio.sleep(0.01)
    assert len(group.appended) == 1
    group.give_up()
    await _until(lambda: len(group.appended) == 2)
    assert _written(group)[-1] == ("g", "TopicTest", 1, 2)
    group.confirm()
    assert not group.store.committed.is_dirty
    assert client.call(14, WHO).ext == {"offset": "2"}


async def test_an_offset_nobody_confirmed_is_written_again(client, group) -> None:
    group.holding = True
    _commit(client, 1)
    await _until(lambda: group.appended)
    group.give_up()
    await _until(lambda: len(group.appended) == 2)
    assert _written(group) == [("g", "TopicTest", 1, 1)] * 2


async def test_who_may_not_write_keeps_the_offsets_for_later(client, group) -> None:
    group.refusal = Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    _commit(client, 7)
    await asyncio.sleep(0.01)
    assert _written(group) == []
    assert client.call(14, WHO).ext == {"offset": "7"}
    group.refusal = None
    await _until(lambda: _written(group))


async def test_leaving_writes_at_once_even_when_sends_are_refused(client, group, processor) -> None:
    done: list[bool] = []
    _commit(client, 7)
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "leaving")
    group.holding = True
    processor.flush_offsets(lambda: done.append(True))
    assert _written(group) == [("g", "TopicTest", 1, 7)]
    assert done == []
    group.confirm()
    assert done == [True]
    processor.flush_offsets(lambda: done.append(False))
    assert done == [True, False], "nothing to write is done at once"


async def test_leaving_during_a_write_waits_for_the_next_one(client, group, processor) -> None:
    done: list[bool] = []
    group.holding = True
    _commit(client, 1)
    processor.flush_offsets(lambda: done.append(True))
    _commit(client, 2)
    processor.flush_offsets(lambda: done.append(True))
    group.confirm()
    assert done == [True]
    assert _written(group)[-1] == ("g", "TopicTest", 1, 2)
    group.confirm()
    assert done == [True, True]


@pytest.mark.parametrize(
    ("code", "ext", "expected"),
    [
        pytest.param(30, {}, {"offset": "3"}, id="max"),
        pytest.param(30, {"committed": False}, {"offset": "3"}, id="max, uncommitted asked"),
        pytest.param(31, {}, {"offset": "0"}, id="min"),
        pytest.param(32, {}, {"timestamp": "100"}, id="earliest"),
        pytest.param(30, {"topic": "Nope"}, {"offset": "0"}, id="max of nothing"),
        pytest.param(31, {"topic": "Nope"}, {"offset": "0"}, id="min of nothing"),
        pytest.param(32, {"topic": "Nope"}, {"timestamp": "-1"}, id="earliest of nothing"),
        pytest.param(29, {"timestamp": 200}, {"offset": "1"}, id="time"),
        pytest.param(29, {"timestamp": 201}, {"offset": "2"}, id="between"),
        pytest.param(29, {"timestamp": 999}, {"offset": "3"}, id="after all"),
        pytest.param(
            29, {"timestamp": 999, "boundaryType": "UPPER"}, {"offset": "2"}, id="upper, after all"
        ),
        pytest.param(29, {"timestamp": 200, "boundaryType": "upper"}, {"offset": "1"}, id="upper"),
        pytest.param(29, {"timestamp": 1, "topic": "Nope"}, {"offset": "0"}, id="time of nothing"),
    ],
)
async def test_queue_positions(client, group, code, ext, expected) -> None:
    _fill_in_order(group)
    stores.put(group.messages, stores.message("TopicTest", 1))  # not confirmed
    answer = client.call(code, {**QUEUE, **ext})
    assert (answer.code, answer.ext) == (0, expected)


def _fill_in_order(group: FakeGroup) -> None:
    group.messages.newest_ms = 0
    _fill(group, 100, 200, 300)


async def test_one_message_by_its_place(client, group) -> None:
    at = stores.put(group.messages, stores.message("TopicTest", 1, b"here"))[0]
    assert client.call(33, {"offset": at.offset}).code == 1
    stores.confirm(group.messages)
    answer = client.call(33, {"offset": at.offset})
    assert (answer.code, decode_record(answer.body).body) == (0, b"here")
    wrong = client.call(33, {"offset": at.offset + 1})
    assert (wrong.code, wrong.remark) == (
        1,
        f"can not find message by the offset, {at.offset + 1}",
    )


async def test_nothing_is_written_once_the_mastership_is_over(
    client, processor, group: FakeGroup
) -> None:
    _commit(client, 3)
    processor.close()
    await asyncio.sleep(0.02)
    assert _written(group) == []
