"""Resets of mapped topics: by a time that is in an older segment, kept where readers commit."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.clients.mapped import resets
from gantry_broker.clients.mapped.requests import PHYSICAL
from gantry_broker.store.tables.resets import due_reset, put_reset
from gantry_protocol.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.errors import Busy
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, MappedQueue, Segment
from support.mapped_group import HERE, OLDER, STATIC, THERE, TOPIC, MappedGroup, at

from .test_requests import CAME, MOVED, pull_ext, queue_ext, send_ext

AGAIN = MAPPED_QUEUES_MAX
SEND, PULL = RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE
BY_TIME, MINIMUM = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MIN_OFFSET
QUERY = RequestCode.QUERY_CONSUMER_OFFSET
RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


def reset_ext(timestamp: int = 1, **more: object) -> dict[str, object]:
    return {
        "topic": TOPIC,
        "group": "g",
        "timestamp": timestamp,
        "isForce": True,
        "queueId": -1,
        **more,
    }


async def came(mapped: MappedGroup, messages: int = 3) -> None:
    """Queue 0 has come here at offset 40, and has so many messages; the others never moved."""
    await mapped.begin()
    mapped.tell(CAME, at(HERE, 1), at(THERE, 2), at(THERE, 3))
    for _ in range(messages):
        assert mapped.code(mapped.ask(SEND, send_ext())) == 0
    mapped.group.confirm()
    assert mapped.group.store.committed.commit("g", TOPIC, AGAIN, 42)


async def test_a_time_before_a_move_is_in_the_older_segment(mapped: MappedGroup) -> None:
    await came(mapped)
    asked = mapped.ask(RESET, reset_ext())
    assert mapped.code(asked) is None
    group, command, _ = mapped.masters.asked[-1]
    assert (group, command.code) == (THERE, BY_TIME)
    assert command.ext is not None
    assert (command.ext["queueId"], command.ext["timestamp"]) == ("0", "1")
    assert PHYSICAL in command.ext
    mapped.masters.answer(0, {"offset": "17"})
    mapped.group.confirm()
    answer = mapped.answer(asked)
    assert answer is not None
    assert answer.code == 0
    assert b'"queueId":0,"topic":"mapped"}:17' in answer.body
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 17
    assert mapped.group.store.committed.query("g", TOPIC, 0) is None, "no one commits there now"


@pytest.mark.parametrize("messages", [0, 3])
async def test_the_end_is_that_of_the_newest_segment(mapped: MappedGroup, messages: int) -> None:
    """One without a message would seem to end at 0."""
    await came(mapped, messages)
    mapped.ask(RESET, reset_ext(-1))
    assert mapped.masters.asked == []
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 40 + messages


async def test_an_offset_of_an_older_segment_may_be_named(mapped: MappedGroup) -> None:
    await came(mapped)
    early = mapped.ask(RESET, reset_ext(-1, queueId=0, offset=4))
    assert mapped.masters.asked[-1][1].code == MINIMUM
    mapped.masters.answer(0, {"offset": "5"})
    assert mapped.code(early) == ResponseCode.INVALID_PARAMETER
    mapped.ask(RESET, reset_ext(-1, queueId=0, offset=5))
    mapped.masters.answer(0, {"offset": "5"})
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 5


@pytest.mark.parametrize(
    ("number", "queue_id", "offset", "end"),
    [
        pytest.param(0, AGAIN, 4, 40, id="in-an-earlier-segment"),
        pytest.param(0, AGAIN, 41, 41, id="here"),
        pytest.param(0, AGAIN, 100, 43, id="in-a-later-segment"),
        pytest.param(2, 2, 4, 0, id="of-a-queue-that-never-was-here"),
    ],
)
async def test_an_offset_that_is_elsewhere_leads_to_the_end_of_what_is_here(
    mapped: MappedGroup, number: int, queue_id: int, offset: int, end: int
) -> None:
    """The group that has the offset says whether there is such a one."""
    await came(mapped)
    left = MappedQueue((*CAME.segments, Segment(THERE, 43, 2 * AGAIN)), "", 2)
    mapped.tell(left, at(HERE, 1), at(THERE, 2), at(THERE, 3), epoch=2)
    asked = mapped.ask(RESET, reset_ext(-1, queueId=number, offset=offset))
    assert mapped.masters.asked == []
    await asyncio.sleep(0.01)
    answer = mapped.answer(asked)
    assert answer is not None
    assert answer.code == 0
    assert f'"queueId":{number},"topic":"mapped"}}:{end}'.encode() in answer.body
    assert mapped.group.store.committed.query("g", TOPIC, queue_id) == end


async def test_the_group_of_the_first_segment_refuses_what_is_before_it(
    mapped: MappedGroup,
) -> None:
    """Nobody else knows where the queue begins, wherever messages are taken now."""
    await came(mapped)
    begins = MappedQueue((Segment(HERE, 40, AGAIN), Segment(THERE, 43, 2 * AGAIN)), "", 2)
    mapped.tell(begins, at(HERE, 1), at(THERE, 2), at(THERE, 3), epoch=2)
    asked = mapped.ask(RESET, reset_ext(-1, queueId=0, offset=39))
    assert mapped.code(asked) == ResponseCode.INVALID_PARAMETER
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 42


async def test_who_committed_before_the_move_is_not_led_forward(mapped: MappedGroup) -> None:
    await came(mapped)
    mapped.group.store.committed.forget("g", TOPIC, AGAIN)
    mapped.group.store.committed.commit("g", TOPIC, 1, 0)
    mapped.ask(RESET, reset_ext(-1, isForce=False))
    assert mapped.masters.asked[-1][1].code == QUERY
    mapped.masters.answer(0, {"offset": "20"})
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 20


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_group_may_be_known_only_where_its_queue_was(
    mapped: MappedGroup, *, is_known: bool
) -> None:
    """It stopped before the move."""
    await came(mapped)
    mapped.group.store.committed.forget("g", TOPIC, AGAIN)
    asked = mapped.ask(RESET, reset_ext(-1))
    assert mapped.masters.asked[-1][1].code == QUERY
    if is_known:
        mapped.masters.answer(0, {"offset": "20"})
        assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 43
    else:
        mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
        assert mapped.code(asked) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert mapped.group.store.committed.query("g", TOPIC, AGAIN) is None


async def test_nothing_is_reset_while_an_older_segment_cannot_be_asked(mapped: MappedGroup) -> None:
    await came(mapped)
    asked = mapped.ask(RESET, reset_ext())
    mapped.masters.asked.pop()[2](Busy("nobody"))
    assert mapped.code(asked) == ResponseCode.SYSTEM_BUSY
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 42


async def test_nothing_is_reset_while_a_queue_moves(mapped: MappedGroup) -> None:
    await came(mapped)
    waits = mapped.ask(RESET, reset_ext())
    gone = MappedQueue((*CAME.segments, Segment(THERE, 43, 2 * AGAIN)), "", 2)
    moving = MappedQueue(CAME.segments, THERE, 1)
    others = (at(HERE, 1), at(THERE, 2), at(THERE, 3))
    mapped.tell(moving, *others, epoch=2)
    assert mapped.code(mapped.ask(RESET, reset_ext())) == ResponseCode.SYSTEM_BUSY
    mapped.tell(gone, *others, epoch=3)
    mapped.masters.answer(0, {"offset": "17"}, 0)
    assert mapped.code(waits) is not None
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN) in (17, 42)


async def test_questions_under_way_are_bounded(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resets, "ASKED_MAX", 1)
    await mapped.begin()
    second = MappedQueue((Segment(THERE, 0, 1), Segment(HERE, 40, AGAIN + 1)), "", 1)
    mapped.tell(CAME, second, at(THERE, 2), at(THERE, 3))
    mapped.group.store.committed.commit("g", TOPIC, AGAIN, 42)
    mapped.ask(RESET, reset_ext())
    seen = []
    for _ in range(2):
        (item,) = mapped.masters.asked
        seen.append((item[1].ext or {})["queueId"])
        mapped.masters.answer(0, {"offset": "7"})
        await asyncio.sleep(0)
    assert seen == ["0", "1"]
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN + 1) == 7


def join(mapped: MappedGroup, version: int) -> None:
    """A member of the consumer group."""
    data = ConsumerData("g", subscription_data_set=[SubscriptionData(TOPIC)])
    body = encode_body(HeartbeatData("c1", consumer_data_set=[data]))
    mapped.ask(RequestCode.HEART_BEAT, {}, body, version=version)


@pytest.mark.parametrize(("version", "is_due"), [(STATIC, False), (OLDER, True)])
async def test_only_older_clients_are_led_where_a_queue_has_left(
    mapped: MappedGroup, version: int, *, is_due: bool
) -> None:
    """Others come by on their way from a reset that is kept at the group that has the queue."""
    await mapped.begin()
    mapped.tell(MOVED, at(HERE, 1), at(HERE, 2), at(HERE, 3))
    join(mapped, version)
    mapped.ask(RESET, reset_ext(-1))
    assert (due_reset(mapped.group.store.committed, "g", TOPIC, 0) is not None) is is_due
    assert due_reset(mapped.group.store.committed, "g", TOPIC, 1) == 0
    assert mapped.masters.asked == []


# ---- readers


@pytest.mark.parametrize("version", [STATIC, OLDER])
async def test_a_reader_follows_into_an_older_segment_once(
    mapped: MappedGroup, version: int
) -> None:
    """What it pulls there is asked of another group, which knows nothing of the reset."""
    await came(mapped)
    committed = mapped.group.store.committed
    put_reset(committed, "g", TOPIC, AGAIN, 17, due=True)
    for offset in (42, 20):
        answer = mapped.answer(mapped.ask(PULL, pull_ext(offset), version=version))
        assert answer is not None
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert (answer.ext or {})["nextBeginOffset"] == "17"
    assert mapped.masters.asked == []
    mapped.ask(PULL, pull_ext(17), version=version)
    assert due_reset(committed, "g", TOPIC, AGAIN) is None
    assert committed.query("g", TOPIC, AGAIN) == 17
    later = mapped.answer(mapped.ask(PULL, pull_ext(40), version=version))
    assert later is not None
    assert later.code == 0


# ---- times


async def test_a_segment_whose_beginning_is_gone_is_not_the_answer_yet(mapped: MappedGroup) -> None:
    """Groups keep messages for different times: what is older may still be at another one."""
    await mapped.begin()
    mapped.tell(MOVED)
    asked = mapped.ask(BY_TIME, queue_ext(timestamp=1))
    mapped.masters.answer(0, {"offset": "45", "gantryFirstKept": "45"})
    assert (mapped.answer(asked) or asked).ext == {"offset": "0"}
    within = mapped.ask(BY_TIME, queue_ext(timestamp=1))
    mapped.masters.answer(0, {"offset": "46", "gantryFirstKept": "45"})
    assert (mapped.answer(within) or within).ext == {"offset": "46"}


async def test_a_request_with_a_number_is_refused_since_queues_move(mapped: MappedGroup) -> None:
    await came(mapped)
    asked = mapped.ask(RESET, reset_ext(gantryRequest=1))
    answer = mapped.answer(asked)
    assert answer is not None
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "gantry offsets reset" in (answer.remark or "")
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 42
