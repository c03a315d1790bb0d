"""Messages whose time is prolonged while their client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_proxy import renewing
from gantry_proxy.core import handles
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.renewing import RENEW_AFTER_S, RENEWED_FOR_S, RENEWED_MS, Renewal, Renewals

CLIENT = ("ada", "client")

pytestmark = pytest.mark.looptime


class Masters:
    """Notes what it is asked, and answers `code`; None: nobody answers."""

    def __init__(self) -> None:
        self.code: int | None = ResponseCode.SUCCESS
        self.asked: list[tuple[float, dict[str, str]]] = []

    async def place(self, topic: str, broker_name: str) -> str:
        return f"{broker_name}:1"

    async def call(self, address: str, make: Any, within_s: float, **named: Any) -> RemotingCommand:
        command = make()
        assert command.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        self.asked.append((asyncio.get_running_loop().time(), command.ext))
        if self.code is None:
            raise CallRefused("PROXY_TIMEOUT", "nobody")
        return RemotingCommand(code=self.code)


class World:
    """Renewals that run, and what is around them."""

    def __init__(self) -> None:
        self.masters, self.there = Masters(), {CLIENT}
        self.renewals = Renewals(self.masters, lambda name: name in self.there)  # type: ignore[arg-type]
        self.task: asyncio.Task[None] | None = None  # a fixture has another clock than its test

    def hold(self, count: int = 1) -> list[handles.Handle]:
        made = [
            handles.parse(handles.receipt(0, 50, RENEWED_MS, 0, ("orders-a", 2, n, 7)))
            for n in range(count)
        ]
        self.task = asyncio.create_task(self.renewals.run())
        self.began_s = asyncio.get_running_loop().time()
        behalf = {"gantryFor": "ada"}
        self.renewals.hold(Renewal(CLIENT, "g", "orders", handle, behalf) for handle in made)
        return made


@pytest.fixture
async def world() -> Iterator[World]:
    made = World()
    yield made
    if made.task is not None:
        made.task.cancel()


async def test_a_message_is_renewed_before_its_time_and_its_handle_stays(world: World) -> None:
    (handle,) = world.hold()
    await asyncio.sleep(5 * RENEW_AFTER_S)
    times = [at_s - world.began_s for at_s, _ in world.masters.asked]
    assert len(times) >= 4
    assert times[0] * 1000 < RENEWED_MS
    assert all(b - a < RENEWED_MS / 1000 for a, b in pairwise(times))
    for _, ext in world.masters.asked:
        assert (ext["extraInfo"], ext["gantryRenew"]) == (handle.text, "true")
        assert ext["invisibleTime"] == str(RENEWED_MS)
        assert ext["gantryFor"] == "ada"


async def test_a_client_that_is_gone_has_nothing_renewed(world: World) -> None:
    world.hold()
    world.there.clear()
    await asyncio.sleep(2 * RENEW_AFTER_S)
    assert world.masters.asked == []
    assert len(world.renewals) == 0


async def test_what_is_done_is_not_renewed(world: World) -> None:
    (handle,) = world.hold()
    world.renewals.drop(handle)
    await asyncio.sleep(2 * RENEW_AFTER_S)
    assert world.masters.asked == []


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(ResponseCode.NO_MESSAGE, id="handed out again"),
        pytest.param(ResponseCode.NO_PERMISSION, id="its user may no longer have it"),
    ],
)
async def test_what_is_no_longer_its_clients_is_not_renewed(world: World, code: int) -> None:
    world.hold()
    world.masters.code = code
    await asyncio.sleep(4 * RENEW_AFTER_S)
    assert len(world.masters.asked) == 1
    assert len(world.renewals) == 0


@pytest.mark.parametrize("code", [None, ResponseCode.SYSTEM_BUSY])
async def test_a_master_that_does_not_answer_is_asked_again_soon(
    world: World, code: int | None
) -> None:
    world.hold()
    world.masters.code = code
    await asyncio.sleep(RENEWED_MS / 1000)
    assert len(world.masters.asked) > 3
    assert len(world.renewals) == 1


async def test_nothing_is_renewed_for_ever(world: World) -> None:
    world.hold()
    await asyncio.sleep(RENEWED_FOR_S + 2 * RENEW_AFTER_S)
    assert len(world.renewals) == 0
    count = len(world.masters.asked)
    await asyncio.sleep(4 * RENEW_AFTER_S)
    assert len(world.masters.asked) == count


async def test_what_is_held_has_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewing, "HELD_MAX", 3)
    world.hold(5)
    assert (len(world.renewals), world.renewals.left_out) == (3, 2)
