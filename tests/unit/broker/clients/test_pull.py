"""Pulling: positions, filters, waiting, and what wakes a pull that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from gantry_broker.clients.waiting_room import RoomLimits
from gantry_protocol.bodies import TopicConfig, encode_body
from gantry_protocol.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.codes import RequestCode
from gantry_protocol.errors import CorruptionError
from gantry_protocol.records import decode_records, tags_code
from support import logs, stores
from support.group_view import FakeGroup
from support.patience import PATIENCE_S

# The header of a captured push pull; a subscription rides along (sysFlag 4) where nothing else is
# said, so that no heartbeat is needed.
PULL: dict[str, object] = {
    "bname": "broker-a",
    "commitOffset": 0,
    "consumerGroup": "g",
    "expressionType": "TAG",
    "maxMsgBytes": 262144,
    "maxMsgNums": 32,
    "queueId": 0,
    "queueOffset": 0,
    "subVersion": 0,
    "subscription": "*",
    "suspendTimeoutMillis": 15000,
    "sysFlag": 4,
    "topic": "TopicTest",
}
SUSPEND = 4 | 2


def _fill(group: FakeGroup, *tags: str | None, queue_id: int = 0) -> None:
    for number, tag in enumerate(tags):
        record = stores.message("TopicTest", queue_id, b"%d" % number, tag=tag)
        stores.put(group.messages, record)
    stores.confirm(group.messages)


def _bodies(answer) -> list[bytes]:
    return [record.body for record in decode_records(answer.body)]


def _beat(client, subscription: SubscriptionData, group: str = "g", **options) -> None:
    data = HeartbeatData(
        client_id="c1",
        consumer_data_set=[ConsumerData(group, subscription_data_set=[subscription], **options)],
    )
    assert client.call(RequestCode.HEART_BEAT, None, encode_body(data)).code == 0


@pytest.mark.parametrize("code", [11, 361])
async def test_found(client, group, code) -> None:
    _fill(group, "A", None, "B")
    answer = client.call(code, PULL)
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert answer.ext == {
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "3",
        "suggestWhichBrokerId": "0",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    assert _bodies(answer) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("offset", "code", "remark", "following"),
    [
        pytest.param(3, 19, "OFFSET_OVERFLOW_ONE", 3, id="at the end"),
        pytest.param(4, 21, "OFFSET_OVERFLOW_BADLY", 3, id="beyond"),
        pytest.param(-1, 21, "OFFSET_TOO_SMALL", 0, id="negative"),
    ],
)
async def test_positions_without_messages(client, group, offset, code, remark, following) -> None:
    _fill(group, None, None, None)
    answer = client.call(11, {**PULL, "queueOffset": offset})
    assert (answer.code, answer.remark, answer.body) == (code, remark, b"")
    assert answer.ext["nextBeginOffset"] == str(following)
    for name in ("minOffset", "maxOffset", "suggestWhichBrokerId"):
        int(answer.ext[name])


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (5, 21), (-1, 21)])
async def test_an_empty_queue(client, offset, code) -> None:
    answer = client.call(11, {**PULL, "queueOffset": offset})
    assert (answer.code, answer.remark) == (code, "NO_MESSAGE_IN_QUEUE")
    assert answer.ext["nextBeginOffset"] == "0"


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        pytest.param({"topic": "Nope"}, 17, "not exist", id="unknown topic"),
        pytest.param({"topic": "Nope", "queueId": 9}, 17, "not exist", id="topic before queue"),
        pytest.param({"topic": "WriteOnly"}, 16, "forbidden", id="unreadable topic"),
        pytest.param({"queueId": 4}, 29, "readQueueNums:[4]", id="queue beyond"),
        pytest.param({"queueId": -1}, 29, "queueId[-1]", id="negative queue"),
        pytest.param({"subscription": "||"}, 23, "names no tag", id="no tag"),
        pytest.param({"expressionType": "CLASS"}, 1, "message by CLASS", id="no such filter"),
        pytest.param({"expressionType": "SQL92"}, 23, "line 1, column 1", id="not SQL"),
        pytest.param({"sysFlag": 0}, 24, "group info not exist", id="no heartbeat"),
    ],
)
async def test_refusals(client, group, changes, code, words) -> None:
    group.add_topic(TopicConfig("WriteOnly", perm=2))
    answer = client.call(11, {**PULL, **changes})
    assert answer.code == code
    assert words in answer.remark
    assert (answer.ext or {}).get("forbiddenType") == ("2" if code == 16 else None)


async def test_a_heartbeats_subscription_serves_pulls_without_one(client, group) -> None:
    _fill(group, "A", "B", "A")
    subscription = SubscriptionData("TopicTest", "A", ["A"], [tags_code("A")], sub_version=5)
    _beat(client, subscription)
    answer = client.call(11, {**PULL, "sysFlag": 0, "subVersion": 5})
    assert _bodies(answer) == [b"0", b"2"]
    assert client.call(11, {**PULL, "sysFlag": 0, "subVersion": 6}).code == 25
    group.add_topic(TopicConfig("Other"))
    assert client.call(11, {**PULL, "sysFlag": 0, "topic": "Other"}).code == 24


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*", [b"0", b"1", b"2"]),
        ("", [b"0", b"1", b"2"]),
        (None, [b"0", b"1", b"2"]),
        ("A", [b"0"]),
        (" A || B ", [b"0", b"1"]),
        ("A||", [b"0"]),
    ],
)
async def test_subscriptions(client, group, expression, expected) -> None:
    _fill(group, "A", "B", None)
    ext = {**PULL, "subscription": expression}
    if expression is None:
        del ext["subscription"]
    assert _bodies(client.call(11, ext)) == expected


async def test_nothing_matches_is_20_and_goes_on(client, group) -> None:
    _fill(group, "A", "A")
    answer = client.call(11, {**PULL, "subscription": "Z", "sysFlag": SUSPEND})
    assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
    assert answer.ext["nextBeginOffset"] == "2"


@pytest.mark.parametrize("wanted", [(0, 1), (5, 5), (32, 32), (1000, 32)])
async def test_counts_are_bounded(client, group, wanted) -> None:
    asked, got = wanted
    _fill(group, *[None] * 40)
    assert len(_bodies(client.call(11, {**PULL, "maxMsgNums": asked}))) == got


async def test_bytes_are_bounded(client, group) -> None:
    for _ in range(4):
        stores.put(group.messages, stores.message("TopicTest", 0, bytes(100_000)))
    stores.confirm(group.messages)
    answer = client.call(11, PULL)
    assert answer.ext["nextBeginOffset"] == "2"
    assert len(answer.body) <= 256 * 1024


async def test_a_pull_at_the_end_waits_and_wakes_with_its_opaque(client, group, processor) -> None:
    _fill(group, None)
    asked, answer = client.ask(11, {**PULL, "queueOffset": 1, "sysFlag": SUSPEND})
    other, _ = client.ask(11, {**PULL, "queueId": 1, "sysFlag": SUSPEND})
    assert answer is None
    assert processor.parked_pulls == 2
    stores.put(group.messages, stores.message("TopicTest", 0, b"new"))
    group.messages.log.flush()
    assert client.conn.replies == [], "not before it is confirmed"
    stores.confirm(group.messages)
    answer = client.conn.answer_to(asked)
    assert (answer.code, _bodies(answer)) == (0, [b"new"])
    assert processor.parked_pulls == 1
    assert all(to is not other for to, _ in client.conn.replies)


def _late(group) -> list[Callable[[], None]]:
    """From now on the store answers reads when a test calls what is in the list."""
    read, late = group.store.read, []

    def answering_late(wanted, done) -> None:
        read(wanted, lambda result: late.append(lambda: done(result)))

    group.store.read = answering_late
    return late


async def test_a_pull_that_ends_while_the_store_is_asked_is_answered_once(
    client, group, processor
) -> None:
    asked, _ = client.ask(11, {**PULL, "sysFlag": SUSPEND})
    late = _late(group)
    _fill(group, None)
    processor._puller.parking.release()
    (answer_now,) = late
    answer_now()
    assert [(to, answer.code) for to, answer in client.conn.replies] == [(asked, 19)]


async def test_who_closed_while_the_store_was_asked_has_pulled_nothing(
    client, group, processor
) -> None:
    """Nobody has said so yet; the end of its connection is on its way."""
    client.ask(11, {**PULL, "sysFlag": SUSPEND})
    late = _late(group)
    client.ask(11, {**PULL, "queueId": 1, "sysFlag": SUSPEND})
    _fill(group, None)
    client.conn.closed = True
    for answer_now in late:
        answer_now()
    assert (len(late), processor.parked_pulls) == (2, 0)
    assert processor._puller.pulled.offset("g", "TopicTest", 0) is None


async def test_records_that_come_while_the_store_is_asked_are_not_missed(client, group) -> None:
    asked, _ = client.ask(11, {**PULL, "subscription": "A", "sysFlag": SUSPEND})
    read, late = group.store.read, _late(group)
    _fill(group, "B")
    (answer_now,) = late
    _fill(group, "A")
    assert len(late) == 1, "one read at a time"
    group.store.read = read
    answer_now()
    assert client.conn.answer_to(asked).code == 0


async def test_between_the_confirmed_end_and_the_end_a_pull_waits(client, group) -> None:
    """A new master may know of less confirmation than its consumers have seen."""
    _fill(group, None)
    for number in range(3):
        stores.put(group.messages, stores.message("TopicTest", 0, b"later %d" % number))
    answer = client.call(11, {**PULL, "queueOffset": 3, "suspendTimeoutMillis": 0})
    assert (answer.code, answer.ext["nextBeginOffset"]) == (19, "3")
    assert answer.ext["maxOffset"] == "1"
    waiting, answer = client.ask(11, {**PULL, "queueOffset": 3, "sysFlag": SUSPEND})
    beyond = client.call(11, {**PULL, "queueOffset": 5, "sysFlag": SUSPEND})
    assert answer is None
    assert (beyond.code, beyond.ext["nextBeginOffset"]) == (21, "1")
    stores.confirm(group.messages)
    assert _bodies(client.conn.answer_to(waiting)) == [b"later 2"]


async def test_the_same_holds_for_a_queue_without_any_confirmed_record(client, group) -> None:
    stores.put(group.messages, stores.message("TopicTest", 0), stores.message("TopicTest", 0))
    assert client.call(11, {**PULL, "queueOffset": 1}).code == 19
    assert client.call(11, {**PULL, "queueOffset": 2}).code == 19
    assert client.call(11, {**PULL, "queueOffset": 3}).code == 21


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"sysFlag": 4}, "no leave to suspend"), ({"suspendTimeoutMillis": 0}, "no time")],
)
async def test_who_does_not_wait_hears_19_at_once(client, changes, why) -> None:
    assert client.call(11, {**PULL, "sysFlag": SUSPEND, **changes}).code == 19, why


async def test_the_time_of_a_waiting_pull_ends_with_19(client, group, processor) -> None:
    _fill(group, None)
    changes = {"queueOffset": 1, "sysFlag": SUSPEND, "suspendTimeoutMillis": 20}
    asked, _ = client.ask(11, {**PULL, **changes})
    async with asyncio.timeout(PATIENCE_S):
        while processor.parked_pulls:
            await asyncio.sleep(0.001)
    answer = client.conn.answer_to(asked)
    assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")
    assert answer.ext["nextBeginOffset"] == "1"


async def test_records_that_do_not_match_keep_it_waiting_and_are_skipped_at_last(
    client, group, processor
) -> None:
    changes = {"subscription": "A", "sysFlag": SUSPEND, "suspendTimeoutMillis": 50}
    asked, _ = client.ask(11, {**PULL, **changes})
    _fill(group, "B", "B", "B")
    assert processor.parked_pulls == 1
    async with asyncio.timeout(PATIENCE_S):
        while processor.parked_pulls:
            await asyncio.sleep(0.001)
    answer = client.conn.answer_to(asked)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (20, "3")


async def test_a_match_after_others_is_delivered(client, group) -> None:
    asked, _ = client.ask(11, {**PULL, "subscription": "A", "sysFlag": SUSPEND})
    _fill(group, "B", "B")
    _fill(group, "A")
    answer = client.conn.answer_to(asked)
    assert (_bodies(answer), answer.ext["nextBeginOffset"]) == ([b"0"], "3")


async def test_a_waiting_pull_examines_everything_in_the_end(client, group) -> None:
    """More records that do not match than one read looks at."""
    asked, _ = client.ask(11, {**PULL, "subscription": "A", "sysFlag": SUSPEND})
    for _ in range(3):
        _fill(group, *["B"] * 400)
    _fill(group, "A")
    assert client.conn.answer_to(asked).ext["nextBeginOffset"] == "1201"


async def test_nothing_is_kept_of_pulls_that_are_over(client, group, processor) -> None:
    for _ in range(3):
        client.ask(11, {**PULL, "queueOffset": 0, "sysFlag": SUSPEND})
    _fill(group, None)
    parking = processor._puller.parking
    assert len(client.conn.replies) == 3
    assert (parking._pulls, parking._by_queue, parking._by_connection) == ({}, {}, {})
    assert len(parking._deadlines) == 0


async def test_a_closed_connection_waits_for_nothing(connect, group, processor) -> None:
    first, second = connect(), connect()
    first.ask(11, {**PULL, "sysFlag": SUSPEND})
    asked, _ = second.ask(11, {**PULL, "sysFlag": SUSPEND})
    first.conn.closed = True
    processor.connection_closed(first.conn)
    assert processor.parked_pulls == 1
    _fill(group, None)
    assert first.conn.replies == []
    assert second.conn.answer_to(asked).code == 0
    assert processor.parked_pulls == 0


async def test_a_pull_that_finds_no_room_to_wait_hears_system_busy(
    connect, processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2, which clients ask again after in a while; after 19 they would ask at once, forever."""
    room = processor.waiting_room
    monkeypatch.setattr(room, "_limits", RoomLimits(pulls=3, own_pulls=2))
    first, second = connect(), connect()
    for _ in range(2):
        assert first.ask(11, {**PULL, "sysFlag": SUSPEND})[1] is None
    assert first.call(11, {**PULL, "sysFlag": SUSPEND}).code == 2
    assert second.ask(11, {**PULL, "sysFlag": SUSPEND})[1] is None, "another one has its share"
    assert second.call(11, {**PULL, "sysFlag": SUSPEND}).code == 2
    assert second.call(11, PULL).code == 19, "who does not wait is answered as ever"
    assert (room.pulls, room.refused) == (3, 2)
    processor.connection_closed(first.conn)
    assert room.pulls == 1
    assert first.ask(11, {**PULL, "sysFlag": SUSPEND})[1] is None


async def test_what_a_waiting_pull_holds_is_bounded(client, group, processor) -> None:
    """A subscription may be as long as a frame."""
    room = processor.waiting_room
    wide = "||".join(f"tag{number}" for number in range(20_000))
    asked = {**PULL, "subscription": wide, "sysFlag": SUSPEND}
    answers = [client.ask(11, asked)[1] for _ in range(20)]
    waiting = answers.count(None)
    assert 0 < waiting < 20
    assert {answer.code for answer in answers if answer is not None} == {2}
    assert waiting * len(wide) < room.size_bytes <= RoomLimits().own_bytes
    _fill(group, "tag7")
    assert (processor.parked_pulls, room.pulls, room.size_bytes) == (0, 0, 0)


async def test_the_end_of_the_mastership_sends_waiting_pulls_back(client, processor) -> None:
    asked, _ = client.ask(11, {**PULL, "sysFlag": SUSPEND})
    processor.close()
    assert client.conn.answer_to(asked).code == 19
    assert processor.parked_pulls == 0


async def test_a_pull_commits_only_with_its_bit_and_a_sensible_offset(client, group) -> None:
    _fill(group, None)
    commits = ((4, 1, None), (5, -1, None), (5, 1, 1), (5, -1, 1), (4, 2, 1), (5, 0, 0))
    for sys_flag, offset, expected in commits:
        client.call(11, {**PULL, "sysFlag": sys_flag, "commitOffset": offset})
        assert group.store.committed.query("g", "TopicTest", 0) == expected


async def test_damage_under_a_waiting_pull_answers_it_and_spares_the_others(
    client, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, _ = client.ask(11, {**PULL, "sysFlag": SUSPEND})
    healthy, _ = client.ask(11, {**PULL, "queueId": 1, "sysFlag": SUSPEND})
    sound = group.messages.get

    def get(topic, queue_id, *rest):
        if queue_id == 0:
            raise CorruptionError("queue file", 7, "the entry does not fit the commit log")
        return sound(topic, queue_id, *rest)

    monkeypatch.setattr(group.messages, "get", get)
    stores.put(group.messages, stores.message("TopicTest", 0), stores.message("TopicTest", 1))
    stores.confirm(group.messages)
    answer = client.conn.answer_to(asked)
    assert (answer.code, "byte 7" in answer.remark) == (1, True)
    assert client.conn.answer_to(healthy).code == 0


@pytest.mark.parametrize("needle", [b"fifth", b"blue"], ids=["body", "property"])
async def test_a_byte_that_rotted_is_refused_and_what_stands_before_and_beside_it_served(
    client, group, needle: bytes
) -> None:
    for number, body in enumerate([b"third", b"fourth", b"fifth", b"sixth"]):
        tag = "blue" if body == b"fifth" else "red"
        for record in (
            stores.message("TopicTest", 0, body, tag=tag),
            stores.message("TopicTest", 1, b"beside %d" % number),
        ):
            stores.put(group.messages, record)
            stores.confirm(group.messages)  # one range of checksums each
    (path,) = group.messages.log.directory.glob("*0")
    logs.flip(path, path.read_bytes().index(needle))
    group.messages.log.checks.forget(0, group.messages.log.end)

    before = client.call(11, PULL)
    assert _bodies(before) == [b"third", b"fourth"]
    refused = client.call(11, {**PULL, "queueOffset": before.ext["nextBeginOffset"]})
    assert refused.code == 1
    assert f"{path} is damaged" in refused.remark
    behind = client.call(11, {**PULL, "queueOffset": int(before.ext["nextBeginOffset"]) + 1})
    assert _bodies(behind) == [b"sixth"]
    assert len(_bodies(client.call(11, {**PULL, "queueId": 1}))) == 4
