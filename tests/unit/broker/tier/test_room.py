"""Room for packs: who waits, who is next, and what is given back."""

from __future__ import annotations

import asyncio

from gantry_broker.tier.room import PackRoom
from support.patience import PATIENCE_S


async def soon(*takes: asyncio.Task[None]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*takes, return_exceptions=True)


def begin(room: PackRoom, size: int) -> asyncio.Task[None]:
    return asyncio.create_task(room.take(size))


async def test_whoever_asked_first_is_first() -> None:
    room = PackRoom(10)
    await room.take(6)
    large, small = begin(room, 8), begin(room, 1)
    await asyncio.sleep(0)
    assert (large.done(), small.done(), room.waiting) == (False, False, 2), "nobody is passed by"
    room.give_back(6)
    await soon(large, small)
    assert (room.used_bytes, room.waiting) == (9, 0)


async def test_a_pack_that_is_larger_than_the_room_goes_alone() -> None:
    room = PackRoom(10)
    await room.take(1)
    large = begin(room, 50)
    await asyncio.sleep(0)
    assert not large.done()
    room.give_back(1)
    await soon(large)
    after = begin(room, 1)
    await asyncio.sleep(0)
    assert not after.done()
    room.give_back(50)
    await soon(after)
    assert room.used_bytes == 1


async def test_who_gives_up_waiting_keeps_nothing_and_nobody() -> None:
    room = PackRoom(10)
    await room.take(6)
    large, small = begin(room, 8), begin(room, 2)
    await asyncio.sleep(0)
    large.cancel()
    await soon(large)
    await soon(small)
    assert (room.used_bytes, room.waiting) == (8, 0)
    late = begin(room, 5)
    await asyncio.sleep(0)
    room.give_back(8)  # it is its turn, and it gives up before it knows
    late.cancel()
    await soon(late)
    assert (room.used_bytes, room.waiting) == (0, 0)
