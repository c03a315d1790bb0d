"""Deadlines of many calls behind one timer; the clock is looptime's."""

import asyncio

import pytest
from gantry_protocol.remoting.deadlines import Deadlines

pytestmark = pytest.mark.looptime


def _recorder() -> tuple[Deadlines, list[tuple[int, float]]]:
    loop = asyncio.get_running_loop()
    start = loop.time()
    fired: list[tuple[int, float]] = []
    return Deadlines(lambda key: fired.append((key, round(loop.time() - start, 2)))), fired


async def test_each_key_expires_once_at_its_time() -> None:
    deadlines, fired = _recorder()
    for key, timeout_s in ((1, 3.0), (2, 1.0), (3, 2.0), (4, 1.0)):
        deadlines.add(key, timeout_s)
    await asyncio.sleep(10)
    assert sorted(fired[:2]) == [(2, 1.0), (4, 1.0)]
    assert fired[2:] == [(3, 2.0), (1, 3.0)]
    assert len(deadlines) == 0


async def test_removed_keys_never_expire_and_may_come_again() -> None:
    deadlines, fired = _recorder()
    deadlines.add(1, 1.0)
    deadlines.add(2, 2.0)
    deadlines.remove(1)
    deadlines.remove(7)
    deadlines.add(1, 5.0)
    await asyncio.sleep(10)
    assert fired == [(2, 2.0), (1, 5.0)]


async def test_an_earlier_deadline_rearms_the_timer() -> None:
    deadlines, fired = _recorder()
    deadlines.add(1, 60.0)
    await asyncio.sleep(1)
    deadlines.add(2, 1.0)
    await asyncio.sleep(2)
    assert fired == [(2, 2.0)]


async def test_clearing_calls_nobody() -> None:
    deadlines, fired = _recorder()
    deadlines.add(1, 1.0)
    deadlines.clear()
    deadlines.add(2, 2.0)
    await asyncio.sleep(5)
    assert fired == [(2, 2.0)]


async def test_an_expiry_may_add_and_remove() -> None:
    loop = asyncio.get_running_loop()
    fired = []

    def expired(key: int) -> None:
        fired.append(key)
        if key == 1:
            deadlines.remove(2)
            deadlines.add(3, 1.0)

    deadlines = Deadlines(expired)
    deadlines.add(1, 1.0)
    deadlines.add(2, 1.5)
    start = loop.time()
    await asyncio.sleep(5)
    assert fired == [1, 3]
    assert loop.time() - start == pytest.approx(5)


async def test_answered_calls_leave_no_memory_behind() -> None:
    deadlines, _ = _recorder()
    for key in range(100_000):
        deadlines.add(key, 3.0)
        deadlines.remove(key)
    assert len(deadlines._heap) <= 1025
