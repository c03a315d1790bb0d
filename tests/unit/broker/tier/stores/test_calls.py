from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable

import pytest
from gantry_broker.tier.stores import StoreBusy, StoreUnavailable
from gantry_broker.tier.stores.calls import DeadlineCalls
from gantry_broker.tier.stores.metrics import StoreCollector

SOON_S = 0.02  # a deadline that is meant to pass
LONG_S = 60.0


@pytest.fixture
async def hang() -> AsyncIterator[threading.Event]:
    """What hung calls wait for; set at the end, so no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_result_and_error_reach_the_caller() -> None:
    calls = DeadlineCalls("t")
    assert await calls.run("Asking", lambda: 42, LONG_S) == 42

    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await calls.run("Asking", fail, LONG_S)
    assert (calls.stats.calls_total, calls.stats.failed_total, calls.stats.running) == (2, 1, 0)


async def test_hung_call_ends_at_its_deadline_and_is_counted(hang: threading.Event) -> None:
    calls = DeadlineCalls("t")
    with pytest.raises(StoreUnavailable, match=r"Asking had no answer within 0\.02 s\."):
        await calls.run("Asking", hang.wait, SOON_S)
    assert (calls.stats.abandoned, calls.stats.abandoned_total, calls.stats.running) == (1, 1, 0)
    assert await calls.run("Asking", lambda: 1, LONG_S) == 1
    hang.set()
    await until(lambda: calls.stats.abandoned == 0)
    assert calls.stats.abandoned_total == 1


async def test_cancelled_caller_leaves_the_thread(hang: threading.Event) -> None:
    calls = DeadlineCalls("t")
    task = asyncio.create_task(calls.run("Asking", hang.wait, LONG_S))
    await until(lambda: calls.stats.running == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls.stats.abandoned == 1
    hang.set()
    await until(lambda: calls.stats.abandoned == 0)


async def test_abandoned_threads_are_bounded(hang: threading.Event) -> None:
    calls = DeadlineCalls("t", running_max=2, abandoned_max=3)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await calls.run("Asking", hang.wait, SOON_S)
    with pytest.raises(StoreBusy, match=r"Asking was not tried: 3 earlier calls never came back\."):
        await calls.run("Asking", lambda: 1, LONG_S)
    assert calls.stats.calls_total == 3
    hang.set()
    await until(lambda: calls.stats.abandoned == 0)
    assert await calls.run("Asking", lambda: 1, LONG_S) == 1


async def test_running_calls_are_bounded_and_waiting_counts(hang: threading.Event) -> None:
    calls = DeadlineCalls("t", running_max=2)
    tasks = [asyncio.create_task(calls.run("Asking", hang.wait, LONG_S)) for _ in range(4)]
    await until(lambda: calls.stats.running == 2)
    with pytest.raises(StoreUnavailable):
        await calls.run("Asking", lambda: 1, SOON_S)
    assert (calls.stats.running, calls.stats.calls_total, calls.stats.abandoned) == (2, 2, 0)
    hang.set()
    await asyncio.gather(*tasks)
    assert calls.stats.calls_total == 4


async def test_late_error_of_an_abandoned_call_is_nobodys(hang: threading.Event) -> None:
    calls = DeadlineCalls("t")

    def fail_late() -> None:
        hang.wait()
        raise ValueError("late")

    with pytest.raises(StoreUnavailable):
        await calls.run("Asking", fail_late, SOON_S)
    hang.set()
    await until(lambda: calls.stats.abandoned == 0)
    gc.collect()  # an exception that nobody took would be reported here


def test_answer_after_the_loop_is_gone_is_dropped() -> None:
    release, done = threading.Event(), threading.Event()

    def work() -> None:
        release.wait()
        done.set()

    async def ask() -> None:
        with pytest.raises(StoreUnavailable):
            await DeadlineCalls("t").run("Asking", work, SOON_S)

    asyncio.run(ask())
    release.set()
    assert done.wait(LONG_S)
    for thread in threading.enumerate():
        if thread.name == "t":
            thread.join(LONG_S)


async def test_metrics(hang: threading.Event) -> None:
    calls = DeadlineCalls("t")
    await calls.run("Asking", lambda: 1, LONG_S)
    with pytest.raises(StoreUnavailable):
        await calls.run("Asking", hang.wait, SOON_S)
    samples = {
        sample.name: sample.value
        for family in StoreCollector(lambda: {"read": calls.stats}).collect()
        for sample in family.samples
    }
    assert samples == {
        "gantry_tier_store_calls_total": 2,
        "gantry_tier_store_failed_calls_total": 1,
        "gantry_tier_store_abandoned_calls_total": 1,
        "gantry_tier_store_running": 0,
        "gantry_tier_store_abandoned": 1,
    }
