"""A drain of a group with closed segments: what was read is committed at other groups.

Or handed on to them, where it is not.
"""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.clients import drain as drain_module
from gantry_broker.clients.core.drain import DrainReport
from gantry_broker.clients.drain import GroupDrain
from gantry_broker.clients.mapped import committed_later, handing_over
from gantry_broker.clients.mapped.committed_later import CommittedLater
from gantry_broker.clients.mapped.places import IF_NONE_KEPT, PHYSICAL
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
COMMIT, QUERY = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "LOOK_EVERY_S", 0.05)


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


async def drained(mapped: MappedGroup, *queues: MappedQueue, **rows: int) -> GroupDrain:
    """A drain of the group, which had three messages of queue 0 when it moved, and these rows."""
    await begun(mapped, at(HERE), at(HERE, 1))
    send = {"producerGroup": "p", "topic": TOPIC, "defaultTopic": "TBW102"}
    send |= {"defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0}
    for _ in range(3):
        assert mapped.code(mapped.ask(RequestCode.SEND_MESSAGE, dict(send))) == 0
    for group, offset in rows.items():
        assert mapped.group.store.committed.commit(group, TOPIC, 0, offset)
    mapped.tell(*queues, epoch=8)
    leaving = Leaving()
    drain = mapped.processor.drain
    drain._group, drain._grace_s = leaving, 0.0
    leaving.drain_began_ms = 1
    drain.learned()
    return drain


async def report_when(drain: GroupDrain, holds: str) -> DrainReport:
    async with asyncio.timeout(PATIENCE_S):
        while drain.report is None or holds not in drain.report.waits_for:
            await asyncio.sleep(0.01)
    return drain.report


async def is_done(drain: GroupDrain) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while drain.report is None or not drain.report.done:
            await asyncio.sleep(0.01)


async def next_asked(mapped: MappedGroup, count: int = 1) -> list[tuple[str, int, dict[str, str]]]:
    """Other masters have these questions, which are not answered yet."""
    async with asyncio.timeout(PATIENCE_S):
        while len(mapped.masters.asked) < count:
            report = mapped.processor.drain.report
            assert report is None or not report.done
            await asyncio.sleep(0.01)
    return [(to, command.code, command.ext or {}) for to, command, _ in mapped.masters.asked]


async def test_a_drain_waits_until_what_it_holds_is_read_there(mapped: MappedGroup) -> None:
    drain = await drained(mapped, MOVED, g=1)
    assert (await report_when(drain, "2 messages of mapped wait for consumer group g")).unread == 2
    for _ in range(2):  # that of what was read, and that of what is handed on
        mapped.masters.answer(0, {"offset": "2"}, 0)
    assert (await report_when(drain, "1 messages")).unread == 1
    await next_asked(mapped)
    mapped.masters.answer(0, {"offset": "3"})
    await is_done(drain)
    await asyncio.sleep(2.5 * drain_module.LOOK_EVERY_S)
    assert drain.report == DrainReport(done=True), "what is known is not forgotten"


async def test_a_drain_hands_on_what_was_committed_before_it_is_done(mapped: MappedGroup) -> None:
    """A group that has read all, and is away, would begin at the end once this one is retired."""
    drain = await drained(mapped, MOVED, g=3)
    ((to, code, _),) = await next_asked(mapped)
    assert (to, code) == (THERE, QUERY)
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    assert await next_asked(mapped) == [
        (
            THERE,
            COMMIT,
            {
                "consumerGroup": "g",
                "topic": TOPIC,
                "queueId": str(AGAIN),
                "commitOffset": "3",
                PHYSICAL: "8",
                IF_NONE_KEPT: "true",
            },
        )
    ]
    report = await report_when(drain, f"{THERE} is to be told how far consumer group g")
    assert (report.done, len(drain.offsets)) == (False, 1)
    await asyncio.sleep(2.5 * drain_module.LOOK_EVERY_S)
    assert (drain.report, len(mapped.masters.asked)) == (report, 1), "one question at a time"
    mapped.masters.answer(0)
    await is_done(drain)
    assert mapped.masters.asked == []


async def test_a_group_that_takes_no_offsets_holds_up_the_drain_alone(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing_over, "ASKED_MAX", 1)
    other = MappedQueue((Segment(HERE, 0, 1), Segment(BEYOND, 0, AGAIN + 1)), "", 1)
    drain = await drained(mapped, MOVED, other, g=3, h=3)
    assert mapped.group.store.committed.commit("g", TOPIC, 1, 0)
    for to, name in ((THERE, "g"), (BEYOND, "g"), (THERE, "h")):  # who was not tried comes first
        ((asked, _, ext),) = await next_asked(mapped)
        assert (asked, ext["consumerGroup"]) == (to, name)
        _, _, done = mapped.masters.asked.pop()
        done(Busy("no master"))
    ((asked, _, _),) = await next_asked(mapped)
    assert asked == BEYOND, "its turn comes although the other group does not answer"
    mapped.masters.answer(0, {"offset": "3"})
    waits_for = f"{THERE} is to be told how far consumer group g has read mapped; 1 more"
    assert not (await report_when(drain, waits_for)).done
    for _ in range(2):
        await next_asked(mapped)
        mapped.masters.answer(0, {"offset": "3"})
    await is_done(drain)


async def test_what_was_read_only_in_part_is_handed_on_as_it_is(mapped: MappedGroup) -> None:
    await drained(mapped, MOVED, g=1)
    for _ in range(2):
        await next_asked(mapped)
        mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND, None, 0)
    ((_, code, ext),) = await next_asked(mapped)
    assert (code, ext["commitOffset"]) == (COMMIT, "1")


async def test_a_drain_waits_for_moves_of_queues_that_were_read(mapped: MappedGroup) -> None:
    drain = await drained(mapped, at(HERE, 0, THERE), at(HERE, 1), g=3)
    await report_when(drain, "queues of mapped, which consumer group g reads, move")
    assert mapped.masters.asked == []
    mapped.tell(MOVED, at(HERE, 1), epoch=9)
    await next_asked(mapped)
    mapped.masters.answer(0, {"offset": "3"})
    await is_done(drain)
