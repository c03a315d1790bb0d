"""Offset resets: planned, refused in words, recorded in the log, followed by who runs."""

from __future__ import annotations

import itertools
import json

import pytest
from gantry_broker.clients.claim import Claim
from gantry_broker.clients.processor import ClientProcessor
from gantry_broker.clients.reset_plan import QueueNow, ResetMove, Wish, check, plan
from gantry_broker.store.contract import Refusal
from gantry_broker.store.tables.offsets import decode_rows
from gantry_protocol.bodies import MessageQueue, decode_queue_table
from gantry_protocol.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import reply
from gantry_protocol.types import BrokerId, Epoch
from support import stores

from .conftest import WAITING_PULL

NOW = {0: QueueNow(2, 9, 5, 7), 1: QueueNow(0, 0, 0, None)}
RESET: dict[str, object] = {
    "topic": "TopicTest",
    "group": "g",
    "timestamp": -1,
    "isForce": True,
    "queueId": -1,
}


@pytest.mark.parametrize(
    ("wish", "moves"),
    [
        pytest.param(Wish(None, -1, None, True), {0: 9, 1: 0}, id="the end"),
        pytest.param(Wish(None, 1234, None, True), {0: 5, 1: 0}, id="by time"),
        pytest.param(Wish(0, -1, 2, True), {0: 2, 1: 0}, id="an offset, lowest"),
        pytest.param(Wish(0, -1, 9, True), {0: 9, 1: 0}, id="an offset, highest"),
        pytest.param(Wish(None, -1, None, False), {0: (7, 9), 1: 0}, id="never forward unforced"),
        pytest.param(Wish(None, 1234, None, False), {0: 5, 1: 0}, id="back without force"),
    ],
)
def test_plan(wish: Wish, moves: dict[int, int | tuple[int, int]]) -> None:
    """Two numbers: where the group stays, and from where on everything comes again."""
    queues = {0: NOW[0]} if wish.offset is not None else NOW
    wanted = {at: (move, move) if isinstance(move, int) else move for at, move in moves.items()}
    assert plan(wish, queues) == {queue: ResetMove(*wanted[queue]) for queue in queues}


@pytest.mark.parametrize("found", [0, 99])
def test_a_time_never_leads_out_of_the_queue(found: int) -> None:
    moves = plan(Wish(None, 1, None, True), {0: QueueNow(2, 9, found, None)})
    assert moves == {0: ResetMove(2, 2) if found < 2 else ResetMove(9, 9)}


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(4, -1, None, True), "queue 4 does not exist, there are 4"),
        (Wish(-2, -1, None, True), "queue -2 does not exist"),
        (Wish(None, -1, 3, True), "needs the queue"),
        (Wish(None, -2, None, True), "-2 is no time"),
    ],
)
def test_what_no_queue_can_fulfil_is_refused(wish: Wish, words: str) -> None:
    refusal = check(wish, 4)
    assert refusal is not None
    assert refusal.code == 29
    assert words in refusal.remark


@pytest.mark.parametrize("offset", [1, 10, -5])
def test_an_offset_outside_its_queue_is_refused(offset: int) -> None:
    refusal = plan(Wish(0, -1, offset, True), {0: NOW[0]})
    assert isinstance(refusal, Refusal)
    assert f"offset {offset} is not in queue 0, which has 2 to 9" in refusal.remark


@pytest.mark.parametrize(
    ("offset", "has_before", "goes_on", "end"),
    [
        pytest.param(1, True, False, 2, id="below-it-is-elsewhere"),
        pytest.param(10, False, True, 9, id="above-it-is-elsewhere"),
        pytest.param(5, True, True, 5, id="it-is-here"),
        pytest.param(1, False, True, None, id="below-all"),
        pytest.param(10, True, False, None, id="above-all"),
        pytest.param(-5, True, True, None, id="no-offset"),
    ],
)
def test_an_offset_of_another_broker_group_leads_to_the_end_next_to_it(
    offset: int, has_before: bool, goes_on: bool, end: int | None
) -> None:
    now = NOW[0]._replace(has_before=has_before, goes_on=goes_on)
    moves = plan(Wish(0, -1, offset, True), {0: now})
    if end is None:
        assert isinstance(moves, Refusal)
    else:
        assert moves == {0: ResetMove(end, end)}


# ---- at the broker


def fill(group, count: int = 9) -> None:
    stores.put(group.messages, *(stores.message("TopicTest", 0) for _ in range(count)))
    stores.confirm(group.messages)


def commit(client, offset: int) -> None:
    ext = {"consumerGroup": "g", "topic": "TopicTest", "queueId": 0, "commitOffset": offset}
    client.ask(15, ext, oneway=True)


def committed(client) -> str:
    ext = {"consumerGroup": "g", "topic": "TopicTest", "queueId": 0}
    return client.call(14, ext).ext["offset"]


def join(client, model: str = "CLUSTERING", name: str = "c1") -> None:
    subscription = SubscriptionData("TopicTest")
    data = ConsumerData("g", message_model=model, subscription_data_set=[subscription])
    client.call(34, None, encode_body(HeartbeatData(name, consumer_data_set=[data])))


async def test_a_group_nobody_serves_begins_at_the_new_offset(client, group) -> None:
    fill(group)
    commit(client, 7)
    answer = client.call(222, {**RESET, "queueId": 0, "offset": 3})
    assert answer.code == 0
    expected = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}:3}}'
    assert answer.body == expected
    assert committed(client) == "3"
    assert client.call(11, {**WAITING_PULL, "queueOffset": 3}).code == 0
    commit(client, 9)
    assert committed(client) == "9"


async def test_it_is_answered_when_the_log_has_it(client, group) -> None:
    fill(group)
    commit(client, 7)
    group.holding = True
    asked, answer = client.ask(222, RESET)
    assert answer is None
    group.confirm()
    answer = client.conn.answer_to(asked)
    assert decode_queue_table(answer.body, int)[MessageQueue("broker-a", 0, "TopicTest")] == 9
    rows = [row for row in group.messages.offsets.applied_rows() if row[0] == "g"]
    assert ("g", "TopicTest", 0, 9) in rows


async def test_a_reset_that_was_not_confirmed_is_not_called_done(client, group) -> None:
    fill(group)
    commit(client, 7)
    group.holding = True
    asked, _ = client.ask(222, RESET)
    group.give_up()
    answer = client.conn.answer_to(asked)
    assert answer.code == 2
    assert "may not last" in answer.remark


async def test_who_runs_follows_with_its_next_pull_and_its_old_commits_do_not_count(
    client, connect, group
) -> None:
    fill(group)
    join(client)
    assert client.call(11, WAITING_PULL).code == 0
    commit(client, 9)
    assert connect().call(222, {**RESET, "queueId": 0, "offset": 2}).code == 0
    commit(client, 9)
    assert committed(client) == "2"
    answer = client.call(11, {**WAITING_PULL, "queueOffset": 9, "sysFlag": 7, "commitOffset": 9})
    assert (answer.code, answer.remark) == (21, "OFFSET_RESET")
    assert answer.ext["nextBeginOffset"] == "2"
    assert (answer.ext["minOffset"], answer.ext["maxOffset"]) == ("0", "9")
    assert client.call(11, {**WAITING_PULL, "queueOffset": 9}).code == 21, "until it follows"
    assert client.call(11, {**WAITING_PULL, "queueOffset": 2}).code == 0
    commit(client, 5)
    assert committed(client) == "5", "it has followed, so its commits count again"
    assert client.call(11, {**WAITING_PULL, "queueOffset": 5}).code == 0


async def test_committing_the_new_offset_is_following_too(client, group) -> None:
    fill(group)
    join(client)
    client.call(222, {**RESET, "queueId": 0, "offset": 2})
    commit(client, 2)
    commit(client, 8)
    assert committed(client) == "8"


async def test_a_pull_that_waits_is_answered_at_once(client, connect, group) -> None:
    fill(group)
    join(client)
    waiting, answer = client.ask(11, {**WAITING_PULL, "queueOffset": 9})
    other, _ = client.ask(11, {**WAITING_PULL, "queueOffset": 9, "consumerGroup": "other"})
    assert answer is None
    connect().call(222, {**RESET, "queueId": 0, "offset": 2})
    answer = client.conn.answer_to(waiting)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (21, "2")
    assert client.processor.parked_pulls == 1, "another group goes on waiting"
    assert other not in [asked for asked, _ in client.conn.replies]


async def test_it_is_due_under_the_next_master_too(client, group) -> None:
    fill(group)
    join(client)
    client.call(222, {**RESET, "queueId": 0, "offset": 2})
    client.processor.close()
    group.messages.drop_mastership()
    group.messages.take_mastership()
    client.processor = ClientProcessor(group)
    commit(client, 9)
    assert committed(client) == "2"
    assert client.call(11, {**WAITING_PULL, "queueOffset": 9}).code == 21
    client.processor.close()


async def test_under_a_new_master_who_runs_follows_although_nobody_has_heard_of_it(
    client, connect, group
) -> None:
    """A member keeps its place through a failover, and pulls on before it heartbeats."""
    fill(group)
    commit(client, 9)
    group.consumers.began(Claim(BrokerId(1), Epoch(2), "here"))
    assert connect().call(222, {**RESET, "queueId": 0, "offset": 2}).code == 0
    answer = client.call(11, {**WAITING_PULL, "queueOffset": 9, "sysFlag": 7, "commitOffset": 9})
    assert (answer.code, answer.ext["nextBeginOffset"]) == (21, "2")
    assert committed(client) == "2"
    group.consumers.end()


async def test_broadcasting_consumers_are_told_since_they_keep_their_offsets(
    client, connect, group
) -> None:
    fill(group)
    join(client, "BROADCASTING")
    appended = len(group.appended)
    answer = connect().call(222, {**RESET, "timestamp": 0})
    assert answer.code == 0
    (told,) = [one for one in client.conn.sent if one.code == 220]
    assert told.is_oneway
    assert told.body == answer.body
    assert told.ext == {"topic": "TopicTest", "group": "g", "timestamp": "0", "isForce": "true"}
    assert len(group.appended) == appended, "nothing is written"
    assert client.call(11, {**WAITING_PULL, "queueOffset": 9, "suspendTimeoutMillis": 0}).code == 19


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"topic": "Nope"}, 17, "Nope"),
        ({"group": "typo"}, 26, "no members, no offsets and no setting"),
        ({"queueId": 4}, 29, "queue 4 does not exist"),
        ({"queueId": 0, "offset": 10}, 29, "which has 0 to 9"),
        ({"offset": 3}, 29, "needs the queue"),
        ({"timestamp": -7}, 29, "-7 is no time"),
    ],
)
async def test_nonsense_is_refused_in_words_and_moves_nothing(
    client, group, changes: dict[str, object], code: int, words: str
) -> None:
    fill(group)
    commit(client, 7)
    answer = client.call(222, {**RESET, **changes})
    assert answer.code == code
    assert words in answer.remark
    assert committed(client) == "7"


async def test_nobody_sees_or_moves_what_is_due(client, group) -> None:
    fill(group)
    join(client)
    client.call(222, {**RESET, "queueId": 0, "offset": 2})
    ext = {"consumerGroup": "<reset>g", "topic": "TopicTest", "queueId": 0, "commitOffset": 9}
    assert client.call(15, ext).code == 29
    assert client.call(11, {**WAITING_PULL, "queueOffset": 9}).ext["nextBeginOffset"] == "2"
    assert json.loads(client.call(43).body) == {"offsetTable": {"TopicTest@g": {"0": 2}}}
    assert json.loads(client.call(300, {"topic": "TopicTest"}).body) == {"groupList": ["g"]}


async def test_a_deleted_group_leaves_no_offsets(client, group) -> None:
    fill(group)
    join(client)
    client.call(222, {**RESET, "queueId": 0, "offset": 2})
    asked, _ = client.ask(207, {"groupName": "g", "cleanOffset": True})
    command, done = group.controllers.asked[-1]
    assert command.code == RequestCode.DELETE_SUBSCRIPTIONGROUP
    done(_success(command))
    assert client.conn.answer_to(asked).code == 0
    assert group.messages.offsets.all() == group.messages.offsets.applied_rows() == []


async def test_a_group_may_be_deleted_and_keep_its_offsets(client, group) -> None:
    fill(group)
    commit(client, 7)
    asked, _ = client.ask(207, {"groupName": "g"})
    command, done = group.controllers.asked[-1]
    done(_success(command))
    assert client.conn.answer_to(asked).code == 0
    assert committed(client) == "7"


def _success(command):
    return reply(command, ext={"subscriptionsVersion": "1"})


async def test_a_reset_of_a_topic_that_ends_meanwhile_writes_nothing(
    client, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is asked for the queues, and answers behind the deletion."""
    fill(group)
    commit(client, 7)
    ask, held = group.store.offsets, []
    monkeypatch.setattr(group.store, "offsets", lambda *asked: held.append(asked))
    asked, answer = client.ask(222, {**RESET, "queueId": 0, "offset": 3})
    assert answer is None
    group.delete_topic("TopicTest", lambda refusal: None)
    ask(*held[0])
    assert client.conn.answer_to(asked).code == 17
    assert group.store.committed.all() == []


# ---- requests with a number


async def test_a_request_is_carried_out_once_in_each_queue(client, group) -> None:
    """It comes again until it is answered, perhaps at the next master; its group has gone on."""
    fill(group)
    commit(client, 7)
    asked = {**RESET, "timestamp": 0, "gantryRequest": 4}
    assert client.call(222, asked).code == 0
    assert committed(client) == "0"
    commit(client, 5)
    again = client.call(222, asked)
    assert (again.code, again.ext) == (0, {"gantryQueues": "4"})
    assert committed(client) == "5"
    client.processor.close()
    group.messages.drop_mastership()
    group.messages.take_mastership()
    client.processor = ClientProcessor(group)
    assert client.call(222, asked).code == 0
    assert committed(client) == "5"
    assert client.call(222, {**asked, "gantryRequest": 5}).code == 0
    assert committed(client) == "0"
    late = client.call(222, asked)
    assert (late.code, committed(client)) == (29, "0")
    assert "request 4 comes too late: 5 was carried out" in late.remark
    assert client.call(222, {**RESET, "queueId": 0, "offset": 3}).code == 0, "a person may always"
    assert committed(client) == "3"
    client.processor.close()


async def test_a_request_that_was_answered_is_in_the_log_behind_its_offsets(client, group) -> None:
    """A repeated one is not called done by what may not last."""
    fill(group)
    commit(client, 7)
    group.holding = True
    appended = len(group.appended)
    first, _ = client.ask(222, {**RESET, "queueId": 0, "gantryRequest": 1})
    again, _ = client.ask(222, {**RESET, "queueId": 0, "gantryRequest": 1})
    assert not [asked for asked, _ in client.conn.replies if asked in (first, again)]
    group.confirm()
    group.confirm()
    assert client.conn.answer_to(first).code == client.conn.answer_to(again).code == 0
    written = itertools.chain(*group.appended[appended:])
    rows = [row for record in written for row in decode_rows(record.body)]
    mark = ("<request>g", "TopicTest", 0, 1)
    assert rows[:3] == [("g", "TopicTest", 0, 9), mark, mark], "written again for the second"


async def test_nobody_sees_or_makes_what_a_request_left(client, group) -> None:
    fill(group)
    commit(client, 7)
    client.call(222, {**RESET, "queueId": 0, "gantryRequest": 6})
    ext = {"consumerGroup": "<request>g", "topic": "TopicTest", "queueId": 0, "commitOffset": 99}
    client.call(15, ext)
    assert client.call(222, {**RESET, "queueId": 0, "gantryRequest": 7}).code == 0
    assert json.loads(client.call(300, {"topic": "TopicTest"}).body) == {"groupList": ["g"]}
    asked, _ = client.ask(207, {"groupName": "g", "cleanOffset": True})
    command, done = group.controllers.asked[-1]
    done(_success(command))
    assert client.conn.answer_to(asked).code == 0
    assert group.messages.offsets.all() == []


async def test_a_request_is_not_made_of_members_that_keep_their_offsets(client, group) -> None:
    fill(group)
    join(client, "BROADCASTING")
    answer = client.call(222, {**RESET, "gantryRequest": 1})
    assert (answer.code, "keep their offsets themselves" in answer.remark) == (29, True)
    assert not [one for one in client.conn.sent if one.code == 220]
