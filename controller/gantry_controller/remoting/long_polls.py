"""Requests that wait for news: kept here until the state says something new, for a bounded time.

Each is answered in the turn of the loop after the one in which a change was applied. Any controller
answers: what is new follows from the state alone. An answer that says nothing new vouches for the
moment at which the request was read, not for that at which it was answered.

What waits is bounded. Beyond that a request is answered at once, and its sender asks again.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import NamedTuple

from gantry_protocol.command import RemotingCommand

from gantry_controller.remoting.dispatcher import Dispatcher, Exchange

WAITING_MAX = 1024
"""Requests of one kind that wait at one controller: one for each process that asks here."""

News = Callable[[], RemotingCommand | None]
"""The answer, if there is news."""


class LongPolls:
    """Requests of one kind that wait at one node.

    Attributes:
        crowded_out: requests that were answered at once, since too many waited.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.crowded_out = 0
        self._dispatcher = dispatcher
        self._waiting: dict[str, dict[int, _Waiter]] = {}  # by key, by number of the request
        self._changed: dict[str, None] = {}  # keys to look at in the next turn

    @property
    def waiting(self) -> int:
        """Requests that wait for a change."""
        return sum(map(len, self._waiting.values()))

    @property
    def keys(self) -> Iterable[str]:
        """Subjects of which some request waits for news."""
        return self._waiting.keys()

    def close(self) -> None:
        """Answer nothing any more."""
        for waiter in chain.from_iterable(held.values() for held in self._waiting.values()):
            waiter.timer.cancel()
        self._waiting.clear()
        self._changed.clear()

    def serve(
        self,
        exchange: Exchange,
        key: str,
        wait_s: float,
        news: News,
        nothing: Callable[[], RemotingCommand],
    ) -> None:
        """Answer a consistent read now or later.

        Args:
            exchange: the request.
            key: ``wake`` is called with it when there may be news.
            wait_s: how long it may wait.
            news: made from the state.
            nothing: the answer without news.
        """

        def answer() -> RemotingCommand | None:
            found = news()
            if found is not None:
                return found
            # The controller that has passed the request on waits for less than it may ask for.
            if wait_s > 0 and not exchange.forwarded:
                if self.waiting < WAITING_MAX:
                    self._keep(exchange, key, wait_s, news, nothing)
                    return None
                self.crowded_out += 1
            return nothing()

        self._dispatcher.read(exchange, answer)

    def wake(self, key: str) -> None:
        """One look at all that is applied in this turn: a thousand changes are one answer."""
        if key in self._waiting:
            if not self._changed:
                asyncio.get_running_loop().call_soon(self._look)
            self._changed[key] = None

    def wake_all(self) -> None:
        """Anything may be new."""
        for key in self._waiting:
            self.wake(key)

    def _keep(
        self,
        exchange: Exchange,
        key: str,
        wait_s: float,
        news: News,
        nothing: Callable[[], RemotingCommand],
    ) -> None:
        self._dispatcher.hold(exchange)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(wait_s, self._expire, key, exchange.number)
        waiter = _Waiter(exchange, news, nothing, timer)
        self._waiting.setdefault(key, {})[exchange.number] = waiter

    def _expire(self, key: str, number: int) -> None:
        waiter = self._take(key, number)
        self._dispatcher.answer_held(waiter.exchange, waiter.nothing)

    def _take(self, key: str, number: int) -> "_Waiter":
        held = self._waiting[key]
        waiter = held.pop(number)
        waiter.timer.cancel()
        if not held:
            del self._waiting[key]
        return waiter

    def _look(self) -> None:
        changed, self._changed = self._changed, {}
        for key in changed:
            for number, waiter in list(self._waiting.get(key, {}).items()):
                found = waiter.news()
                if found is not None:
                    self._take(key, number)
                    self._dispatcher.answer_held(waiter.exchange, partial(_made, found))


def _made(answer: RemotingCommand) -> RemotingCommand:
    return answer


class _Waiter(NamedTuple):
    exchange: Exchange
    news: News
    nothing: Callable[[], RemotingCommand]
    timer: asyncio.TimerHandle
