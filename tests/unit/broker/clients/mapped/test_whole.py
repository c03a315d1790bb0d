"""What tools add up of mapped topics: each queue once, and nothing left of what was consumed."""

from __future__ import annotations

from typing import TypeVar

import pytest
from gantry_broker.clients.mapped import whole
from gantry_protocol.bodies import OffsetWrapper, TopicOffset, decode_queue_table
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.errors import Busy
from gantry_protocol.queue_map import GAP, MAPPED_QUEUES_MAX, MappedQueue, Segment
from support.mapped_group import BEYOND, HERE, OLDER, STATIC, THERE, TOPIC, MappedGroup, at

from .test_requests import CAME, MOVED, send_ext
from .test_resets import join

AGAIN = MAPPED_QUEUES_MAX
SEND, QUERY = RequestCode.SEND_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET
MINIMUM, MAXIMUM = RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET
OTHERS = (at(THERE, 1), at(THERE, 2), at(THERE, 3))
T = TypeVar("T")
NOT_FOUND = ResponseCode.QUERY_NOT_FOUND


async def begin(mapped: MappedGroup, queue: MappedQueue, messages: int = 3) -> None:
    """Queue 0 is ``queue``, with so many messages where it takes them, if that is here."""
    await mapped.begin()
    mapped.tell(queue, *OTHERS)
    if queue.open.group == HERE:
        for _ in range(messages):
            assert mapped.code(mapped.ask(SEND, send_ext())) == 0


def commit(mapped: MappedGroup, offset: int, queue_id: int) -> None:
    assert mapped.group.store.committed.commit("g", TOPIC, queue_id, offset)


class Asked:
    """GetConsumeStats of group ``g``, or GetTopicStatsInfo."""

    def __init__(self, mapped: MappedGroup, code: RequestCode) -> None:
        self._mapped = mapped
        self._asked = mapped.ask(code, {"consumerGroup": "g", "topic": TOPIC})

    @property
    def is_waiting(self) -> bool:
        return self._mapped.answer(self._asked) is None

    def _table(self, kind: type[T]) -> dict[int, T]:
        answer = self._mapped.answer(self._asked)
        assert answer is not None
        assert answer.code == 0, answer.remark
        table = decode_queue_table(answer.body, kind)
        assert all((queue.broker_name, queue.topic) == (HERE, TOPIC) for queue in table)
        return {queue.queue_id: row for queue, row in table.items()}

    @property
    def rows(self) -> dict[int, tuple[int, int]]:
        """By queue, its end and how far the group is."""
        table = self._table(OffsetWrapper)
        return {number: (row.broker_offset, row.consumer_offset) for number, row in table.items()}

    @property
    def ends(self) -> dict[int, tuple[int, int]]:
        table = self._table(TopicOffset)
        return {number: (row.min_offset, row.max_offset) for number, row in table.items()}


def progress(mapped: MappedGroup) -> Asked:
    return Asked(mapped, RequestCode.GET_CONSUME_STATS)


def question(mapped: MappedGroup) -> tuple[str, int, str]:
    """The oldest that another master was asked."""
    group, command, _ = mapped.masters.asked[0]
    return group, command.code, (command.ext or {})["queueId"]


async def test_the_group_that_has_a_queue_tells_of_it(mapped: MappedGroup) -> None:
    await begin(mapped, CAME)
    commit(mapped, 42, AGAIN)
    assert progress(mapped).rows == {0: (43, 42)}
    commit(mapped, 43, AGAIN)
    assert progress(mapped).rows == {0: (43, 43)}
    assert mapped.masters.asked == []


async def test_a_group_that_a_queue_has_left_tells_nothing_of_it(mapped: MappedGroup) -> None:
    """Its consumers commit elsewhere by now: it would show their lag for ever."""
    await begin(mapped, MOVED)
    join(mapped, STATIC)
    commit(mapped, 2, 0)
    assert progress(mapped).rows == {}
    assert mapped.masters.asked == []


async def test_what_was_committed_before_the_queue_came_counts(mapped: MappedGroup) -> None:
    await begin(mapped, CAME)
    join(mapped, STATIC)
    asked = progress(mapped)
    assert question(mapped) == (THERE, QUERY, "0")
    mapped.masters.answer(0, {"offset": "17"})
    assert asked.rows == {0: (43, 17)}


async def test_who_has_committed_nothing_begins_at_the_beginning(mapped: MappedGroup) -> None:
    await begin(mapped, CAME)
    join(mapped, STATIC)
    asked = progress(mapped)
    mapped.masters.answer(NOT_FOUND)
    assert question(mapped) == (THERE, MINIMUM, "0")
    mapped.masters.answer(0, {"offset": "5"})
    assert asked.rows == {0: (43, 5)}


async def test_who_cannot_be_asked_holds_up_no_answer(mapped: MappedGroup) -> None:
    await begin(mapped, CAME)
    join(mapped, STATIC)
    asked = progress(mapped)
    for _ in range(2):
        mapped.masters.asked.pop()[2](Busy("nobody"))
    assert asked.rows == {0: (43, 40)}


async def test_what_nobody_can_read_is_no_lag(mapped: MappedGroup) -> None:
    anew = MappedQueue((Segment(BEYOND, 0, 0), Segment(HERE, GAP, AGAIN)), "", 1)
    await begin(mapped, anew)
    mapped.tell(anew, *OTHERS, epoch=2, masters={HERE: "a:1", THERE: "b:1"})
    commit(mapped, 7, AGAIN)
    assert progress(mapped).rows == {0: (GAP + 3, GAP)}


@pytest.mark.parametrize("later", [None, 60])
async def test_a_group_without_members_is_told_of_where_it_committed_last(
    mapped: MappedGroup, later: int | None
) -> None:
    """It stopped before the queue has left, and nobody else knows it, or after."""
    await begin(mapped, MappedQueue((*MOVED.segments, Segment(BEYOND, 50, 2 * AGAIN)), "", 2))
    commit(mapped, 2, 0)
    asked = progress(mapped)
    assert question(mapped) == (BEYOND, QUERY, str(2 * AGAIN))
    mapped.masters.answer(NOT_FOUND)
    assert question(mapped) == (THERE, QUERY, str(AGAIN))
    if later is None:
        mapped.masters.answer(NOT_FOUND)
        assert question(mapped) == (BEYOND, MAXIMUM, str(2 * AGAIN))
        mapped.masters.answer(0, {"offset": "90"})
        assert asked.rows == {0: (90, 2)}
    else:
        mapped.masters.answer(0, {"offset": str(later)})
        assert asked.rows == {}


async def test_a_group_without_members_is_told_of_once(mapped: MappedGroup) -> None:
    """This one knows it by another queue, and the other one has its newest offset of this."""
    await mapped.begin()
    mapped.tell(CAME, at(HERE, 1), *OTHERS[1:])
    commit(mapped, 0, 1)
    asked = progress(mapped)
    assert question(mapped) == (THERE, QUERY, "0")
    mapped.masters.answer(0, {"offset": "17"})
    assert asked.rows == {1: (0, 0)}


async def test_older_clients_see_each_groups_part(mapped: MappedGroup) -> None:
    await begin(mapped, CAME)
    join(mapped, OLDER)
    commit(mapped, 41, AGAIN)
    assert progress(mapped).rows[AGAIN] == (43, 41)
    assert mapped.masters.asked == []


async def test_questions_are_bounded(mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "ASKED_MAX", 1)
    second = MappedQueue((Segment(THERE, 0, 1), Segment(HERE, 40, AGAIN + 1)), "", 1)
    await mapped.begin()
    mapped.tell(CAME, second, *OTHERS[1:])
    join(mapped, STATIC)
    asked = progress(mapped)
    for offset in (17, 18):
        assert len(mapped.masters.asked) == 1
        mapped.masters.answer(0, {"offset": str(offset)})
    assert asked.rows == {0: (40, 17), 1: (40, 18)}


async def test_the_ends_of_a_topic_are_those_of_whole_queues(mapped: MappedGroup) -> None:
    await begin(mapped, CAME)
    asked = Asked(mapped, RequestCode.GET_TOPIC_STATS_INFO)
    assert asked.is_waiting
    assert question(mapped) == (THERE, MINIMUM, "0")
    mapped.masters.answer(0, {"offset": "5"})
    assert asked.ends == {0: (5, 43)}
    mapped.tell(MappedQueue(CAME.segments[1:], "", 1), *OTHERS, epoch=2)
    assert Asked(mapped, RequestCode.GET_TOPIC_STATS_INFO).ends == {0: (40, 43)}


async def test_a_segment_without_a_message_ends_where_it_starts(mapped: MappedGroup) -> None:
    await begin(mapped, MappedQueue(CAME.segments[1:], "", 1), messages=0)
    commit(mapped, 40, AGAIN)
    assert progress(mapped).rows == {0: (40, 40)}
    assert Asked(mapped, RequestCode.GET_TOPIC_STATS_INFO).ends == {0: (40, 40)}
