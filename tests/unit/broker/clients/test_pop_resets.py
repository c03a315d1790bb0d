"""Resets of groups that pop: all from the new offset on comes again, and no old receipt counts."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.log import DiskFullError
from gantry_broker.store.contract import GetResult, Read, Refusal, Store, WasRead
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand
from support.group_view import FakeGroup
from support.late_store import LateStore
from support.pops import GROUP, POP, TOPIC, Consumer, fill, receipts

from .conftest import START_S

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


def reset(consumer: Consumer, offset: int, **changes: object) -> RemotingCommand:
    """The request of an administrator."""
    ext = {"topic": TOPIC, "group": GROUP, "timestamp": -1, "isForce": True, "queueId": 0}
    return consumer.ask(RESET, {**ext, "offset": offset, **changes})[0]


async def done(consumer: Consumer, asked: RemotingCommand) -> None:
    await asyncio.sleep(0.01)
    assert consumer.answer_to(asked).code == 0


async def some_acknowledged(consumer: Consumer, group: FakeGroup) -> dict[str, str]:
    """Six messages are handed out; the second is in flight, and the last three; receipts of all."""
    fill(group, *"abcdef")
    found = await consumer.pop()
    for body in "ac":
        assert (await consumer.ack(found[body])).code == 0
    return found


@pytest.mark.parametrize("is_next_master", [False, True], ids=["at-once", "by-the-next-master"])
@pytest.mark.parametrize(
    ("offset", "again"),
    [
        pytest.param(0, "abcdef", id="below-what-is-in-flight"),
        pytest.param(1, "bcdef", id="to-the-first-in-flight"),
        pytest.param(2, "cdef", id="to-one-that-is-done-behind-it"),
        pytest.param(4, "ef", id="to-another-one-in-flight"),
        pytest.param(6, "", id="to-the-end"),
    ],
)
async def test_everything_from_the_offset_on_comes_again(
    serve, group, offset: int, again: str, *, is_next_master: bool
) -> None:
    consumer = Consumer(serve())
    await some_acknowledged(consumer, group)
    await done(consumer, reset(consumer, offset))
    if is_next_master:
        consumer = Consumer(serve())
        await asyncio.sleep(0.1)
    assert group.store.committed.query(GROUP, TOPIC, 0) == offset
    assert "".join(await consumer.pop()) == again
    await asyncio.sleep(10.1)
    assert "".join(await consumer.pop()) == again, "what was in front is done"


async def test_receipts_from_before_do_no_harm(serve, group) -> None:
    """Even if the clock stands still, so that what comes again is handed out in the same moment."""
    consumer = Consumer(serve(lambda: START_S))
    found = await some_acknowledged(consumer, group)
    await done(consumer, reset(consumer, 1))
    assert (await consumer.ack(found["d"])).code == ResponseCode.NO_MESSAGE, "not handed out"
    again = await consumer.pop()
    assert "".join(again) == "bcdef"
    for body in "bcdef":
        assert (await consumer.ack(found[body])).code == ResponseCode.NO_MESSAGE
    assert group.store.committed.query(GROUP, TOPIC, 0) == 1
    for body in "bcdef":
        assert (await consumer.ack(again[body])).code == 0
    assert group.store.committed.query(GROUP, TOPIC, 0) == 6


async def test_unforced_nobody_is_led_on_and_all_behind_comes_again(serve, group) -> None:
    """What stands before the offset stays in flight, and its receipt good."""
    consumer = Consumer(serve())
    found = await some_acknowledged(consumer, group)
    await done(consumer, reset(consumer, 2, isForce=False))
    assert group.store.committed.query(GROUP, TOPIC, 0) == 1
    assert "".join(await consumer.pop()) == "cdef"
    assert (await consumer.ack(found["b"])).code == 0
    assert group.store.committed.query(GROUP, TOPIC, 0) == 2


async def test_unforced_a_reset_to_the_end_changes_nothing(serve, group) -> None:
    consumer = Consumer(serve())
    found = await some_acknowledged(consumer, group)
    await done(consumer, reset(consumer, -1, isForce=False))
    assert await consumer.pop() == {}
    assert (await consumer.ack(found["b"])).code == 0


class HeldReads(LateStore):
    """Reads are answered when the test says so, with what was there when they were asked."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.held: list[tuple[WasRead, GetResult | Refusal]] = []
        self.is_holding = False

    def read(self, wanted: Read, done: WasRead) -> None:
        if self.is_holding:
            self._store.read(wanted, lambda result: self.held.append((done, result)))
        else:
            super().read(wanted, done)

    def release(self) -> None:
        self.is_holding = False
        for done, result in self.held:
            done(result)


async def test_what_is_read_at_the_moment_of_a_reset_is_not_handed_out(serve, group) -> None:
    """It was read for a place that the group has left, so the messages before it would be lost."""
    group.store = store = HeldReads(group.local)
    consumer = Consumer(serve())
    await asyncio.sleep(0.1)
    fill(group, *"abcd")
    asked = consumer.ask(200050, {**POP, "maxMsgNums": 2})[0]
    await asyncio.sleep(0.1)
    for receipt in receipts(consumer.answer_to(asked)).values():
        assert (await consumer.ack(receipt)).code == 0
    store.is_holding = True
    popping = consumer.ask(200050, {**POP, "queueId": 0, "pollTime": 5_000})[0]
    await asyncio.sleep(0.1)
    asked = reset(consumer, 0)
    await asyncio.sleep(0.1)
    assert consumer.answer_to(asked).code == 0
    assert len(store.held) == 1
    store.release()
    await asyncio.sleep(0.1)
    assert "".join(receipts(consumer.answer_to(popping))) == "abcd"


async def test_who_waits_is_given_what_comes_again(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, *"ab")
    for receipt in (await consumer.pop()).values():
        await consumer.ack(receipt)
    popping = consumer.ask(200050, {**POP, "pollTime": 10_000})[0]
    await asyncio.sleep(0.1)
    await done(consumer, reset(consumer, 0))
    await asyncio.sleep(0.01)
    assert "".join(receipts(consumer.answer_to(popping))) == "ab"


async def test_a_reset_is_answered_when_the_log_says_what_comes_again(serve, group) -> None:
    consumer = Consumer(serve())
    await some_acknowledged(consumer, group)
    group.holding = True
    asked = reset(consumer, 2)
    await asyncio.sleep(1)
    assert consumer.answer_to(asked) is None
    group.holding = False
    group.confirm()
    await done(consumer, asked)


async def test_a_reset_that_was_not_stored_is_not_called_done(serve, group) -> None:
    """It is made again, and carried out then; a request with a number, too."""
    consumer = Consumer(serve())
    await some_acknowledged(consumer, group)
    group.append_error = DiskFullError("no room")
    asked = reset(consumer, 2, gantryRequest=7)
    await asyncio.sleep(0.01)
    assert consumer.answer_to(asked).code == ResponseCode.SYSTEM_BUSY
    group.append_error = None
    await done(consumer, reset(consumer, 2, gantryRequest=7))
    assert "".join(await consumer.pop()) == "cdef"
