"""The work queue on a clock of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gantry_operator.workqueue import FIRST_DELAY_S, MAX_DELAY_S, WorkQueue

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def take(queue: WorkQueue[str]) -> str | None:
    """The next key, or None if none is due."""
    try:
        async with asyncio.timeout(0.001):
            return await queue.get()
    except TimeoutError:
        return None


async def test_keys_come_in_order_and_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert [await take(queue), await take(queue), await take(queue)] == ["a", "b", None]


async def test_an_active_key_is_never_given_twice() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await take(queue) == "a"
    queue.add("a")
    queue.add("a")
    assert await take(queue) is None
    queue.done("a")
    assert await take(queue) == "a"
    queue.done("a")
    assert await take(queue) is None


async def test_urgent_keys_overtake_and_are_not_doubled() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "c"):
        queue.add(key)
    queue.add("c", urgent=True)
    queue.add("c")
    assert len(queue) == 3
    assert [await take(queue) for _ in range(4)] == ["c", "a", "b", None]


async def test_a_key_that_became_urgent_while_active_is_urgent_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    queue.add("a", urgent=True)
    queue.add("a")
    queue.add("b")
    queue.done("a")
    assert await take(queue) == "a"


async def test_a_waiting_worker_wakes() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    queue.add("a")
    assert await waiting == "a"


async def test_delays(looptime: Any) -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("late", 10)
    queue.add_after("soon", 5)
    for key, due_s in (("soon", 5), ("late", 10)):
        async with asyncio.timeout(60):  # or a key that never comes due would be waited for
            assert await queue.get() == key
        assert looptime == due_s


async def test_the_sooner_of_two_delays_counts(looptime: Any) -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 20)
    assert await queue.get() == "a"
    assert looptime == 3
    queue.done("a")
    await asyncio.sleep(100)
    assert await take(queue) is None, "the other delays are void"


async def test_a_delay_of_a_queued_key_is_void() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 10)
    queue.add("a")
    queue.add_after("a", 1)
    assert await take(queue) == "a"
    queue.done("a")
    await asyncio.sleep(100)
    assert await take(queue) is None


async def test_a_delay_that_ends_while_the_key_is_active_is_not_lost() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1)
    await asyncio.sleep(5)
    assert await take(queue) is None
    queue.done("a")
    assert await take(queue) == "a"


async def test_failures_wait_longer_each_time_and_success_forgets() -> None:
    queue: WorkQueue[str] = WorkQueue()
    delays = [queue.retry("a") for _ in range(30)]
    bounds = [min(FIRST_DELAY_S * 2**n, MAX_DELAY_S) for n in range(30)]
    assert all(bound / 2 <= delay <= bound for delay, bound in zip(delays, bounds, strict=True))
    assert delays[-1] >= MAX_DELAY_S / 2
    assert queue.failures("a") == 30
    queue.forget("a")
    assert queue.retry("a") <= FIRST_DELAY_S


async def test_a_retry_waits_as_long_as_the_server_asked() -> None:
    queue: WorkQueue[str] = WorkQueue()
    assert queue.retry("a", at_least_s=7) == 7


async def test_one_failing_key_delays_no_other() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(20):
        queue.retry("bad")
    queue.add("good")
    assert await take(queue) == "good"


async def test_age_is_that_of_the_key_that_waits_longest() -> None:
    queue: WorkQueue[str] = WorkQueue()
    assert queue.oldest_age_s() == 0
    queue.add("a")
    await asyncio.sleep(3)
    queue.add("b")
    queue.add("a", urgent=True)
    assert queue.oldest_age_s() == pytest.approx(3)
    await queue.get()
    await asyncio.sleep(1)
    assert queue.oldest_age_s() == pytest.approx(1)


async def test_who_waits_longest_knows_how_many_went_before() -> None:
    queue: WorkQueue[str] = WorkQueue()
    assert queue.went_before() == 0
    queue.add("taken before")
    await take(queue)
    queue.add("a")
    await asyncio.sleep(1)
    for urgent in ("b", "c"):
        queue.add(urgent, urgent=True)
        assert await take(queue) == urgent
    queue.add("d")
    assert queue.went_before() == 2
    await take(queue)
    assert queue.went_before() == 1, "one was taken since d is due"


async def test_a_closed_queue_rings_no_more() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 1)
    queue.close()
    await asyncio.sleep(5)
    assert len(queue) == 0


async def test_many_workers_never_share_a_key() -> None:
    queue: WorkQueue[int] = WorkQueue()
    busy: set[int] = set()
    worked: dict[int, int] = {}

    async def work() -> None:
        while True:
            key = await queue.get()
            assert key not in busy
            busy.add(key)
            await asyncio.sleep(0.1 * (key + 1))
            busy.remove(key)
            worked[key] = worked.get(key, 0) + 1
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(4)]
    for turn in range(200):
        queue.add(turn % 7, urgent=turn % 3 == 0)
        await asyncio.sleep(0.03)
    await asyncio.sleep(60)
    for worker in workers:
        worker.cancel()
    assert set(worked) == set(range(7))
    assert queue.active == 0
    assert len(queue) == 0


async def test_patient_keys_come_last_and_their_waiting_is_no_sign_of_trouble() -> None:
    queue: WorkQueue[str] = WorkQueue(lambda key: key.startswith("topic"))
    queue.add("topic a")
    queue.add("group b")
    queue.add("topic c")
    await asyncio.sleep(100)
    assert queue.oldest_age_s() == 100
    found = []
    while len(queue):
        key = await queue.get()
        queue.done(key)
        found.append(key)
    assert found == ["group b", "topic a", "topic c"]
    queue.add("topic a")
    await asyncio.sleep(100)
    assert queue.oldest_age_s() == 0
