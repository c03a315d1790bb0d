"""A tenant that floods does not slow another one down: the real throttle on a simulated machine.

One processor takes requests in the order of their arrival: so long to read each, so long to store
one that is granted; a sync follows that costs time and no processor. Time is the test's, so equal
runs are equal, and what is compared is the machine's queue and nothing else.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

import pytest
from gantry_broker.clients.throttle import Throttle
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.settings.quotas import Quota, Quotas
from support.group_view import FakeConnection

READ_S, STORE_S, SYNC_S = 5e-6, 45e-6, 1e-3  # 20,000 messages a second keep the processor busy
THINK_S = 0.01  # a quiet client's pause
RETRY_S = 0.01  # after a refusal
WARM_UP_S, END_S = 1.0, 2.0  # a tenant may begin with a burst of one second
FLOOD = Quotas(tenants={"a": Quota(sends_per_second=5_000)})


class Machine:
    """The loop that the throttle runs on, its processor, and the clients around it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, quotas: Quotas) -> None:
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)
        self.now_s = 0.0
        self.stored = {"a": 0, "b": 0}
        self.latencies_s: list[float] = []  # of the quiet tenant
        self._throttle = Throttle(quotas)
        self._free_s = 0.0
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._asked: dict[int, Callable[[], None]] = {}  # what follows the answer, by request

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._events, (when_s, next(self._numbers), timer))
        return timer

    def work(self, cost_s: float) -> float:
        """When so much more is done."""
        self._free_s = max(self._free_s, self.now_s) + cost_s
        return self._free_s

    def client(self, tenant: str, think_s: float) -> None:
        """One request after the other, each after the answer to the last."""
        conn = FakeConnection()

        def send() -> None:
            asked = request(RequestCode.SEND_MESSAGE_V2, {"b": f"{tenant}%orders"}, b"x")
            sent_s = self.now_s

            def answered() -> None:
                self.stored[tenant] += 1
                if tenant == "b" and self.now_s > WARM_UP_S:
                    self.latencies_s.append(self.now_s - sent_s)
                self.call_at(self.now_s + think_s, send)

            def arrived() -> None:
                self._asked[id(asked)] = answered
                answer = self._throttle.serve(conn, asked, self._store)
                if answer is not None and answer.code:
                    del self._asked[id(asked)]
                    self.call_at(self.now_s + RETRY_S, send)

            self.call_at(self.work(READ_S), arrived)

        self.call_at(self.now_s, send)

    def _store(self, conn: FakeConnection, asked: RemotingCommand) -> RemotingCommand:
        self.call_at(self.work(STORE_S) + SYNC_S, self._asked.pop(id(asked)))
        return reply(asked)

    def p99_s(self) -> float:
        while self._events[0][0] < END_S:
            self.now_s, _, event = heapq.heappop(self._events)
            event()
        assert len(self.latencies_s) > 200
        return sorted(self.latencies_s)[len(self.latencies_s) * 99 // 100]


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def __call__(self) -> None:
        if self._callback is not None:
            self._callback()

    def cancel(self) -> None:
        self._callback = None


def p99_of_b(
    monkeypatch: pytest.MonkeyPatch, quotas: Quotas, flooding: int
) -> tuple[float, dict[str, int]]:
    machine = Machine(monkeypatch, quotas)
    for _ in range(flooding):
        machine.client("a", think_s=0.0)
    for _ in range(16):
        machine.client("b", THINK_S)
    return machine.p99_s(), machine.stored


@pytest.mark.parametrize("flooding", [64, 1_000, 4_000])
def test_another_tenants_p99_stays_below_twice(
    monkeypatch: pytest.MonkeyPatch, flooding: int
) -> None:
    alone, _ = p99_of_b(monkeypatch, FLOOD, 0)
    beside, stored = p99_of_b(monkeypatch, FLOOD, flooding)
    assert beside <= 2 * alone
    assert stored["a"] <= 5_000 * (END_S + 1), "a quota, and a burst of one second"
    assert stored["a"] >= 5_000 * END_S * 0.9, "it gets what is its own"


def test_without_quotas_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the test."""
    alone, _ = p99_of_b(monkeypatch, Quotas(), 0)
    beside, _ = p99_of_b(monkeypatch, Quotas(), 1_000)
    assert beside > 10 * alone
