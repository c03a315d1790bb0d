"""Traces of sends that a front passes on, over real sockets with imagined masters."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.clients import parents, routing
from gantry_broker.clients.routing import Pipe
from gantry_broker.clients.traced_sends import OPEN_FOR_NS, OpenSends
from gantry_broker.front import traced_passing
from gantry_broker.front.traced_passing import PassedSends, TracedPipe
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, SerializeType, reply, request
from gantry_protocol.frame import FrameDecoder, encode
from gantry_protocol.records import BatchMessage, encode_batch
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.glance import FrameCutter
from gantry_protocol.tracing.context import parent_of
from gantry_protocol.tracing.export import UNFINISHED
from gantry_protocol.tracing.spans import Span
from support.routed_member import READ, WRITE, Member, until
from unit.broker.clients.test_traced_sends import NOT_SAMPLED, SAMPLED, SPAN, TRACE, V2, Kept

DELAYED = "DELAY\x013\x02UNIQ_KEY\x01KEY1\x02"
ANSWER = {"queueId": "2", "transactionId": "KEY1"}
_OF_TRACES = ("tracing/", "traced_", "send_trace", "parents")
ROOT = ["SendMessage", "queue", "call"]


class Master(Member):
    """A master that traces what it is told to, and keeps what it was asked."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.kept = Kept()
        self.sends = OpenSends(self.kept, 0.0, "g")
        self.heard: list[RemotingCommand] = []
        self.parked = False
        self.code = ResponseCode.SUCCESS

    def become_master(self) -> None:
        super().become_master()
        self.router.processor = self.sends.entrance(self._answer)

    def _answer(self, conn: Connection, command: RemotingCommand) -> RemotingCommand | None:
        self.heard.append(command)
        return None if self.parked else reply(command, self.code, self.name, ANSWER)


class Front(Member):
    """A front that leads to whatever master it is told, and answers nothing itself."""

    def __init__(self, ratio: float = 0.0) -> None:
        super().__init__("front")
        self.kept = Kept()
        self.sends = PassedSends(self.kept, ratio, "g", drawn=lambda: 0.5)
        self.router.make_pipe = partial(TracedPipe, self.sends)

    async def send(self, properties: str = DELAYED, **more: Any) -> RemotingCommand:
        return await (await self.client()).call(send(properties, **more), 5)


def send(properties: str, body: bytes = b"hello", code: int = WRITE, **more: Any) -> Any:
    ext = {name: str(value) for name, value in {**V2, "i": properties, **more}.items()}
    return request(code, ext, body)


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    made = await Master("master").start()
    made.become_master()
    yield made
    await made.stop()


@pytest.fixture
async def front(master: Master) -> AsyncIterator[Front]:
    made = await Front().start()
    made.epoch = 3
    made.follow(master.address)
    yield made
    await made.stop()


def named(spans: list[Span]) -> dict[str, Span]:
    return {span.name: span for span in spans}


async def test_a_passed_send_is_one_trace_of_front_and_master(front: Front, master: Master) -> None:
    assert (await front.send(DELAYED + SAMPLED)).remark == "master"
    await until(lambda: bool(front.kept.traces))
    ours, (theirs,) = front.kept.parts, master.kept.traces[0]
    assert list(ours) == ROOT
    root, queue, call = ours.values()
    assert (root.trace_id, root.parent_id) == (int(TRACE, 16), int(SPAN, 16))
    assert (queue.parent_id, call.parent_id) == (root.span_id, root.span_id)
    assert (theirs.name, theirs.trace_id) == ("SendMessage", root.trace_id)
    assert theirs.parent_id == call.span_id
    assert [int(span.kind) for span in (root, queue, call)] == [2, 1, 3]
    assert root.start_ns <= queue.end_ns == call.start_ns <= theirs.start_ns
    assert theirs.end_ns <= call.end_ns == root.end_ns
    assert root.error is None
    assert root.attributes == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "SendMessage",
        "messaging.message.body.size": 5,
        "network.peer.address": "127.0.0.1",
        "gantry.broker_group": "g",
        "messaging.destination.name": "TopicTest",
        "messaging.rocketmq.client_group": "pg",
        "messaging.batch.message_count": 1,
        "messaging.message.id": "KEY1",
        "messaging.destination.partition.id": "2",
        "gantry.response_code": 0,
    }
    (asked,) = master.heard
    assert asked.ext == send(DELAYED + SAMPLED).ext, "it stays what it was, also if it is signed"
    assert len(front.sends) == len(master.sends) == 0


async def test_the_master_follows_the_front_where_the_message_names_nobody(
    front: Front, master: Master
) -> None:
    front.sends.ratio = 0.6
    await front.send()
    await front.send(NOT_SAMPLED)
    await until(lambda: bool(front.kept.traces))
    call, (theirs,) = front.kept.parts["call"], master.kept.traces[0]
    assert theirs.parent_id == call.span_id
    assert len(master.kept.traces) == 1, "a producer's word counts"


async def test_a_batch_has_its_number_and_no_key(front: Front, master: Master) -> None:
    front.sends.ratio = 1.0
    body = encode_batch([BatchMessage(b"one"), BatchMessage(b"two")])
    await front.send("", body=body, m="true", code=RequestCode.SEND_BATCH_MESSAGE)
    await until(lambda: bool(front.kept.traces))
    assert front.kept.parts["SendMessage"].attributes["messaging.batch.message_count"] == 2


@pytest.mark.parametrize(
    "codec", [pytest.param(SerializeType.JSON, id="json"), SerializeType.ROCKETMQ]
)
@pytest.mark.parametrize(
    ("properties", "field", "is_traced"),
    [
        pytest.param(SAMPLED, "", True, id="a property"),
        pytest.param("", f"00-{TRACE}-{SPAN}-01", True, id="a field, as a proxy has it"),
        pytest.param(f"traceparent\x01cc-{TRACE}-{SPAN}-09\x02", "", True, id="another version"),
        pytest.param(NOT_SAMPLED, "", False, id="not sampled"),
        pytest.param(f"x{SAMPLED}", "", False, id="another property"),
        pytest.param(SAMPLED.replace("-00", "-0"), "", False, id="malformed"),
        pytest.param("", "", False, id="none"),
    ],
)
async def test_a_look_at_the_header_finds_a_parent(
    codec: SerializeType, properties: str, field: str, is_traced: bool
) -> None:
    command = send(properties, **({"traceparent": field} if field else {}))
    command.serialize_type = codec
    (glimpse,) = FrameCutter().feed(encode(command))
    conn: Any = type("Conn", (), {"id": 1, "heard_s": 0.0, "peer": "10.0.0.9:1"})
    trace = PassedSends(Kept(), 0.0, "g", drawn=lambda: 0.5).begun(conn, glimpse)
    assert (trace is not None) == is_traced
    if trace is not None:
        assert (trace.trace_id, trace.parent_id) == (int(TRACE, 16), int(SPAN, 16))


async def test_what_is_not_traced_is_neither_decoded_nor_made_anew(
    front: Front, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []

    class Counted(FrameDecoder):
        __slots__ = ()

        def feed(self, data: bytes, limit: int | None = None) -> list[RemotingCommand]:
            decoded.append(data)
            return super().feed(data, limit)

    monkeypatch.setattr(traced_passing, "FrameDecoder", Counted)
    client = await front.client()
    noted = noted_parents(monkeypatch)
    for properties in ("", DELAYED, NOT_SAMPLED):
        await client.call(send(properties), 5)
    (pipe,) = front.router.pipes
    (glimpse,) = FrameCutter().feed(encode(send(NOT_SAMPLED)))
    assert isinstance(pipe, TracedPipe)
    assert pipe._named(glimpse) is glimpse
    assert (decoded, noted) == ([], [None]), "only the epoch was said"
    assert (front.kept.traces, master.kept.traces) == ([], [])
    await client.call(send(SAMPLED), 5)
    assert len(decoded) == 2, "a send and its answer"
    assert noted[:-1] == [None]
    assert parent_of(noted[-1] or "") is not None


def noted_parents(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The parents that the master is told, by frames that nobody answers."""
    found: list[str | None] = []
    plain = parents.note

    def note(conn: Connection, command: RemotingCommand) -> None:
        found.append((command.ext or {}).get("traceparent"))
        plain(conn, command)

    monkeypatch.setattr(parents, "note", note)
    return found


async def test_nothing_of_it_runs_where_tracing_is_off(master: Master) -> None:
    """Calls are counted by the module that they go to, on a way that is warm."""
    front = await Member("front").start()
    assert front.router.make_pipe is Pipe
    master.router.processor = master._answer  # without tracing, too
    front.follow(master.address)
    straight = await _calls_of_a_send(await master.client())
    passed = await _calls_of_a_send(await front.client())
    await front.stop()
    assert passed["remoting/splice.py"] > straight["remoting/splice.py"] == 0
    assert not [file for file in passed if any(part in file for part in _OF_TRACES)]
    assert passed["gantry_protocol/frame.py"] == straight["gantry_protocol/frame.py"] > 0, (
        "a front decodes and encodes nothing"
    )


async def test_clients_that_are_there_are_traced_from_now_on_and_no_more(
    master: Master,
) -> None:
    front = await Member("front").start()
    front.epoch = 3
    front.follow(master.address)
    client = await front.client()
    assert (await client.call(send(SAMPLED), 5)).remark == "master"
    master.parked = True
    waiting = asyncio.create_task(client.call(send(SAMPLED), 5))
    await until(lambda: len(master.heard) == 2)
    kept = Kept()
    sends = PassedSends(kept, 0.0, "g")
    for pipe in front.router.pipes:
        TracedPipe.take_over(pipe, sends)
    traced = asyncio.create_task(client.call(send(SAMPLED), 5))
    await until(lambda: len(master.heard) == 3)
    assert len(sends) == 1, "what was under way is not"
    kept.point_to(None)
    untraced = asyncio.create_task(client.call(send(SAMPLED), 5))
    await until(lambda: len(master.heard) == 4)
    assert len(sends) == 1
    (conn,) = master.server.connections.values()
    for command in master.heard[1:]:
        conn.reply(command, reply(command, 0, "late", ANSWER))
    for task in (waiting, traced, untraced):
        assert (await task).remark == "late"
    await until(lambda: bool(kept.traces))
    assert [span.name for span in kept.traces[0]] == ROOT
    assert (len(kept.traces), len(sends)) == (1, 0)
    await front.stop()


async def _calls_of_a_send(client: RemotingClient) -> Counter[str]:
    """How often functions of each file are called, by the last two parts of its path."""
    await client.call(send(SAMPLED), 5)
    called: Counter[str] = Counter()

    def count(frame: Any, event: str, _: object) -> None:
        if event == "call":
            called["/".join(Path(frame.f_code.co_filename).parts[-2:])] += 1

    sys.setprofile(count)
    try:
        await client.call(send(SAMPLED), 5)
    finally:
        sys.setprofile(None)
    del called["/".join(Path(__file__).parts[-2:])]
    return called


@pytest.mark.parametrize("is_first", [True, False])
async def test_the_next_master_is_told_the_same(
    front: Front, master: Master, is_first: bool
) -> None:
    """The call lasts until the last of them answers."""
    other = await Master("other").start()
    other.become_master()
    client = await front.client()
    if not is_first:  # which waits until the master is reached
        await client.call(request(READ), 5)
        master.heard.clear()
    master.parked = True
    asking = asyncio.create_task(client.call(send(DELAYED + SAMPLED), 5))
    await until(lambda: bool(master.heard))
    front.epoch = 4
    front.follow(other.address)
    assert (await asking).remark == "other"
    await until(lambda: bool(front.kept.traces))
    call, (theirs,) = front.kept.parts["call"], other.kept.traces[0]
    assert (theirs.trace_id, theirs.parent_id) == (call.trace_id, call.span_id)
    assert other.heard[0].ext == master.heard[0].ext
    assert len(front.kept.traces) == 1
    assert front.router.budget.kept_bytes == 0
    await other.stop()


async def test_the_time_without_a_master_is_in_queue(front: Front, master: Master) -> None:
    front.follow("")
    asking = asyncio.create_task(front.send(SAMPLED))
    await until(lambda: front.router.held == 1)
    await asyncio.sleep(0.05)
    front.follow(master.address)
    await asking
    await until(lambda: bool(front.kept.traces))
    queue = front.kept.parts["queue"]
    assert queue.end_ns - queue.start_ns >= 45_000_000


async def test_a_send_that_no_master_gets_is_a_span_with_the_reason(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "HOLD_S", 0.05)
    front.follow("")
    assert (await front.send(SAMPLED)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    await until(lambda: bool(front.kept.traces))
    ((root,),) = front.kept.traces
    assert root.error == routing.NO_MASTER
    assert root.attributes["gantry.response_code"] == 14
    assert root.end_ns - root.start_ns >= 45_000_000


async def test_a_send_that_its_master_left_unanswered_is_refused_with_its_call(
    front: Front, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame that is kept has the name of its span ahead of it."""
    monkeypatch.setattr(routing, "HOLD_S", 0.1)
    master.parked = True
    asking = asyncio.create_task(front.send(SAMPLED))
    await until(lambda: bool(master.heard))
    front.follow("")
    assert (await asking).code == ResponseCode.SERVICE_NOT_AVAILABLE
    await until(lambda: bool(front.kept.traces))
    assert list(front.kept.parts) == ROOT
    assert front.kept.parts["SendMessage"].error == routing.NO_MASTER


async def test_a_refusal_of_the_master_is_an_error_of_both(front: Front, master: Master) -> None:
    master.code = ResponseCode.SYSTEM_BUSY
    await front.send(SAMPLED)
    await until(lambda: bool(front.kept.traces))
    root, (theirs,) = front.kept.parts["SendMessage"], master.kept.traces[0]
    assert root.error == theirs.error == "master"
    assert root.attributes["gantry.response_code"] == ResponseCode.SYSTEM_BUSY


async def test_a_send_without_an_answer_and_other_requests_have_no_span(
    front: Front, master: Master
) -> None:
    front.sends.ratio = 1.0
    client = await front.client()
    await client.call(request(READ), 5)
    oneway = send(SAMPLED)
    oneway.flag |= 2
    client.oneway(oneway)
    await client.call(request(READ), 5)
    assert [asked.code for asked in master.heard] == [READ, WRITE, READ]
    assert front.kept.traces == []
    assert len(front.sends) == 0


async def test_a_send_that_is_never_answered_is_counted(front: Front, master: Master) -> None:
    master.parked = True
    client: RemotingClient = await front.client()
    asking = asyncio.create_task(client.call(send(SAMPLED), 5))
    await until(lambda: bool(master.heard))
    asking.cancel()
    client.close()
    await until(lambda: not front.router.pipes)
    front.sends.now_ns = partial(lambda now: now() + OPEN_FOR_NS, front.sends.now_ns)
    master.parked = False
    await front.send(SAMPLED)
    await until(lambda: bool(front.kept.traces))
    assert front.kept.dropped[UNFINISHED] == 1
    assert len(front.kept.traces) == 1


async def test_sends_in_one_piece_have_their_own_parents_and_asides_none(
    front: Front, master: Master
) -> None:
    """What the front answers itself is told to nobody here."""
    client = await front.client()
    await client.call(request(READ), 5)
    answered: list[int] = []

    def aside(pipe: Pipe, glimpse: Any) -> bool:
        (command,) = FrameDecoder(expect_preamble=False).feed(glimpse.frame)
        if command.body != b"aside":
            return False
        pipe.connection.entrust(command)
        pipe.connection.reply(command, reply(command))
        answered.append(command.opaque)
        return True

    front.router.aside = aside
    commands = [
        send(SAMPLED), send(SAMPLED, b"aside"), send(NOT_SAMPLED), send(SAMPLED)
    ]  # fmt: skip
    await asyncio.gather(*(client.call(command, 5) for command in commands))
    await until(lambda: len(front.kept.traces) == 2)
    assert answered == [commands[1].opaque]
    calls = {named(spans)["call"].span_id for spans in front.kept.traces}
    assert {spans[0].parent_id for spans in master.kept.traces} == calls
    assert len(calls) == 2


async def test_a_header_that_does_not_read_is_the_masters(front: Front, master: Master) -> None:
    front.sends.ratio = 1.0
    await front.send(e="none")
    await until(lambda: bool(front.kept.traces))
    attributes = front.kept.parts["SendMessage"].attributes
    assert "messaging.destination.name" not in attributes
    assert len(master.heard) == 1
