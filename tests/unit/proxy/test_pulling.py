"""Pulls for clients that speak gRPC: what a broker's answer is to them, and what it is asked."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.records.record import MessageRecord, encode_record
from gantry_proxy import messages
from gantry_proxy.pulling import Pulling
from support.grpc_client import NAMES, FakeCall

POSITIONS = {
    "suggestWhichBrokerId": "0",
    "nextBeginOffset": "7",
    "minOffset": "2",
    "maxOffset": "9",
}


class Masters:
    """A group that answers every pull so."""

    def __init__(self, answer: RemotingCommand) -> None:
        self.answer = answer
        self.asked: list[tuple[RemotingCommand, float]] = []

    async def place(self, topic: str, broker_name: str) -> str:
        return "a:1"

    async def poll(
        self, address: str, command: RemotingCommand, within_s: float
    ) -> RemotingCommand:
        self.asked.append((command, within_s))
        return self.answer


def wanted(**changes: Any) -> Any:
    made = messages.PullMessageRequest(offset=5, **changes)
    made.group.name, made.message_queue.topic.name = "g", "t"
    made.message_queue.id, made.message_queue.broker.name = 3, "orders-a"
    return made


def answered(code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
    return RemotingCommand(code=code, remark="so", ext=POSITIONS | ext, body=body)


async def pull(masters: Masters, request: Any) -> tuple[list[str], list[Any]]:
    """The kinds of the answers, and the answers."""
    pulling = Pulling(masters)  # type: ignore[arg-type]
    answers = [answer async for answer in pulling.pull(request, FakeCall())]
    return [str(answer.WhichOneof("content")) for answer in answers], answers


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    ],
)
async def test_without_a_message_it_is_told_where_the_queue_goes_on(code: int) -> None:
    kinds, answers = await pull(Masters(answered(code, b"not read")), wanted())
    assert kinds == ["status", "next_offset"]
    assert NAMES[answers[0].status.code] == "MESSAGE_NOT_FOUND"
    assert answers[1].next_offset == 7


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ResponseCode.NO_PERMISSION, "FORBIDDEN"),
        (ResponseCode.SYSTEM_BUSY, "TOO_MANY_REQUESTS"),
        (ResponseCode.INVALID_PARAMETER, "BAD_REQUEST"),
    ],
)
async def test_a_refusal_is_a_status_and_nothing_else(code: int, told: str) -> None:
    kinds, answers = await pull(Masters(answered(code)), wanted())
    assert kinds == ["status"]
    assert NAMES[answers[0].status.code] == told


async def test_an_answer_that_does_not_fit_is_refused() -> None:
    for answer in (
        RemotingCommand(code=0, ext={}),
        answered(0, b"no record"),
    ):
        kinds, answers = await pull(Masters(answer), wanted())
        assert kinds == ["status"]
        assert NAMES[answers[0].status.code] == "INTERNAL_SERVER_ERROR"


async def test_a_message_is_in_the_queue_that_was_asked_for() -> None:
    """Of a mapped topic a group has it in a queue of another number."""
    stored = encode_record(
        MessageRecord("t", body=b"x", queue_id=4099, queue_offset=6, store_host=("10.0.0.1", 1))
    )
    masters = Masters(answered(0, stored))
    kinds, answers = await pull(masters, wanted())
    assert kinds == ["status", "message", "next_offset"]
    system = answers[1].message.system_properties
    assert (system.queue_id, system.queue_offset) == (3, 6)
    assert not system.receipt_handle


@pytest.mark.parametrize(
    ("poll_ms", "left_s", "waits_ms", "flag"),
    [(0, 9.0, 0, 4), (5_000, 1.0, 0, 4), (5_000, 4.0, 3_000, 6), (90_000, None, 20_000, 6)],
    ids=["not at all", "all is for the way", "less than it asks", "at most"],
)
async def test_it_waits_no_longer_than_its_client(
    monkeypatch: pytest.MonkeyPatch, poll_ms: int, left_s: float | None, waits_ms: int, flag: int
) -> None:
    monkeypatch.setattr(FakeCall, "left_s", lambda call: left_s)
    masters = Masters(answered(ResponseCode.PULL_NOT_FOUND))
    request = wanted(batch_size=1_000)
    request.long_polling_timeout.FromMilliseconds(poll_ms)
    await pull(masters, request)
    ((command, within_s),) = masters.asked
    header = from_ext(PullMessageRequestHeader, command.ext)
    assert (header.suspend_timeout_ms, header.sys_flag, header.max_msg_nums) == (waits_ms, flag, 32)
    assert (header.queue_offset, header.queue_id, header.subscription) == (5, 3, "*")
    assert within_s == waits_ms / 1000 + 2.0
