"""The clock and the threads that groups of one process share."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from gantry_broker.member import ticker as ticker_module
from gantry_broker.member.pool import InOrder
from gantry_broker.member.ticker import Ticker


async def test_everybody_is_ticked_in_turn_and_only_so_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ticker_module, "PER_WAKE_UP", 3)
    monkeypatch.setattr(ticker_module, "TICK_S", 1000)
    ticker, heard = Ticker(), Counter[int]()

    def made(number: int):
        return lambda: heard.update([number])

    ticks = [made(number) for number in range(7)]
    for tick in ticks:
        ticker.add(tick)
    assert ticker.period_s == 3000
    order: list[int] = []
    for wake_up in range(1, 8):
        before = set(heard.elements())
        ticker._wake_up()
        assert heard.total() == 3 * wake_up
        order += sorted(set(heard.elements()) - before)
    assert order == list(range(7))
    assert set(heard.values()) == {3}
    for tick in ticks[:5]:
        ticker.remove(tick)
    heard.clear()
    ticker._wake_up()
    assert heard == {5: 1, 6: 1}, "two are left, and each is ticked once per wake-up"
    for tick in ticks:
        ticker.remove(tick)
    assert ticker._timer is None


async def test_one_owners_work_is_in_order_and_nobody_waits_for_anothers() -> None:
    gate, done = threading.Event(), []
    with ThreadPoolExecutor(2) as pool:
        slow, quick = InOrder(pool), InOrder(pool)

        def work(name: str):
            return lambda: done.append(name)

        slow.submit(lambda: bool(gate.wait(5)))  # type: ignore[arg-type,return-value]
        last = [slow.submit(work(f"slow {number}")) for number in range(50)][-1]
        await asyncio.wrap_future(quick.submit(work("quick")))
        assert done == ["quick"]
        gate.set()
        await asyncio.wrap_future(last)
        assert done == ["quick", *(f"slow {number}" for number in range(50))]


def test_an_error_reaches_whoever_ordered_the_work_and_ends_nothing_else() -> None:
    with ThreadPoolExecutor(1) as pool:
        owner = InOrder(pool)

        def broken() -> None:
            raise OSError("no room")

        first, second = owner.submit(broken), owner.submit(lambda: None)
        owner.wait()
        assert isinstance(first.exception(), OSError)
        assert second.exception() is None
