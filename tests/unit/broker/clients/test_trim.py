"""Letting the beginning of the log go, through either store."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.member.pins import transaction_pins
from gantry_broker.retention.core.pins import pins
from gantry_broker.retention.trimming import LogTrim
from gantry_broker.store.contract import (
    Appended,
    QueueQuestion,
    QueueRead,
    ReadLimits,
    Refusal,
    SendOutcome,
)
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import decode_records
from gantry_protocol.types import Offset
from support import stores
from support.group_view import FakeGroup
from support.transactions import GROUP, HALF


def fill(group: FakeGroup) -> None:
    """Several files of confirmed messages."""
    while len(group.messages.log.starts) < 5:
        stores.put(group.messages, stores.message("TopicTest", 0, bytes(1000)))
    stores.confirm(group.messages)


async def trimmed(group: FakeGroup, below: int) -> Refusal | None:
    said = asyncio.get_running_loop().create_future()
    group.store.trim(Offset(below), said.set_result)
    return await said


def first_offset(group: FakeGroup) -> int:
    found = []
    group.store.offsets([QueueQuestion("TopicTest", 0)], found.extend)
    return found[0].min_offset


async def test_whole_files_go_and_readers_are_sent_on(group: FakeGroup) -> None:
    fill(group)
    starts = group.messages.log.starts
    assert await trimmed(group, starts[2] + 10) is None
    assert (group.trimmed, group.messages.log.log_start) == ([starts[2]], starts[2])
    assert group.messages.is_whole
    found = []
    group.store.read(QueueRead("TopicTest", 0, 0, ReadLimits(1, 1)), found.append)
    assert found[0].next_offset == first_offset(group) > 0


async def test_what_somebody_needs_stays(group: FakeGroup) -> None:
    fill(group)
    starts = group.messages.log.starts
    group.needed = (Offset(starts[1] + 1),)
    assert await trimmed(group, starts[3]) is None
    assert group.trimmed == [starts[1]]
    assert await trimmed(group, starts[3]) is None
    assert group.trimmed == [starts[1]]


async def test_an_open_transaction_keeps_its_half_message_until_it_ends(
    group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        group, "pins", lambda: pins(transactions=transaction_pins(group.messages), parked=None)
    )
    while len(group.messages.log.starts) < 2:
        stores.put(group.messages, stores.message("TopicTest", 0, bytes(1000)))
    (half,) = stores.put(group.messages, stores.message(HALF, body=b"open"))
    fill(group)
    starts = group.messages.log.starts
    assert await trimmed(group, starts[3]) is None
    assert group.messages.log.log_start == starts[1] <= half.offset
    found = []
    group.store.read(QueueRead(HALF, 0, 0, ReadLimits(1, 1 << 20)), found.append)
    assert decode_records(found[0].body)[0].body == b"open"
    group.messages.offsets.commit(GROUP, HALF, 0, 1)  # a table from which on nothing is open
    assert await trimmed(group, starts[3]) is None
    assert group.messages.log.log_start == starts[3]


async def test_what_is_not_confirmed_stays(group: FakeGroup) -> None:
    fill(group)
    confirmed = group.messages.dispatched
    while len(group.messages.log.starts) < 8:
        stores.put(group.messages, stores.message("TopicTest", 0, bytes(1000)))
    found = LogTrim(group.messages, group)._start_for(group.messages.log.end)
    assert found is not None
    assert 0 < found <= confirmed < group.messages.log.starts[-1]


async def test_a_group_with_a_tier_is_trimmed_by_its_retention(group: FakeGroup) -> None:
    group.messages.tiered = True
    refusal = await trimmed(group, 1)
    assert refusal is not None
    assert refusal.code == ResponseCode.SYSTEM_ERROR
    assert "tier" in refusal.remark


@pytest.fixture
def host(group: FakeGroup, monkeypatch: pytest.MonkeyPatch) -> list[Appended]:
    """Whom to answer what becomes of the state; nobody is answered by itself."""
    asked: list[Appended] = []
    monkeypatch.setattr(group, "append", lambda records, done: asked.append(done))
    return asked


async def test_nothing_goes_before_the_state_behind_it_is_confirmed(
    group: FakeGroup, host: list[Appended]
) -> None:
    fill(group)
    said: list[Refusal | None] = []
    trims = LogTrim(group.messages, group)
    trims.trim(group.messages.log.starts[3], said.append)
    await asyncio.sleep(0)
    trims.trim(group.messages.log.starts[3], said.append)
    assert [one and one.code for one in said] == [ResponseCode.SYSTEM_BUSY], "one at a time"
    (answer,) = host
    answer(SendOutcome(ResponseCode.FLUSH_SLAVE_TIMEOUT, "not confirmed"))
    while len(said) < 2:
        await asyncio.sleep(0)
    assert said[1] == Refusal(ResponseCode.FLUSH_SLAVE_TIMEOUT, "not confirmed")
    assert (group.trimmed, group.messages.log.log_start) == ([], 0)
