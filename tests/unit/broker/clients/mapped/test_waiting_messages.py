"""Messages that waited at a group, delayed or in a transaction, while their queues moved away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from gantry_broker.clients import delivery
from gantry_broker.clients.core.delay.parked import PROGRESS_GROUP
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, MappedQueue, Segment
from gantry_protocol.records import SCHEDULE_TOPIC, decode_properties
from support.mapped_group import HERE, THERE, TOPIC, MappedGroup, at
from support.patience import PATIENCE_S
from support.transactions import COMMIT, HEARTBEAT, claim, half

AGAIN = MAPPED_QUEUES_MAX
MOVED = MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 40, AGAIN)), "", 1)
PLAIN = {"a": "p", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 17, "h": 5, "j": 0}


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.002)


LEVEL, TIMER, FREE = "DELAY\x011\x02", "TIMER_DELAY_MS\x01100\x02", "free"


def bodies(mapped: MappedGroup, topic: str = TOPIC) -> list[bytes]:
    found = [record for records in mapped.group.appended for record in records]
    return [record.body for record in found if record.topic == topic]


def send_later(
    mapped: MappedGroup, body: bytes, when: str = LEVEL, topic: str = TOPIC, queue: int = 0
) -> None:
    ext = {**PLAIN, "b": topic, "e": queue, "i": f"{when}TAGS\x01TagA\x02"}
    assert mapped.code(mapped.ask(RequestCode.SEND_MESSAGE_V2, ext, body)) == 0


async def test_a_delayed_message_follows_its_queue(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    send_later(mapped, b"first")
    send_later(mapped, b"second")
    mapped.tell(MOVED, epoch=2)
    for outcome in (RequestTimeout("late"), None):
        await until(lambda: mapped.masters.asked)
        group, command, done = mapped.masters.asked[-1]
        ext = command.ext or {}
        assert (group, command.code, command.body) == (THERE, RequestCode.SEND_MESSAGE, b"first")
        assert (ext["queueId"], ext["gantryPhysical"]) == (str(AGAIN), "2")
        assert (ext["bornTimestamp"], ext["flag"]) == ("17", "5")
        properties = decode_properties(ext["properties"])
        assert properties["TAGS"] == "TagA"
        assert "DELAY" not in properties, "it would wait there as well"
        if outcome is None:
            mapped.masters.answer(0)
        else:
            mapped.masters.asked.pop()
            done(outcome)
    await until(lambda: mapped.masters.asked)
    assert mapped.masters.asked[-1][1].body == b"second"
    assert mapped.group.store.committed.query(PROGRESS_GROUP, SCHEDULE_TOPIC, 0) == 1
    mapped.masters.answer(0)
    await until(lambda: mapped.processor.delivery.pending() == {})
    assert mapped.processor.delivery.passed_on == 2
    assert bodies(mapped) == []


async def test_what_can_be_delivered_here_goes_before_what_cannot(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE), at(HERE, 1))
    send_later(mapped, b"stays", queue=1)
    send_later(mapped, b"comes", queue=1)
    mapped.tell(MOVED, at(HERE, 1), epoch=2)
    await until(lambda: len(bodies(mapped)) == 2)
    assert mapped.masters.asked == []


async def test_a_message_waits_while_its_queue_moves(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    send_later(mapped, b"first")
    mapped.tell(at(HERE, 0, THERE), epoch=2)
    await until(lambda: mapped.processor.delivery.refused)
    assert (bodies(mapped), mapped.masters.asked) == ([], [])
    mapped.tell(at(HERE), epoch=3)
    await until(lambda: bodies(mapped) == [b"first"])


async def test_what_stands_before_a_message_that_waits_is_delivered(mapped: MappedGroup) -> None:
    mapped.group.add_topic(TopicConfig(FREE, 1, 1))
    await mapped.begin()
    mapped.tell(at(HERE))
    send_later(mapped, b"free", topic=FREE)
    send_later(mapped, b"waits")
    mapped.tell(at(HERE, 0, THERE), epoch=2)
    await until(lambda: bodies(mapped, FREE) == [b"free"])
    assert bodies(mapped) == []


async def test_a_timer_that_waits_for_its_queue_holds_up_no_other(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All timers share the short steps."""
    monkeypatch.setattr(delivery, "HELD_UP_MS", 300)
    mapped.group.add_topic(TopicConfig(FREE, 1, 1))
    await mapped.begin()
    mapped.tell(at(HERE))
    send_later(mapped, b"waits", TIMER)
    send_later(mapped, b"free", TIMER, FREE)
    mapped.tell(at(HERE, 0, THERE), epoch=2)
    await until(lambda: bodies(mapped, FREE) == [b"free"])
    assert mapped.processor.delivery.refused == 0
    mapped.tell(at(HERE), epoch=3)
    await until(lambda: bodies(mapped) == [b"waits"])


async def test_a_timer_that_another_group_does_not_take_holds_up_no_other(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "HELD_UP_MS", 300)
    mapped.group.add_topic(TopicConfig(FREE, 1, 1))
    await mapped.begin()
    mapped.tell(at(HERE))
    send_later(mapped, b"leaves", TIMER)
    send_later(mapped, b"free", TIMER, FREE)
    mapped.tell(MOVED, epoch=2)
    await until(lambda: mapped.masters.asked)
    _, _, done = mapped.masters.asked.pop()
    done(RequestTimeout("late"))
    await until(lambda: bodies(mapped, FREE) == [b"free"])
    await until(lambda: mapped.masters.asked)
    properties = decode_properties((mapped.masters.asked[-1][1].ext or {})["properties"])
    assert "TIMER_OUT_MS" in properties, "it does not wait there as well"
    mapped.masters.answer(0)
    await until(lambda: mapped.processor.delivery.pending() == {})
    assert mapped.processor.delivery.passed_on == 1


async def test_a_transaction_ends_though_its_queue_has_moved(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    await asyncio.sleep(0)
    mapped.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT)
    sent: list[object] = []
    await until(lambda: sent or _begun(mapped, sent))
    mapped.tell(MOVED, epoch=2)
    (answer,) = sent
    ended = mapped.ask(RequestCode.END_TRANSACTION, claim(answer, COMMIT))  # type: ignore[arg-type]
    assert mapped.code(ended) in (None, ResponseCode.SUCCESS)
    await until(lambda: mapped.masters.asked)
    group, command, _ = mapped.masters.asked[-1]
    assert (group, command.body) == (THERE, b"half")
    mapped.masters.answer(0)
    await until(lambda: mapped.processor.delivery.passed_on)
    assert bodies(mapped) == []


def _begun(mapped: MappedGroup, sent: list[object]) -> bool:
    """Send the half message, unless transactions are not served yet."""
    asked = mapped.ask(RequestCode.SEND_MESSAGE_V2, half(topic=TOPIC, queue_id=0), b"half")
    answer = mapped.answer(asked)
    if answer is not None and answer.code == 0:
        sent.append(answer)
    return bool(sent)
