"""The stream of role changes: what is news, a silent stream, and doubts without one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from gantry_operator.quorums import watch as watch_module
from gantry_operator.quorums.watch import RoleWatch
from gantry_protocol.admin_client.admin import Admin
from gantry_protocol.admin_client.errors import QuorumUnreachableError
from support.controllers_double import Trio
from support.patience import PATIENCE_S
from unit.operator.world import view

GROUP = json.loads(view().to_json())


@pytest.fixture
async def trio() -> AsyncIterator[Trio]:
    async with Trio() as controllers:
        yield controllers


def line(group: str = "orders", **facts: Any) -> bytes:
    event = {"index": 1, "cluster": "gantry", "group": group, "masterEpoch": 4} | facts
    return json.dumps(event).encode() + b"\n"


MEMBER = {"brokerId": 1, "address": "a:1", "alive": True, "inSync": True}
TIER = {"state": "uploading", "epoch": 4, "committedOffset": 10, "lagMs": 0, "version": 3}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([line()], ["orders"], id="first"),
        pytest.param([line(), line(index=2)], ["orders"], id="repeated"),
        pytest.param([line(), line(masterEpoch=5)], ["orders", "orders"], id="new-epoch"),
        pytest.param([line(), line(masterEpoch=3)], ["orders"], id="lower-epoch"),
        pytest.param([line(), line(syncStateSet=[1])], ["orders", "orders"], id="set"),
        pytest.param(
            [line(members=[MEMBER]), line(members=[MEMBER | {"alive": False}])],
            ["orders", "orders"],
            id="member-lost",
        ),
        pytest.param(
            [line(members=[MEMBER]), line(members=[MEMBER | {"maxOffset": 9}])],
            ["orders"],
            id="offsets-are-no-news",
        ),
        pytest.param(
            [line(members=[MEMBER]), line(members=[MEMBER | {"tier": TIER}])],
            ["orders", "orders"],
            id="first-word-of-a-tier",
        ),
        pytest.param(
            [line(members=[MEMBER | {"tier": TIER | change}]) for change in ({}, {"epoch": 5})],
            ["orders", "orders"],
            id="tier-claimed",
        ),
        pytest.param(
            [line(members=[MEMBER | {"tier": TIER | change}]) for change in ({}, {"reason": "x"})],
            ["orders", "orders"],
            id="trouble-with-the-tier",
        ),
        pytest.param(
            [
                line(members=[MEMBER | {"tier": TIER | change}])
                for change in ({}, {"committedOffset": 99, "lagMs": 5, "version": 9})
            ],
            ["orders"],
            id="growth-of-the-tier-is-no-news",
        ),
        pytest.param([line("a"), line("b")], ["a", "b"], id="two-groups"),
        pytest.param([line(), line(deleted=True), line()], ["orders"] * 3, id="deleted"),
        pytest.param([b'{"index": 3, "heartbeat": true}\n'], [], id="heartbeat"),
        pytest.param([b"junk\n", b"[]\n", line()], ["orders"], id="junk"),
    ],
)
async def test_what_is_news(trio: Trio, lines: list[bytes], expected: list[str]) -> None:
    heard: list[str] = []
    watch = RoleWatch(trio.quorum(), heard.append, nothing)
    for one in lines:
        watch.take(one)
    assert heard == expected


def streams(trio: Trio, number: int, *lines: bytes, end: bool) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for one in lines:
            await response.write(one)
        if not end:
            await asyncio.Event().wait()
        return response

    trio.controllers[number].answer = answer


def answers_all_but_streams(trio: Trio, number: int, status: int) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/watch":
            return web.json_response({"error": "NOT_LEADER", "message": "not now"}, status=421)
        return web.json_response(GROUP if status == 200 else {}, status=status)

    trio.controllers[number].answer = answer


def nothing() -> None:
    """Nobody asks."""


async def heard_within(watch: RoleWatch, heard: list[str], count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        task = asyncio.create_task(watch.run())
        while len(heard) < count:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "RETRY_S", 0.01)
    monkeypatch.setattr(watch_module, "SILENCE_S", 0.1)


@pytest.mark.usefixtures("quick")
async def test_the_stream_is_found_at_the_leader_and_opened_again(trio: Trio) -> None:
    trio.controllers[0].follows(trio.controllers[1])
    streams(trio, 1, line("a"), end=True)
    trio.controllers[2].follows(None)
    heard: list[str] = []

    def hear(group: str) -> None:
        heard.append(group)
        streams(trio, 1, line("b"), b'{"index": 9', end=True)  # cut in the middle of a line

    await heard_within(RoleWatch(trio.quorum(), hear, nothing), heard, 2)
    assert heard == ["a", "b"]
    assert trio.controllers[1].seen[0][1] == "/v1/watch?since=0"


@pytest.mark.usefixtures("quick")
async def test_a_silent_stream_is_a_dead_one(trio: Trio) -> None:
    streams(trio, 0, line("a"), end=False)
    heard: list[str] = []

    def hear(group: str) -> None:
        heard.append(group)
        trio.controllers[0].follows(None)
        streams(trio, 1, line("b"), end=False)

    await heard_within(RoleWatch(trio.quorum(), hear, nothing), heard, 2)
    assert heard == ["a", "b"]


@pytest.mark.usefixtures("quick")
async def test_an_endless_line_is_cut(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "MAX_LINE_BYTES", 1000)
    streams(trio, 0, line("a" * 5000), end=False)
    trio.controllers[1].follows(None)
    heard: list[str] = []
    task = asyncio.create_task(RoleWatch(trio.quorum(), heard.append, nothing).run())
    async with asyncio.timeout(PATIENCE_S):
        while len(trio.controllers[0].seen) < 2:
            await asyncio.sleep(0.01)
    task.cancel()
    assert heard == []


async def test_nobody_streams(trio: Trio) -> None:
    for controller in trio.controllers:
        controller.follows(None)
    with pytest.raises(QuorumUnreachableError):
        await trio.quorum().open_stream("/v1/watch?since=0")


class Watching:
    """A stream that is followed, and how often it raised doubt."""

    def __init__(self, trio: Trio) -> None:
        self.trio = trio
        self.quorum = trio.quorum()
        self.doubts = 0
        self.opened: list[int] = []  # attempts at the first controller before each doubt
        self.told: Callable[[], None] = nothing
        self._watch = RoleWatch(self.quorum, lambda _: None, self._doubt)

    def _doubt(self) -> None:
        self.doubts += 1
        self.opened.append(len(self.trio.controllers[0].seen))
        self.told()

    async def attempts(self, count: int) -> None:
        """Waits for so many more, at a controller that does not lead."""
        until = len(self.trio.controllers[2].seen) + count
        await self.until(lambda: len(self.trio.controllers[2].seen) >= until)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits while the stream is followed."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.01)

    async def __aenter__(self) -> Watching:
        self._task = asyncio.create_task(self._watch.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.mark.usefixtures("quick")
async def test_a_lost_stream_is_told_once_and_so_is_its_return(trio: Trio) -> None:
    """What a status says rests on it: what is settled is looked at for no other reason."""
    streams(trio, 0, line("a"), end=False)
    for other in trio.controllers[1:]:
        other.follows(None)
    async with Watching(trio) as watching:
        watching.told = lambda: trio.controllers[0].follows(None)
        await watching.until(lambda: watching.doubts == 1)
        assert watching.opened == [1], "the loss was told, and not before the next attempt"
        await watching.attempts(4)  # it goes on trying, and says no more
        assert watching.doubts == 1
        streams(trio, 1, line("b"), end=False)
        await watching.until(lambda: watching.doubts == 2)


@pytest.mark.usefixtures("quick")
async def test_a_first_stream_after_attempts_in_vain_is_told(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that was applied together with its controllers was looked at before they ran."""
    monkeypatch.setattr(watch_module, "SILENCE_S", PATIENCE_S)  # nothing ends the stream
    for controller in trio.controllers:
        controller.follows(None)
    async with Watching(trio) as watching:
        await watching.attempts(2)
        assert watching.doubts == 0  # nobody was believed
        streams(trio, 1, end=False)
        await watching.until(lambda: watching.doubts == 1)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", [200, 404])
async def test_an_answer_without_a_stream_is_doubted_once(trio: Trio, status: int) -> None:
    """The controllers may fall silent between a look and the first attempt after it."""
    for controller in trio.controllers:
        controller.follows(None)
    async with Watching(trio) as watching:
        await watching.attempts(2)
        answers_all_but_streams(trio, 0, status)
        await Admin(watching.quorum, "gantry").group("orders")
        await watching.until(lambda: watching.doubts == 1)
        await watching.attempts(3)
        assert watching.doubts == 1
