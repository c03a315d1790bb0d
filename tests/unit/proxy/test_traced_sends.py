"""Sends that a proxy traces: whose part they are, what the master is told, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.tracing.spans import Span
from gantry_proxy import messages
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.core.routes import GroupQueues
from gantry_proxy.traced_sends import TracedProducing

TRACE, SPAN, OTHER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "a" * 32
PARENT = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"


class Masters:
    """One group, whose master answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[RemotingCommand] = []
        self.code = ResponseCode.SUCCESS
        self.meanwhile: Callable[[], Any] = lambda: asyncio.sleep(0)
        self.tries = 1

    async def route(self, topic: str) -> tuple[GroupQueues, ...]:
        if topic == "nowhere":
            raise CallRefused("TOPIC_NOT_FOUND", "no such topic")
        return (GroupQueues("a", "a:1", 4, 4),)

    async def call(self, address: str, make: Any, within_s: float) -> RemotingCommand:
        self.asked += [make() for _ in range(self.tries)]
        await self.meanwhile()
        ext = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "7"}
        return reply(self.asked[-1], self.code, "as told", ext)


class Export:
    def __init__(self) -> None:
        self.is_on = True
        self.spans: list[Span] = []

    def add(self, spans: list[Span]) -> None:
        self.spans += spans


class Call:
    def __init__(self, **metadata: str) -> None:
        self.peer, self.metadata = "10.0.0.1:5", metadata
        self.behalf = {"gantryFor": "alice"}

    def left_s(self) -> float | None:
        return None


class World:
    def __init__(self, ratio: float = 0.0) -> None:
        self.masters, self.export = Masters(), Export()
        self.clock = iter(range(100, 1000))
        self.producing = TracedProducing(
            self.masters,  # type: ignore[arg-type]
            self.export,  # type: ignore[arg-type]
            ratio,
            lambda: next(self.clock),
            lambda: 0.5,
        )

    async def send(
        self, prop: str = "", context: str = "", meta: str = "", topic: str = "t", count: int = 1
    ) -> Any:
        wanted = messages.SendMessageRequest()
        for _ in range(count):
            message = wanted.messages.add(body=b"b")
            message.topic.name = topic
            message.system_properties.message_id = "M1"
            message.system_properties.message_type = messages.MESSAGE_TYPES["NORMAL"]
            if prop:
                message.user_properties["traceparent"] = prop
            if context:
                message.system_properties.trace_context = context
        call = Call(**({"traceparent": meta} if meta else {}))
        return await self.producing.send(wanted, call)  # type: ignore[arg-type]

    def spans(self) -> dict[str, Span]:
        assert len({span.name for span in self.export.spans}) == len(self.export.spans)
        return {span.name: span for span in self.export.spans}


@pytest.mark.parametrize(
    "given",
    [
        {"prop": PARENT},
        {"context": PARENT},
        {"meta": PARENT},
        {"prop": PARENT, "context": f"00-{OTHER}-{SPAN}-01"},
        {"prop": "no parent", "meta": PARENT},
        {"context": PARENT, "meta": UNSAMPLED},
        {"prop": PARENT, "count": 3},
    ],
)
async def test_the_parent_of_a_send(given: dict[str, Any]) -> None:
    world = World()
    await world.send(**given)
    root = world.spans()["SendMessage"]
    assert (f"{root.trace_id:032x}", f"{root.parent_id:016x}") == (TRACE, SPAN)


async def test_tracing_is_switched_from_one_send_to_the_next() -> None:
    world = World()
    world.export.is_on = False
    await world.send(PARENT)
    assert world.export.spans == []
    world.export.is_on = True
    await world.send()
    assert world.export.spans == []
    world.producing.ratio = 0.6
    await world.send()
    assert len(world.spans()) == 3


async def test_the_masters_part_is_within_the_call() -> None:
    world = World()
    world.masters.tries = 2
    await world.send(PARENT)
    spans = world.spans()
    root, route, call = (spans[name] for name in ("SendMessage", "route", "call"))
    for asked in world.masters.asked:
        assert asked.ext is not None
        assert asked.ext["traceparent"] == f"00-{TRACE}-{call.span_id:016x}-01"
        assert asked.ext["gantryFor"] == "alice"
        assert PARENT in asked.ext["i"], "the message stays as it was made"
    assert {route.parent_id, call.parent_id} == {root.span_id}
    assert len({root.span_id, route.span_id, call.span_id}) == 3
    assert root.start_ns == route.start_ns < route.end_ns == call.start_ns < call.end_ns
    assert (call.end_ns, root.error) == (root.end_ns, None)
    assert [int(span.kind) for span in (root, route, call)] == [2, 1, 3]
    assert root.attributes["messaging.destination.name"] == "t"
    assert root.attributes["messaging.message.id"] == "M1"
    assert root.attributes["gantry.broker_group"] == "a"
    assert root.attributes["network.peer.address"] == "10.0.0.1"


@pytest.mark.parametrize(
    ("ratio", "given", "is_traced"),
    [
        (0.5, {}, False),
        (0.6, {}, True),
        (1.0, {"prop": UNSAMPLED}, False),
        (0.0, {"meta": PARENT}, True),
    ],
)
async def test_a_parent_decides_and_a_ratio_without_one(
    ratio: float, given: dict[str, Any], is_traced: bool
) -> None:
    world = World(ratio)
    await world.send(**given)
    (asked,) = world.masters.asked
    assert ("traceparent" in (asked.ext or {})) == is_traced
    assert bool(world.export.spans) == is_traced


async def test_a_send_that_is_refused_before_has_no_call() -> None:
    world = World()
    with pytest.raises(CallRefused):
        await world.send(PARENT, topic="nowhere")
    (root,) = world.export.spans
    assert "no such topic" in str(root.error)


async def test_what_a_master_refuses_or_does_not_confirm_is_an_error() -> None:
    world = World()
    world.masters.code = ResponseCode.FLUSH_SLAVE_TIMEOUT
    await world.send(PARENT)
    assert world.spans()["SendMessage"].error == "as told"
    world = World()
    world.masters.code = ResponseCode.SYSTEM_ERROR
    with pytest.raises(CallRefused):
        await world.send(PARENT)
    assert "as told" in str(world.spans()["SendMessage"].error)
    assert "call" in world.spans()


async def test_a_client_that_gives_up_leaves_a_span() -> None:
    world = World()
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    world.masters.meanwhile = hang
    task = asyncio.create_task(world.send(PARENT))
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert world.spans()["SendMessage"].error == "the client gave up"
