"""Consumers by POP as the benchmark makes them: receipts, acknowledgements, who asks when."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from gantry_broker.clients.core.pop.receipts import message_offsets, parse_receipt, start_offsets
from gantry_broker.clients.core.pop.records import InFlight
from gantry_cli.client.routes import Queue
from gantry_lab.bench.broker import frames, pop_work
from gantry_lab.bench.broker.pop_work import POP_COUNT, SLOTS, WAITING_MAX, Pops, Timers
from gantry_lab.bench.broker.receipts import Acks, of_text, receipts
from gantry_lab.bench.load import FrameLoad, Numbers, Reply
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.frame import FrameDecoder
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.headers.pop import (
    AckMessageRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from gantry_protocol.records import MessageRecord, encode_properties, encode_record
from gantry_protocol.remoting.server import RemotingServer

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUES = [Queue("bench", number, "127.0.0.1:1") for number in range(2)]


def decoded(frame: bytes | bytearray | None) -> RemotingCommand:
    assert frame is not None
    (command,) = FrameDecoder().feed(bytes(frame))
    return command


def popped(frame: bytes | bytearray | None) -> PopMessageRequestHeader:
    command = decoded(frame)
    assert command.code == RequestCode.POP_MESSAGE
    return from_ext(PopMessageRequestHeader, command.ext)


def acked(frame: bytes | bytearray | None) -> AckMessageRequestHeader:
    command = decoded(frame)
    assert command.code == RequestCode.ACK_MESSAGE
    return from_ext(AckMessageRequestHeader, command.ext)


def record(queue_id: int, offset: int, **properties: str) -> bytes:
    made = encode_properties({"UNIQ_KEY": f"{queue_id}-{offset}"} | properties)
    return encode_record(
        MessageRecord(
            topic="orders", queue_id=queue_id, queue_offset=offset, body=b"x", properties=made
        )
    )


def brought(*offsets: int, queue_id: int = 0) -> tuple[Reply, memoryview]:
    """The answer to a pop, as a broker of ours makes it."""
    messages = [(queue_id, [InFlight(offset, 1000, 60_000, 1) for offset in offsets])]
    numbers = Numbers(
        pop_time="1000",
        invisible_time="60000",
        revive_qid="0",
        start_offset_info=start_offsets(messages),
        msg_offset_info=message_offsets(messages),
    )
    return Reply(ext=numbers), memoryview(b"".join(record(queue_id, at) for at in offsets))


def done(work: Pops | Timers, slot: int) -> bytes | bytearray | None:
    return work.following(slot, Reply(), memoryview(b""))


def taken(
    work: Pops | Timers, slot: int, *offsets: int
) -> tuple[bytes | bytearray | None, list[int]]:
    """The next pop, and the slots that are woken to acknowledge."""
    found = work.following(slot, *brought(*offsets))
    slots, work.woken = list(work.woken), ()
    return found, slots


def test_a_pop_says_what_a_java_consumer_says() -> None:
    template = frames.pop(9, "orders", "g", 60_000)
    for now_ms in (1_764_000_000_123, 1_764_000_000_124):
        header = popped(template.born_at(now_ms))
        assert header.born_time == now_ms
    assert (header.queue_id, header.max_msg_nums, header.init_mode) == (-1, 32, 0)
    assert (header.invisible_time, header.poll_time) == (60_000, 15_000)
    assert (header.exp_type, header.exp, header.order) == ("TAG", "*", False)


def test_receipts_name_each_message_that_an_answer_brings() -> None:
    messages = [
        (3, [InFlight(at, 77, 60_000, 1) for at in (5, 6, 8)]),
        (0, [InFlight(1, 77, 60_000, 1)]),
    ]
    numbers = Numbers(
        pop_time="77",
        invisible_time="60000",
        revive_qid="0",
        start_offset_info=start_offsets(messages),
        msg_offset_info=message_offsets(messages),
    )
    found = receipts(numbers, "bench")
    assert [(one.queue_id, one.offset) for one in found] == [
        ("3", "5"),
        ("3", "6"),
        ("3", "8"),
        ("0", "1"),
    ]
    parsed = [parse_receipt(one.text) for one in found]
    assert {(one.broker_name, one.popped_ms, one.invisible_ms) for one in parsed} == {
        ("bench", 77, 60_000)
    }
    assert [(one.queue_id, one.offset) for one in parsed] == [(3, 5), (3, 6), (3, 8), (0, 1)]
    assert found[1].text.startswith("5 ")  # the first of its queue in this answer


@pytest.mark.parametrize(
    "numbers",
    [Numbers(), Numbers(start_offset_info="0 1 5", msg_offset_info="0 2 5")],
    ids=["none", "of another queue"],
)
def test_receipts_that_do_not_read_end_the_measurement(numbers: Numbers) -> None:
    with pytest.raises(GantryError, match="receipts of a pop"):
        receipts(numbers, "bench")


@pytest.mark.parametrize(
    ("kind", "topic"),
    [("0", "orders"), ("1", "%RETRY%g_orders")],
)
def test_an_acknowledgement_goes_to_where_the_message_stands(kind: str, topic: str) -> None:
    text = f"5 77 60000 0 {kind} bench 3 6"
    command = decoded(Acks("orders", "g").frame(4, of_text(text)))
    header = from_ext(AckMessageRequestHeader, command.ext)
    assert (header.topic, header.consumer_group, header.extra_info) == (topic, "g", text)
    assert (header.queue_id, header.offset, command.opaque) == (3, 6, 4)
    assert command.language == "JAVA"


def test_a_message_of_an_unknown_kind_of_topic_ends_the_measurement() -> None:
    with pytest.raises(GantryError, match="unknown kind"):
        Acks("orders", "g").frame(4, of_text("5 77 60000 0 7 bench 3 6"))


@pytest.mark.parametrize("text", ["", "5 77 60000 0 0 bench 3"])
def test_a_receipt_in_a_message_that_is_none_ends_the_measurement(text: str) -> None:
    with pytest.raises(GantryError, match="does not read"):
        of_text(text)


def test_a_message_counts_when_its_acknowledgement_is_answered() -> None:
    work = Pops("orders", QUEUES, 2, "g", 1000)
    assert popped(work.first(0)).consumer_group == "g-0"
    again, slots = taken(work, 0, 10, 11)
    assert again is not None
    assert len(set(slots)) == 2
    assert all(0 < slot < SLOTS for slot in slots)
    assert [acked(work.first(slot)).offset for slot in slots] == [10, 11]
    assert work.messages == 0
    assert [done(work, slot) for slot in slots] == [None, None]
    assert work.messages == 2


def test_an_acknowledgement_that_was_not_sent_or_was_refused_is_made_again() -> None:
    work = Pops("orders", QUEUES, 1, "g", 1000)
    _, (slot,) = taken(work, 0, 10)
    assert [acked(work.first(slot)).offset for _ in range(2)] == [10, 10]


def test_a_consumer_pops_ahead_until_too_many_wait_for_their_answers() -> None:
    work = Pops("orders", QUEUES, 1, "g", 10_000)
    pops, slots = [], []
    for number in range(4):
        again, woken = taken(work, 0, *range(POP_COUNT * number, POP_COUNT * (number + 1)))
        pops.append(again is not None)
        for slot in woken:
            work.first(slot)
        slots += woken
    assert pops == [True, True, True, False]
    assert len(set(slots)) == WAITING_MAX + POP_COUNT
    woken_at = []
    for number, slot in enumerate(slots):
        done(work, slot)
        if work.woken:
            woken_at.append((number + 1, list(work.woken)))
            work.woken = ()
            assert work.first(0) is not None
    assert woken_at == [(POP_COUNT, [0])]


def test_a_group_that_asked_for_everything_is_followed_by_a_new_one() -> None:
    work = Pops("orders", QUEUES, 2, "g", 2 * POP_COUNT)
    groups = [popped(work.first(slot)).consumer_group for slot in (0, SLOTS)]
    again, slots = taken(work, 0, *range(POP_COUNT))
    assert [*groups, popped(again).consumer_group] == ["g-0", "g-0", "g-1"]
    assert {acked(work.first(slot)).consumer_group for slot in slots} == {"g-0"}


def test_what_a_pop_did_not_get_is_asked_for_again() -> None:
    work = Pops("orders", QUEUES, 1, "g", 2 * POP_COUNT)
    work.first(0)
    again, _ = taken(work, 0, *range(POP_COUNT - 1))
    more, _ = taken(work, 0, POP_COUNT - 1)
    nothing = work.following(0, Reply(code=ResponseCode.POLLING_TIMEOUT), memoryview(b""))
    assert [popped(one).consumer_group for one in (again, more, nothing)] == ["g-0", "g-0", "g-0"]


@pytest.mark.parametrize(
    ("offsets", "body", "sentence"),
    [
        ((1,), b"", "brought 1 messages in 0 bytes"),
        (range(POP_COUNT + 1), b"x", "brought 33 messages"),
        ((1, 2), record(0, 1), "receipts for others"),
        ((1, 2), record(0, 1) + record(0, 3), "receipts for others"),
    ],
    ids=["no bytes", "too many", "fewer than named", "others than named"],
)
def test_a_pop_that_did_not_bring_what_it_says_ends_the_measurement(
    offsets: Sequence[int], body: bytes, sentence: str
) -> None:
    answer, _ = brought(*offsets)
    with pytest.raises(GantryError, match=sentence):
        Pops("orders", QUEUES, 1, "g", 1000).following(0, answer, memoryview(body))


# ---- messages that come again


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pop_work, "perf_counter", made)
    return made


def test_lateness_counts_from_the_end_of_the_invisible_time(clock: Clock) -> None:
    work = Timers("orders", QUEUES, 2, "g", 2)
    times = [popped(work.first(slot)).invisible_time for slot in (0, SLOTS)]
    assert times == [10_000, 11_000]
    clock.now_s += 0.5
    assert taken(work, SLOTS, 1, 2)[1] == []  # asked for at 100
    clock.now_s = 100 + 11.25
    _, slots = taken(work, 0, 1, 2)
    assert work.late_s == pytest.approx([0.25, 0.25])
    for slot in slots:
        work.first(slot)
    for slot in slots:
        assert not work.ended
        done(work, slot)
    assert work.ended


def test_a_message_that_comes_before_its_time_ends_the_measurement(clock: Clock) -> None:
    work = Timers("orders", QUEUES, 1, "g", 1)
    work.first(0)
    taken(work, 0, 1)
    clock.now_s += 9.9
    with pytest.raises(GantryError, match=r"0\.100 s before its time"):
        taken(work, 0, 1)


def test_a_copy_in_a_retry_topic_is_the_same_message(clock: Clock) -> None:
    work = Timers("orders", QUEUES, 1, "g", 1)
    work.first(0)
    taken(work, 0, 1)
    clock.now_s += 13
    own = "7 1000 60000 4 1 bench 0 9"
    copy = record(0, 9, UNIQ_KEY="0-1", POP_CK=own)
    numbers = Numbers("", "", "", "1000", "60000", "4", "1 0 7", "1 0 9")
    work.following(0, Reply(ext=numbers), memoryview(copy))
    header = acked(work.first(work.woken[0]))
    assert (header.topic, header.extra_info, header.offset) == ("%RETRY%g_orders", own, 9)
    assert work.late_s == pytest.approx([3.0])


# ---- under the load generator


async def test_every_message_of_a_broker_is_acknowledged_once() -> None:
    """64 messages, which a server hands out once to each group."""
    waiting = {f"g-{number}": list(range(64)) for number in range(2000)}
    acks: Counter[str] = Counter()

    def serve(request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.ACK_MESSAGE:
            header = from_ext(AckMessageRequestHeader, request.ext)
            acks[f"{header.consumer_group} {header.offset}"] += 1
            return reply(request)
        asked = from_ext(PopMessageRequestHeader, request.ext)
        left = waiting[asked.consumer_group]
        given, left[:] = left[:20], left[20:]
        if not given:
            return reply(request, ResponseCode.POLLING_TIMEOUT)
        messages = [(0, [InFlight(at, 1000, 60_000, 1) for at in given])]
        ext = PopMessageResponseHeader(
            1000, 60_000, 0, 0, start_offsets(messages), message_offsets(messages)
        )
        body = b"".join(record(0, at) for at in given)
        return reply(request, ResponseCode.SUCCESS, "FOUND", to_ext(ext), body)

    server = RemotingServer(lambda _conn, request: serve(request))
    port = await server.start("127.0.0.1", 0)
    work = Pops("orders", QUEUES, 3, "g", 64)
    try:
        load = await asyncio.to_thread(FrameLoad, work, [f"127.0.0.1:{port}"], 3, SLOTS)
        with closing(load):
            for _ in range(2):  # what was not sent in one window is sent in the next
                await load.window(0.0, 0.1)
            load.work.ended = True
    finally:
        await server.stop(0)
    assert work.messages == len(acks) > 0
    assert set(acks.values()) == {1}
