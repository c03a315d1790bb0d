"""A drain of a group with closed segments: what was read is committed at other groups."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.clients.core.drain import DrainReport
from gantry_broker.clients.mapped import committed_later
from gantry_broker.clients.mapped.committed_later import CommittedLater
from gantry_broker.clients.mapped.places import PHYSICAL
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.errors import Busy
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, MappedQueue, Segment
from support.mapped_group import BEYOND, HERE, THERE, TOPIC, MappedGroup, at
from support.patience import PATIENCE_S

AGAIN = MAPPED_QUEUES_MAX
MOVED = MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 3, AGAIN)), "", 1)
MOVED_ON = MappedQueue((*MOVED.segments, Segment(BEYOND, 9, 2 * AGAIN)), "", 2)
BACK = MappedQueue((*MOVED.segments, Segment(HERE, 9, 2 * AGAIN)), "", 2)
PLACE = ("g", TOPIC, 0)


class Leaving:
    drain_began_ms: int | None = None
    is_confirmed = True


async def begun(mapped: MappedGroup, *queues: MappedQueue) -> CommittedLater:
    await mapped.begin()
    mapped.tell(*queues, epoch=7)
    return CommittedLater(mapped.book)


async def test_the_group_that_has_the_queue_is_asked(mapped: MappedGroup) -> None:
    later = await begun(mapped, MOVED)
    later.ask([PLACE])
    ((group, command, _),) = mapped.masters.asked
    assert (group, command.code) == (THERE, RequestCode.QUERY_CONSUMER_OFFSET)
    assert command.ext == {
        "consumerGroup": "g",
        "topic": TOPIC,
        "queueId": str(AGAIN),
        "setZeroIfNotFound": "false",
        PHYSICAL: "7",
    }
    assert later.offset(PLACE) is None
    mapped.masters.answer(0, {"offset": "5"})
    assert later.offset(PLACE) == 5


async def test_the_last_segment_is_asked_first_and_none_before_ours(mapped: MappedGroup) -> None:
    later = await begun(mapped, MOVED_ON)
    later.ask([PLACE])
    for group in (BEYOND, THERE):
        assert mapped.masters.asked[-1][0] == group
        mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    assert mapped.masters.asked == []
    assert later.offset(PLACE) is None


async def test_a_group_that_cannot_be_asked_is_asked_again(mapped: MappedGroup) -> None:
    later = await begun(mapped, MOVED)
    later.ask([PLACE])
    later.ask([PLACE])
    assert len(mapped.masters.asked) == 1, "one question at a time"
    _, _, done = mapped.masters.asked.pop()
    done(Busy("no master"))
    assert later.offset(PLACE) is None
    later.ask([PLACE])
    mapped.masters.answer(0, {"offset": "many"})
    assert later.offset(PLACE) is None
    later.ask([PLACE])
    mapped.masters.answer(0, {"offset": "3"})
    assert later.offset(PLACE) == 3


async def test_what_is_of_no_closed_segment_is_not_asked(mapped: MappedGroup) -> None:
    later = await begun(mapped, at(HERE), MOVED)
    later.ask([PLACE, ("g", "plain", 0), ("g", TOPIC, 3), ("g", TOPIC, 7)])
    assert mapped.masters.asked == []


async def test_a_queue_that_came_back_is_asked_where_it_was(mapped: MappedGroup) -> None:
    later = await begun(mapped, BACK)
    assert mapped.book.later(TOPIC, 0) == (Segment(THERE, 3, AGAIN),)
    assert mapped.book.later(TOPIC, 2 * AGAIN) == ()
    assert later.offset(PLACE) is None


async def test_questions_are_bounded_and_take_turns(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_later, "ASKED_MAX", 2)
    later = await begun(mapped, MOVED)
    places = [(f"g{number}", TOPIC, 0) for number in range(5)]
    asked: list[str] = []
    for _ in range(5):
        later.ask(places)
        assert len(mapped.masters.asked) == 2
        for _, command, _ in list(mapped.masters.asked):
            assert command.ext is not None
            asked.append(command.ext["consumerGroup"])
            mapped.masters.answer(0, {"offset": "1"}, 0)
    assert sorted(asked) == sorted(group for group, _, _ in places * 2)
    later.ask(places[:1])
    assert [later.offset(place) for place in places] == [1, None, None, None, None]


async def test_a_drain_waits_until_what_it_holds_is_read_there(mapped: MappedGroup) -> None:
    await begun(mapped, at(HERE))
    send = {"producerGroup": "p", "topic": TOPIC, "defaultTopic": "TBW102"}
    send |= {"defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0}
    for _ in range(3):
        assert mapped.code(mapped.ask(RequestCode.SEND_MESSAGE, dict(send))) == 0
    assert mapped.group.store.committed.commit("g", TOPIC, 0, 1)
    mapped.tell(MOVED, epoch=8)
    leaving = Leaving()
    drain = mapped.processor.drain
    drain._group, drain._grace_s = leaving, 0.0
    leaving.drain_began_ms = 1
    drain.learned()

    async def report_when(holds: str) -> DrainReport:
        async with asyncio.timeout(PATIENCE_S):
            while drain.report is None or holds not in drain.report.waits_for:
                await asyncio.sleep(0.01)
        return drain.report

    assert (await report_when("2 messages of mapped wait for consumer group g")).unread == 2
    mapped.masters.answer(0, {"offset": "2"})
    assert (await report_when("1 messages")).unread == 1
    async with asyncio.timeout(PATIENCE_S):
        while not mapped.masters.asked:
            await asyncio.sleep(0.01)
    mapped.masters.answer(0, {"offset": "3"})
    async with asyncio.timeout(PATIENCE_S):
        while drain.unread:
            await asyncio.sleep(0.01)
