"""Holding what is beyond a quota: order, bounds, answers; time is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from gantry_broker.clients import throttle as module
from gantry_broker.clients.throttle import Throttle
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import BodyError
from gantry_protocol.records import BatchMessage, encode_batch
from gantry_protocol.settings.quotas import Quota, Quotas
from support.group_view import FakeConnection


class Clock:
    """Stands for the loop's time and its one timer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        entry = (when_s, callback)
        self.timers.append(entry)
        clock = self

        class Handle:
            def cancel(self) -> None:
                if entry in clock.timers:
                    clock.timers.remove(entry)

        return Handle()  # type: ignore[return-value]

    def pass_until(self, now_s: float) -> None:
        while due := [one for one in self.timers if one[0] <= now_s]:
            first = min(due, key=lambda one: one[0])
            self.timers.remove(first)
            self.now_s = max(self.now_s, first[0])
            first[1]()
        self.now_s = now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def throttle(clock: Clock) -> Throttle:
    return Throttle(Quotas(Quota(sends_per_second=8, read_bytes_per_second=1000)))


def _send(topic: str = "T", body: bytes = b"x", **ext: str) -> RemotingCommand:
    return request(RequestCode.SEND_MESSAGE_V2, {"b": topic, **ext}, body)


def _pull(topic: str = "T") -> RemotingCommand:
    return request(RequestCode.PULL_MESSAGE, {"topic": topic})


class Handler:
    """Answers 0 at once and remembers the order."""

    def __init__(self) -> None:
        self.served: list[RemotingCommand] = []

    def __call__(self, conn: object, asked: RemotingCommand) -> RemotingCommand:
        self.served.append(asked)
        return reply(asked)


def test_what_is_too_fast_is_served_later_in_its_order(throttle: Throttle, clock: Clock) -> None:
    handler, conn = Handler(), FakeConnection()
    asked = [_send() for _ in range(14)]
    answers = [throttle.serve(conn, one, handler) for one in asked]
    assert [answer is not None for answer in answers] == [True] * 9 + [False] * 5
    assert len(throttle) == 5
    assert len(clock.timers) == 1, "one timer for all"
    clock.pass_until(1000.4)
    assert handler.served == asked[:12]
    clock.pass_until(1001)
    assert handler.served == asked
    assert [to for to, _ in conn.replies] == asked[9:]
    assert not clock.timers


def test_who_comes_when_others_are_due_is_served_after_them(
    throttle: Throttle, clock: Clock
) -> None:
    handler, conn = Handler(), FakeConnection()
    asked = [_send() for _ in range(10)]
    for one in asked:
        throttle.serve(conn, one, handler)
    clock.now_s = 1005.0  # the loop is late: the timer has not fired
    last = _send()
    assert throttle.serve(conn, last, handler) is not None
    assert handler.served == [*asked, last]


def test_other_tenants_and_other_requests_are_not_held(throttle: Throttle) -> None:
    handler, conn = Handler(), FakeConnection()
    for _ in range(10):
        throttle.serve(conn, _send("busy%T"), handler)
    assert throttle.serve(conn, _send("quiet%T"), handler) is not None
    heartbeat = request(RequestCode.HEART_BEAT)
    assert throttle.serve(conn, heartbeat, handler) is not None


def test_beyond_patience_a_send_is_refused_with_flow_control(throttle: Throttle) -> None:
    handler, conn = Handler(), FakeConnection()
    answers = [throttle.serve(conn, _send(), handler) for _ in range(18)]
    assert answers[-1] is not None
    assert answers[-1].code == ResponseCode.FLOW_CONTROL
    assert len(handler.served) == 9
    assert throttle.refused_total == 1


def test_messages_of_a_batch_are_counted(throttle: Throttle) -> None:
    handler, conn = Handler(), FakeConnection()
    body = encode_batch([BatchMessage(b"x", "", 0)] * 15)
    batch = request(RequestCode.SEND_BATCH_MESSAGE, {"b": "T", "m": "true"}, body)
    assert throttle.serve(conn, batch, handler) is not None
    assert throttle.serve(conn, _send(), handler) is None


def test_a_pull_waits_until_what_was_read_is_paid(throttle: Throttle, clock: Clock) -> None:
    handler, conn = Handler(), FakeConnection()
    throttle.has_read("T", 4000)
    asked = _pull()
    assert throttle.serve(conn, asked, handler) is None
    clock.pass_until(1002.9)
    assert handler.served == []
    clock.pass_until(1003)
    assert handler.served == [asked]


def test_a_pull_that_would_wait_too_long_is_refused_in_the_end(
    throttle: Throttle, clock: Clock
) -> None:
    handler, conn = Handler(), FakeConnection()
    throttle.has_read("T", 100_000)
    asked = _pull()
    assert throttle.serve(conn, asked, handler) is None
    clock.pass_until(1010)
    assert conn.answer_to(asked).code == ResponseCode.FLOW_CONTROL
    assert handler.served == []


def test_what_is_held_is_bounded(throttle: Throttle, monkeypatch: pytest.MonkeyPatch) -> None:
    handler, conn = Handler(), FakeConnection()
    monkeypatch.setattr(module, "HELD_MAX_BYTES", 100)
    for _ in range(9):
        throttle.serve(conn, _send(), handler)
    assert throttle.serve(conn, _send(body=b"." * 60), handler) is None
    refused = throttle.serve(conn, _send(body=b"." * 60), handler)
    assert refused is not None
    assert refused.code == ResponseCode.FLOW_CONTROL


def test_the_end_sends_everybody_on_and_a_closed_connection_is_passed_over(
    throttle: Throttle, clock: Clock
) -> None:
    handler, gone, there = Handler(), FakeConnection(), FakeConnection()
    for _ in range(10):
        throttle.serve(gone, _send(), handler)
    gone.closed = True
    clock.pass_until(1000.2)
    assert len(handler.served) == 9
    for _ in range(5):
        last = _send()
        throttle.serve(there, last, handler)
    throttle.close()
    assert there.answer_to(last).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert not clock.timers


def test_an_error_of_a_late_handler_is_answered(throttle: Throttle, clock: Clock) -> None:
    conn, asked = FakeConnection(), _send()

    def fails(conn: object, asked: RemotingCommand) -> RemotingCommand:
        raise BodyError("no header")

    for _ in range(9):
        throttle.serve(conn, _send(), Handler())
    assert throttle.serve(conn, asked, fails) is None
    clock.pass_until(1001)
    assert conn.answer_to(asked).code == ResponseCode.SYSTEM_ERROR
