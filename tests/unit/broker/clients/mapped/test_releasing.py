"""A master gives segments back of which it has nothing left, once their offsets are known later."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from gantry_broker.clients.mapped import handed_on, releasing
from gantry_broker.clients.mapped.places import IF_NONE_KEPT, PHYSICAL
from gantry_broker.store.tables.resets import RESET_MARK
from gantry_protocol.bodies.queue_maps import LeastOffsets
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import Busy, RequestTimeout
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, MappedQueue, Segment
from gantry_protocol.records import MessageRecord
from support.mapped_group import BEYOND, HERE, OLDER, THERE, TOPIC, MappedGroup, at
from support.patience import PATIENCE_S

AGAIN = MAPPED_QUEUES_MAX
LEFT = MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 3, AGAIN)), "", 1)
LEFT_AGAIN = MappedQueue((*LEFT.segments, Segment(BEYOND, 9, 2 * AGAIN)), "", 2)
BACK = MappedQueue((*LEFT.segments, Segment(HERE, 9, 2 * AGAIN)), "", 2)
COMMIT, QUERY = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET
SEND, PULL = RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "ROUND_S", 0.01)
    monkeypatch.setattr(releasing, "STEP_S", 0.0)


async def begin(mapped: MappedGroup, *queues: MappedQueue, trimmed: int = 3) -> None:
    """Three messages of queue 0 came before it has left; of them so many are deleted."""
    await mapped.begin(epoch=7)
    mapped.tell(at(HERE), at(HERE, 1))
    for _ in range(3):
        mapped.group.append([MessageRecord(topic=TOPIC, queue_id=0, body=b"x")], lambda _: None)
    trim(mapped, trimmed)
    mapped.tell(*queues, epoch=2)


def trim(mapped: MappedGroup, below: int) -> None:
    mapped.group.messages._queues.trim((TOPIC, 0), below)


def commit(mapped: MappedGroup, group: str, offset: int, queue_id: int = 0) -> None:
    """And it is confirmed."""
    committed = mapped.group.store.committed
    assert committed.commit(group, TOPIC, queue_id, offset)
    records, _ = committed.take_records()
    mapped.group.append(records, lambda _: None)
    assert not committed.must_write(group, TOPIC, queue_id)


def least(command: RemotingCommand) -> dict[int, tuple[int, int]]:
    return msgspec.json.decode(command.body, type=LeastOffsets).least


async def nothing_is_said(mapped: MappedGroup) -> None:
    mapped.controllers.asked.clear()
    await asyncio.sleep(6 * releasing.ROUND_S)
    asked = [command.code for command, _ in mapped.controllers.asked]
    assert RequestCode.GANTRY_RELEASE_SEGMENTS not in asked


async def asked(mapped: MappedGroup, count: int = 1) -> None:
    """Other masters were asked so many questions that are not answered yet."""
    async with asyncio.timeout(PATIENCE_S):
        while len(mapped.masters.asked) < count:
            await asyncio.sleep(0.001)
    assert len(mapped.masters.asked) == count


async def test_a_segment_is_reported_once_nothing_is_left(mapped: MappedGroup) -> None:
    await begin(mapped, LEFT, trimmed=2)
    await nothing_is_said(mapped)
    trim(mapped, 3)
    command, _ = await mapped.release()
    assert least(command) == {0: (0, 3)}
    assert command.ext is not None
    named = ("clusterName", "brokerName", "brokerId", "masterEpoch", "incarnation", "topic")
    assert [command.ext[name] for name in named] == [
        mapped.group.cluster,
        HERE,
        "1",
        "7",
        "i",
        TOPIC,
    ]


async def test_one_without_a_message_is_reported_and_one_that_lost_them_is_not(
    mapped: MappedGroup,
) -> None:
    never = MappedQueue((Segment(HERE, 40, AGAIN), Segment(THERE, 40, 2 * AGAIN)), "", 2)
    lost = MappedQueue((Segment(HERE, 40, AGAIN + 1), Segment(THERE, 50, 2 * AGAIN + 1)), "", 2)
    await begin(mapped, never, lost)
    command, _ = await mapped.release()
    assert least(command) == {0: (AGAIN, 40)}


@pytest.mark.parametrize(
    "queue",
    [
        at(HERE),  # open
        MappedQueue((Segment(HERE, 0, 0),), THERE, 0),  # about to leave
        MappedQueue((Segment(THERE, 0, AGAIN), *LEFT.segments), "", 2),  # not the first one
        MappedQueue((Segment(THERE, 0, 0), Segment(HERE, 3, AGAIN)), "", 1),  # another group's
    ],
)
async def test_nothing_else_is_reported(mapped: MappedGroup, queue: MappedQueue) -> None:
    await begin(mapped, queue)
    await nothing_is_said(mapped)


async def test_it_is_reported_until_the_map_says_so(mapped: MappedGroup) -> None:
    await begin(mapped, LEFT)
    for outcome in (RequestTimeout("late"), None):
        command, done = await mapped.release()
        await nothing_is_said(mapped)  # one report at a time
        done(outcome or reply(command, ResponseCode.SYSTEM_BUSY, "no leader"))
    command, done = await mapped.release()
    mapped.tell(MappedQueue(LEFT.segments[1:], "", 1), epoch=3)
    done(reply(command))
    await nothing_is_said(mapped)


async def test_who_is_master_no_more_says_nothing(mapped: MappedGroup) -> None:
    await begin(mapped, LEFT, trimmed=2)
    mapped.book.end()
    trim(mapped, 3)
    await nothing_is_said(mapped)


async def test_steps_are_bounded_and_go_through_all(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of which something is left do not keep the others from being looked at."""
    monkeypatch.setattr(releasing, "QUEUES_MAX", 1)
    kept = MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 3, AGAIN)), "", 1)
    empty = [
        MappedQueue((Segment(HERE, 5, number), Segment(THERE, 5, AGAIN + number)), "", 1)
        for number in (1, 2)
    ]
    await begin(mapped, kept, *empty, trimmed=0)
    reported: set[int] = set()
    async with asyncio.timeout(PATIENCE_S):
        while reported != {1, 2}:
            command, done = await mapped.release()
            assert len(least(command)) == 1
            reported |= least(command).keys()
            done(reply(command))


async def test_what_was_committed_there_is_handed_on_before(mapped: MappedGroup) -> None:
    await begin(mapped, LEFT_AGAIN)
    commit(mapped, "g", 2)
    commit(mapped, RESET_MARK + "h", 1)
    for group, queue_id in ((BEYOND, 2 * AGAIN), (THERE, AGAIN)):
        await asked(mapped)
        to, command, _ = mapped.masters.asked[0]
        assert (to, command.code) == (group, QUERY)
        assert command.ext == {
            "consumerGroup": "g",
            "topic": TOPIC,
            "queueId": str(queue_id),
            "setZeroIfNotFound": "false",
            PHYSICAL: "2",
        }
        mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    to, command, _ = mapped.masters.asked[0]
    assert (to, command.code) == (BEYOND, COMMIT)
    assert command.ext == {
        "consumerGroup": "g",
        "topic": TOPIC,
        "queueId": str(2 * AGAIN),
        "commitOffset": "3",  # there is nothing before it any more
        PHYSICAL: "2",
        IF_NONE_KEPT: "true",
    }
    await nothing_is_said(mapped)
    mapped.masters.answer(0)
    command, _ = await mapped.release()
    assert least(command) == {0: (0, 3)}


async def test_a_group_that_has_come_further_is_left_as_it_is(mapped: MappedGroup) -> None:
    await begin(mapped, LEFT_AGAIN)
    commit(mapped, "g", 2)
    await asked(mapped)
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    mapped.masters.answer(0, {"offset": "4"})
    await mapped.release()
    assert mapped.masters.asked == []


async def test_a_segment_whose_offsets_cannot_be_handed_on_stays(mapped: MappedGroup) -> None:
    """Others do not wait for it."""
    other = MappedQueue((Segment(HERE, 5, 1), Segment(THERE, 5, AGAIN + 1)), "", 1)
    await begin(mapped, LEFT, other)
    commit(mapped, "g", 2)
    for outcome in (Busy("no master"), RequestTimeout("late")):
        await asked(mapped)
        _, _, done = mapped.masters.asked.pop()
        done(outcome)
        command, told = await mapped.release()
        assert least(command) == {1: (1, 5)}
        told(reply(command))
    await asked(mapped)
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    mapped.masters.answer(ResponseCode.NOT_LEADER_FOR_QUEUE)
    command, _ = await mapped.release()
    assert least(command) == {1: (1, 5)}


async def test_segments_of_groups_that_are_gone_are_not_asked(mapped: MappedGroup) -> None:
    await begin(mapped, LEFT_AGAIN)
    mapped.tell(LEFT_AGAIN, epoch=3, masters={HERE: "a:1", BEYOND: "c:1"})
    commit(mapped, "g", 2)
    await asked(mapped)
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    assert [(to, command.code) for to, command, _ in mapped.masters.asked] == [(BEYOND, COMMIT)]


async def test_what_is_handed_on_to_oneself_is_in_the_log_before_the_report(
    mapped: MappedGroup,
) -> None:
    await begin(mapped, BACK)
    commit(mapped, "g", 2)
    mapped.group.holding = True
    await asked(mapped)
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    await nothing_is_said(mapped)
    assert mapped.group.store.committed.query("g", TOPIC, 2 * AGAIN) == 3
    mapped.group.holding = False
    mapped.group.confirm()
    await mapped.release()


async def test_offsets_are_handed_on_a_few_at_a_time(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handed_on, "ASKED_MAX", 2)
    await begin(mapped, LEFT)
    names = [f"g{number}" for number in range(5)]
    for name in names:
        commit(mapped, name, 3)
    seen: list[str] = []
    for count in (2, 2, 1):
        await asked(mapped, count)
        for _, command, _ in list(mapped.masters.asked):
            assert command.ext is not None
            seen.append(command.ext["consumerGroup"])
            mapped.masters.answer(0, {"offset": "7"}, 0)
    await mapped.release()
    assert sorted(seen) == names


# ---- clients of a queue whose first segments were released


def queue_ext(**more: object) -> dict[str, object]:
    return {"consumerGroup": "g", "topic": TOPIC, "queueId": 0, **more}


RELEASED = MappedQueue((Segment(HERE, 40, AGAIN), Segment(THERE, 50, 2 * AGAIN)), "", 2)


async def test_a_reader_from_before_is_led_to_what_is_left(mapped: MappedGroup) -> None:
    await begin(mapped, RELEASED)
    pull = queue_ext(queueOffset=7, maxMsgNums=32, sysFlag=4, commitOffset=0)
    pull |= {"suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
    answer = mapped.answer(mapped.ask(PULL, pull | {"expressionType": "TAG"}))
    assert answer is not None
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert (answer.ext or {})["nextBeginOffset"] == "40"


@pytest.mark.parametrize(
    "code", [RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP]
)
async def test_the_beginning_never_goes_back(mapped: MappedGroup, code: RequestCode) -> None:
    """The first segment that is left may have no message yet, and then knows no offset."""
    first = MappedQueue((Segment(HERE, 40, AGAIN),), "", 1)
    await begin(mapped, first)
    answer = mapped.answer(mapped.ask(code, queue_ext(timestamp=5)))
    assert answer is not None
    assert (answer.code, answer.ext) == (0, {"offset": "40"})


async def test_an_older_client_finds_what_it_committed_in_a_released_segment(
    mapped: MappedGroup,
) -> None:
    """It would begin at the end of this group's part of the queue otherwise."""
    again = MappedQueue((Segment(THERE, 3, AGAIN), Segment(HERE, 9, 2 * AGAIN)), "", 2)
    await begin(mapped, again)
    query = queue_ext(setZeroIfNotFound="false")
    assert mapped.code(mapped.ask(QUERY, query, version=OLDER)) == ResponseCode.QUERY_NOT_FOUND
    commit(mapped, "g", 2)
    answer = mapped.answer(mapped.ask(QUERY, query, version=OLDER))
    assert answer is not None
    assert (answer.code, answer.ext) == (0, {"offset": "2"})
    commit(mapped, "g", 11, 2 * AGAIN)
    answer = mapped.answer(mapped.ask(QUERY, query, version=OLDER))
    assert answer is not None
    assert answer.ext == {"offset": "11"}


async def test_what_is_handed_on_takes_nothing_back(mapped: MappedGroup) -> None:
    await begin(mapped, MappedQueue((Segment(HERE, 9, AGAIN),), "", 1))
    ext = queue_ext(queueId=AGAIN, commitOffset=3) | {PHYSICAL: 2, IF_NONE_KEPT: "true"}
    first = mapped.ask(COMMIT, ext)
    async with asyncio.timeout(PATIENCE_S):
        while mapped.code(first) is None:
            await asyncio.sleep(0.01)
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 3
    commit(mapped, "g", 12, AGAIN)
    assert mapped.code(mapped.ask(COMMIT, ext)) == 0
    assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 12
