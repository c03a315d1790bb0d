"""POP of mapped topics: each group hands out what it holds, and nothing too early or never."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.clients import offsets
from gantry_broker.clients.mapped.committed_later import CommittedLater
from gantry_broker.clients.mapped.places import AS_POPPED, IF_NONE_KEPT, PHYSICAL, parts_held
from gantry_broker.store.tables.resets import due_reset
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.errors import Busy
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, MappedQueue, QueueMap, Segment
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Index
from support.mapped_group import BEYOND, HERE, SERVING, STATIC, THERE, TOPIC, MappedGroup
from support.pops import GROUP, Consumer

from .test_resets import join

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

AGAIN = MAPPED_QUEUES_MAX
HOME = MappedQueue((Segment(HERE, 0, 0),))
MOVED = MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 2, AGAIN)), "", 1)
CAME = MappedQueue((Segment(THERE, 0, 0), Segment(HERE, 40, AGAIN)), "", 1)
BACK = MappedQueue(
    (Segment(HERE, 0, 0), Segment(THERE, 2, AGAIN), Segment(HERE, 5, 2 * AGAIN)), "", 2
)
LEFT = MappedQueue((*BACK.segments, Segment(THERE, 6, 3 * AGAIN)), "", 3)
QUERY, COMMIT = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
FROM_END = {"initMode": 1}
IN_ORDER = {"order": "true", "queueId": 0}


@pytest.fixture(autouse=True)
def no_queue_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "_YOUNG_QUEUE_BYTES", -1)


@pytest.fixture
async def consumer(mapped: MappedGroup) -> Consumer:
    await mapped.begin()
    return Consumer(mapped.processor)


def fill(mapped: MappedGroup, *bodies: str, queue_id: int) -> None:
    for body in bodies:
        record = MessageRecord(
            topic=TOPIC,
            queue_id=queue_id,
            body=body.encode(),
            born_host=mapped.group.store_host,
            store_host=mapped.group.store_host,
        )
        mapped.group.append([record], lambda outcome: None)


async def popped(consumer: Consumer, **changes: object) -> dict[str, str]:
    return await consumer.pop(topic=TOPIC, **changes)


def asked(mapped: MappedGroup) -> list[tuple[str, int, str, bool]]:
    """Whom, what, of which queue, and whether as who pops."""
    return [
        (group, command.code, command.ext["queueId"], command.ext.get(AS_POPPED) == "true")
        for group, command, _ in mapped.masters.asked
    ]


# ---- what stands here


@pytest.mark.parametrize("number", [-1, 0])
async def test_a_group_hands_out_what_it_holds(mapped, consumer, number: int) -> None:
    mapped.tell(CAME)
    fill(mapped, "a", "b", queue_id=AGAIN)
    found = await popped(consumer, queueId=number)
    assert list(found) == ["a", "b"]
    assert found["a"].split(" ")[-2:] == [str(AGAIN), "40"]
    assert (await consumer.ack(found["a"], topic=TOPIC)).code == 0
    await asyncio.sleep(10.1)
    assert list(await popped(consumer, queueId=number)) == ["b"]
    assert await popped(consumer, queueId=1) == {}


async def test_what_is_in_flight_stays_where_its_message_is(mapped, consumer) -> None:
    """The queue moves; the receipt is good, and what was forgotten comes again."""
    mapped.tell(HOME)
    fill(mapped, "a", "b", queue_id=0)
    found = await popped(consumer)
    mapped.tell(MOVED, epoch=2)
    assert (await consumer.ack(found["a"], topic=TOPIC)).code == 0
    await asyncio.sleep(10.1)
    again = await popped(consumer)
    assert list(again) == ["b"]
    assert (await consumer.ack(again["b"], topic=TOPIC)).code == 0
    assert mapped.group.store.committed.query(GROUP, TOPIC, 0) == 2
    assert mapped.masters.asked == []


async def test_the_offset_of_a_segment_that_is_done_is_kept(mapped, consumer) -> None:
    """A group that is forgotten there would get everything anew."""
    mapped.tell(MOVED)
    fill(mapped, "a", "b", queue_id=0)
    for receipt in (await popped(consumer)).values():
        await consumer.ack(receipt, topic=TOPIC)
    assert mapped.processor.pops.taking.take_groups() == {GROUP}
    assert await popped(consumer) == {}
    assert mapped.processor.pops.taking.take_groups() == {GROUP}


async def test_who_waits_is_woken_by_what_comes_to_a_segment(mapped, consumer) -> None:
    mapped.tell(CAME)
    asked, answer = consumer.ask(200050, {**_POP, "pollTime": 5_000})
    assert answer is None
    await asyncio.sleep(1)
    fill(mapped, "a", queue_id=AGAIN)
    await asyncio.sleep(0.01)
    assert consumer.answer_to(asked).code == 0


async def test_who_waits_is_woken_once_a_queue_has_come(mapped, consumer) -> None:
    mapped.tell(CAME)
    fill(mapped, "a", queue_id=AGAIN)
    mapped.tell(MappedQueue((Segment(THERE, 0, 0),)), epoch=2)
    asked, answer = consumer.ask(200050, {**_POP, "pollTime": 5_000})
    assert answer is None
    await asyncio.sleep(1)
    mapped.tell(CAME, epoch=3)
    await asyncio.sleep(0.01)
    assert consumer.answer_to(asked).code == 0


_POP = {
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "queueId": 0,
    "maxMsgNums": 32,
    "invisibleTime": 10_000,
    "bornTime": 0,
    "initMode": 0,
}


# ---- where a consumer group begins


async def test_who_popped_before_the_move_misses_nothing(mapped, consumer) -> None:
    mapped.tell(CAME, epoch=7)
    fill(mapped, "a", queue_id=AGAIN)
    assert await popped(consumer, **FROM_END) == {}
    assert asked(mapped) == [(THERE, QUERY, "0", True)]
    assert mapped.masters.asked[0][1].ext[PHYSICAL] == "7"
    assert await popped(consumer, **FROM_END) == {}
    assert len(mapped.masters.asked) == 1, "one question at a time"
    mapped.masters.answer(0, {"offset": "17"})
    await asyncio.sleep(0.01)
    assert list(await popped(consumer, **FROM_END)) == ["a"]


async def test_whom_nobody_knows_begins_with_what_is_new(mapped, consumer) -> None:
    mapped.tell(CAME)
    fill(mapped, "old", queue_id=AGAIN)
    await popped(consumer, **FROM_END)
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    await asyncio.sleep(0.01)
    assert await popped(consumer, **FROM_END) == {}
    fill(mapped, "new", queue_id=AGAIN)
    assert list(await popped(consumer, **FROM_END)) == ["new"]
    assert mapped.masters.asked == []


async def test_a_closed_segment_has_nothing_for_a_new_group(mapped, consumer) -> None:
    mapped.tell(MOVED)
    fill(mapped, "a", "b", queue_id=0)
    assert await popped(consumer, **FROM_END) == {}
    assert mapped.group.store.committed.query(GROUP, TOPIC, 0) is None
    assert list(await popped(consumer, initMode=0)) == ["a", "b"]


async def test_nobody_begins_before_all_earlier_segments_are_asked(mapped, consumer) -> None:
    mapped.tell(BACK)
    fill(mapped, "a", queue_id=2 * AGAIN)
    mapped.group.store.committed.commit(GROUP, TOPIC, 0, 2)  # in the first one, here
    assert await popped(consumer, **FROM_END) == {}
    assert asked(mapped) == [(THERE, QUERY, str(AGAIN), True)]
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    await asyncio.sleep(0.01)
    assert list(await popped(consumer, **FROM_END)) == ["a"]


@pytest.mark.parametrize("word", [ResponseCode.SYSTEM_BUSY, Busy("no master"), 0], ids=str)
async def test_who_does_not_answer_is_asked_again(mapped, consumer, word) -> None:
    mapped.tell(CAME)
    fill(mapped, "a", queue_id=AGAIN)
    await popped(consumer, **FROM_END)
    if isinstance(word, Busy):
        mapped.masters.asked.pop()[2](word)
    else:
        mapped.masters.answer(word, {"offset": "many"})
    assert await popped(consumer, **FROM_END) == {}
    assert mapped.masters.asked == []
    await asyncio.sleep(0.3)
    assert await popped(consumer, **FROM_END) == {}
    mapped.masters.answer(0, {"offset": "0"})
    await asyncio.sleep(0.01)
    assert list(await popped(consumer, **FROM_END)) == ["a"]


async def test_what_a_group_that_is_gone_knew_counts_as_known(mapped, consumer) -> None:
    mapped.tell(CAME, masters={HERE: SERVING[HERE], BEYOND: SERVING[BEYOND]})
    fill(mapped, "a", queue_id=AGAIN)
    assert list(await popped(consumer, **FROM_END)) == ["a"]
    assert mapped.masters.asked == []


# ---- offsets from before


async def test_an_offset_from_before_leads_earlier_segments_back(mapped, consumer) -> None:
    """As clients that pull have committed it; a group that has an offset there keeps it."""
    mapped.tell(CAME)
    fill(mapped, "a", queue_id=AGAIN)
    mapped.group.store.committed.commit(GROUP, TOPIC, AGAIN, 17)
    assert await popped(consumer) == {}
    assert asked(mapped) == [(THERE, COMMIT, "0", True)]
    ext = mapped.masters.asked[0][1].ext
    assert (ext["commitOffset"], ext[IF_NONE_KEPT]) == ("17", "true")
    assert mapped.group.store.committed.query(GROUP, TOPIC, AGAIN) == 17
    mapped.masters.answer(0)
    await asyncio.sleep(0.01)
    assert mapped.group.store.committed.query(GROUP, TOPIC, AGAIN) == 40
    assert list(await popped(consumer)) == ["a"]


async def reset(
    mapped: MappedGroup, offset: int = -1, *, is_force: bool = True, first: int | None = None
) -> None:
    """By an administrator; to the end by default. Another group says which offset is its first."""
    ext = {"topic": TOPIC, "group": GROUP, "queueId": 0, "timestamp": -1, "offset": offset}
    asked = mapped.ask(RESET, {**ext, "isForce": is_force})
    if first is not None:
        mapped.masters.answer(0, {"offset": str(first)})
    await asyncio.sleep(0.01)
    assert mapped.code(asked) == 0


@pytest.mark.parametrize("is_online", [False, True], ids=["offline", "online"])
@pytest.mark.parametrize("queue", [BACK, LEFT], ids=["it-takes-messages", "it-has-left"])
async def test_a_reset_leads_the_older_segments_of_the_group_back(
    mapped, consumer, queue, *, is_online: bool
) -> None:
    """Whether it is due in the newest one or not, and at once."""
    mapped.tell(queue)
    if is_online:
        join(mapped, STATIC)
    fill(mapped, "a", "b", queue_id=0)
    fill(mapped, "c", queue_id=2 * AGAIN)
    for body, receipt in (await popped(consumer)).items():
        assert (await consumer.ack(receipt, topic=TOPIC)).code == 0, body
    committed = mapped.group.store.committed
    assert (committed.query(GROUP, TOPIC, 0), committed.query(GROUP, TOPIC, 2 * AGAIN)) == (2, 6)
    await reset(mapped, 1)
    is_due = due_reset(committed, GROUP, TOPIC, 2 * AGAIN) is not None
    assert is_due is (is_online and queue is BACK)
    again = await popped(consumer)
    assert list(again) == ["b"]
    assert (await consumer.ack(again["b"], topic=TOPIC)).code == 0
    assert asked(mapped) == [(THERE, COMMIT, str(AGAIN), True)]
    mapped.masters.answer(0)  # whose group keeps its own reset
    await asyncio.sleep(0.01)
    assert list(await popped(consumer)) == ["c"]
    assert due_reset(committed, GROUP, TOPIC, 2 * AGAIN) is None


async def test_what_was_acknowledged_since_a_reset_does_not_come_again(mapped, consumer) -> None:
    """The group that has what is in front of it answers late."""
    ends = ((THERE, 0, 0), (HERE, 2, AGAIN), (HERE, 3, 2 * AGAIN))
    mapped.tell(MappedQueue(tuple(Segment(*end) for end in ends), "", 2))
    fill(mapped, "a", queue_id=AGAIN)
    fill(mapped, "b", queue_id=2 * AGAIN)
    for receipt in (await popped(consumer)).values():
        assert (await consumer.ack(receipt, topic=TOPIC)).code == 0
    await reset(mapped, 1, first=0)
    again = await popped(consumer)
    assert list(again) == ["a"]
    assert (await consumer.ack(again["a"], topic=TOPIC)).code == 0
    mapped.masters.answer(0)
    await asyncio.sleep(0.01)
    assert list(await popped(consumer)) == ["b"]


@pytest.mark.parametrize("is_force", [True, False], ids=["forced", "unforced"])
async def test_a_reset_brings_back_what_is_done_behind_what_is_in_flight(
    mapped, consumer, *, is_force: bool
) -> None:
    """In an older segment; unforced, what is in front of the place stays in flight."""
    mapped.tell(LEFT)
    fill(mapped, "a", "b", queue_id=0)
    fill(mapped, "c", queue_id=2 * AGAIN)
    found = await popped(consumer)
    for body in "bc":
        assert (await consumer.ack(found[body], topic=TOPIC)).code == 0
    await reset(mapped, 1, is_force=is_force)
    assert list(await popped(consumer)) == ["b"]
    committed = mapped.group.store.committed
    assert committed.query(GROUP, TOPIC, 0) == (1 if is_force else 0)
    code = (await consumer.ack(found["a"], topic=TOPIC)).code
    assert code == 0, "it counts, or is done"
    assert committed.query(GROUP, TOPIC, 0) == 1


@pytest.mark.parametrize(("is_force", "left"), [(False, ["a", "b"]), (True, [])])
async def test_only_by_force_a_reset_leads_older_segments_on(
    mapped, consumer, is_force: bool, left: list[str]
) -> None:
    mapped.tell(LEFT)
    fill(mapped, "a", "b", queue_id=0)
    fill(mapped, "c", queue_id=2 * AGAIN)
    await consumer.ack((await popped(consumer))["c"], topic=TOPIC)
    await reset(mapped, is_force=is_force)
    await asyncio.sleep(10.1)
    assert list(await popped(consumer)) == left


async def test_a_reset_of_who_pulls_is_in_the_newest_segment_alone(mapped, consumer) -> None:
    """It would seem to lag behind in the others, where nobody of it commits any more."""
    mapped.tell(LEFT)
    fill(mapped, "a", "b", queue_id=0)
    fill(mapped, "c", queue_id=2 * AGAIN)
    committed = mapped.group.store.committed
    committed.commit(GROUP, TOPIC, 0, 2)
    await reset(mapped, 1)
    assert (committed.query(GROUP, TOPIC, 0), committed.query(GROUP, TOPIC, 2 * AGAIN)) == (2, 1)


async def test_another_group_may_have_an_older_segment_led_back(mapped, consumer) -> None:
    """Which takes no commit of clients any more."""
    mapped.tell(MOVED)
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1, PHYSICAL: 1}
    assert mapped.code(mapped.ask(COMMIT, ext)) == ResponseCode.NOT_LEADER_FOR_QUEUE
    told = mapped.ask(COMMIT, {**ext, AS_POPPED: "true", IF_NONE_KEPT: "true"})
    await asyncio.sleep(1)
    assert mapped.code(told) == 0
    fill(mapped, "a", "b", queue_id=0)
    assert list(await popped(consumer, **FROM_END)) == ["b"]


# ---- order


async def test_in_order_a_segment_waits_for_those_before_it(mapped, consumer) -> None:
    mapped.tell(CAME)
    fill(mapped, "a", queue_id=AGAIN)
    for offset in ("39", None):
        assert await popped(consumer, **IN_ORDER) == {}
        assert asked(mapped) == [(THERE, QUERY, "0", True)]
        if offset is None:
            mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)  # it begins there some time
        else:
            mapped.masters.answer(0, {"offset": offset})
        await asyncio.sleep(0.3)
    assert await popped(consumer, **IN_ORDER) == {}
    mapped.masters.answer(0, {"offset": "40"})
    await asyncio.sleep(0.01)
    assert list(await popped(consumer, **IN_ORDER)) == ["a"]
    assert mapped.masters.asked == []


async def test_in_order_own_segments_wait_for_each_other(mapped, consumer) -> None:
    queue = MappedQueue((Segment(HERE, 0, 0), Segment(HERE, 2, 2 * AGAIN)), "", 2)
    mapped.tell(queue)
    fill(mapped, "a", "b", queue_id=0)
    fill(mapped, "c", queue_id=2 * AGAIN)
    found = await popped(consumer, **IN_ORDER)
    assert list(found) == ["a", "b"]
    await consumer.ack(found["a"], topic=TOPIC)
    await asyncio.sleep(0.3)
    assert await popped(consumer, **IN_ORDER) == {}
    await consumer.ack(found["b"], topic=TOPIC)
    await asyncio.sleep(0.3)
    await popped(consumer, **IN_ORDER)
    await asyncio.sleep(0.01)
    assert list(await popped(consumer, **IN_ORDER)) == ["c"]


async def test_in_order_all_begins_anew_after_a_reset(mapped, consumer) -> None:
    ends = ((0, 0), (2, 2 * AGAIN), (3, 4 * AGAIN))
    mapped.tell(MappedQueue(tuple(Segment(HERE, *end) for end in ends), "", 4))
    fill(mapped, "a", "b", queue_id=0)
    fill(mapped, "c", queue_id=2 * AGAIN)
    fill(mapped, "d", queue_id=4 * AGAIN)

    async def take(*bodies: str) -> None:
        for body in bodies:
            found: dict[str, str] = {}
            while not found:
                found = await popped(consumer, **IN_ORDER, maxMsgNums=1)
                await asyncio.sleep(0.3)
            assert list(found) == [body]
            assert (await consumer.ack(found[body], topic=TOPIC)).code == 0

    await take("a", "b", "c", "d")
    await reset(mapped, 1)
    again = await popped(consumer, **IN_ORDER)
    assert list(again) == ["b"]
    assert (await consumer.ack(again["b"], topic=TOPIC)).code == 0
    await take("c", "d")


async def test_what_is_done_is_told_once_it_is_confirmed(mapped, consumer) -> None:
    mapped.tell(HOME)
    fill(mapped, "a", queue_id=0)
    found = await popped(consumer)
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, PHYSICAL: 1, AS_POPPED: "true"}
    assert mapped.answer(mapped.ask(QUERY, ext)).ext == {"offset": "0"}
    mapped.group.holding = True
    consumer.ask(200051, {**_named(found["a"])})
    await asyncio.sleep(0.01)
    question = mapped.ask(QUERY, ext)
    await asyncio.sleep(1)
    assert mapped.answer(question) is None
    mapped.group.holding = False
    mapped.group.confirm()
    await asyncio.sleep(0.01)
    assert mapped.answer(question).ext == {"offset": "1"}
    unknown = mapped.ask(QUERY, {**ext, "consumerGroup": "other"})
    assert mapped.code(unknown) == ResponseCode.QUERY_NOT_FOUND


def _named(receipt: str) -> dict[str, object]:
    fields = receipt.split(" ")
    return {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": fields[6],
        "offset": fields[7],
        "extraInfo": receipt,
    }


# ---- a group that is drained


async def test_what_was_popped_elsewhere_says_nothing_of_what_is_here(mapped, consumer) -> None:
    """Of a drain: its messages here are not done because later ones are, in another group."""
    mapped.tell(MOVED)
    fill(mapped, "a", "b", queue_id=0)
    await popped(consumer)
    later: CommittedLater = mapped.processor.drain._elsewhere
    place = (GROUP, TOPIC, 0)
    later.ask([place])
    mapped.masters.answer(0, {"offset": "9"})
    assert later.offset(place) is None
    later.ask([("pulls", TOPIC, 0)])
    mapped.masters.answer(0, {"offset": "9"})
    assert later.offset(("pulls", TOPIC, 0)) == 9


# ---- the map


async def test_the_segments_that_a_group_holds() -> None:
    queues = QueueMap(1, Index(1), (BACK, CAME, MappedQueue((Segment(THERE, 0, 2),))))
    held = parts_held(queues, HERE)
    assert list(held) == [0, 1]
    first, last = held[0]
    assert (first.queue_id, first.start, first.end, first.before) == (0, 0, 2, ())
    assert (last.queue_id, last.start, last.end) == (2 * AGAIN, 5, None)
    assert [item.end for item in last.before] == [2, 5]
    assert [item.segment.group for item in last.with_messages] == [HERE, THERE]
