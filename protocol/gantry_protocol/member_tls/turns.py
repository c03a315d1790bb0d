"""The turns of handshakes at ports between members.

A handshake takes a fraction of a millisecond of the processor, and whoever reaches the port can
begin as many as he likes. So all of a process share a part of the loop's time, and addresses take
turns: members at other addresses do not wait for one that floods.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

SLICE_S = 0.002  # of the loop at a time; some six handshakes
REST_S = 0.004  # between two slices: a third of the loop at most


class Shaking(Protocol):
    """A connection amid its handshake."""

    def take_turn(self) -> None:
        """Go on with what has come."""


class HandshakeTurns:
    """See the module."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """Nobody waits."""
        self._clock = clock
        self._rows: dict[str, deque[Shaking]] = {}  # by address, whose turn is next first
        self._armed: asyncio.Handle | None = None
        self._rests_until_s = 0.0  # by the loop's clock

    def __len__(self) -> int:
        return sum(len(row) for row in self._rows.values())

    def wait(self, one: Shaking, address: str) -> None:
        """``one`` is served in a later turn; it waits once, until it is."""
        self._rows.setdefault(address, deque()).append(one)
        if self._armed is None:
            loop = asyncio.get_running_loop()
            self._armed = loop.call_at(max(self._rests_until_s, loop.time()), self._turn)

    def _turn(self) -> None:
        self._armed = None
        until_s = self._clock() + SLICE_S
        while self._rows:
            address, row = next(iter(self._rows.items()))
            del self._rows[address]
            one = row.popleft()
            if row:
                self._rows[address] = row  # behind all others
            one.take_turn()
            if self._clock() >= until_s:
                loop = asyncio.get_running_loop()
                self._rests_until_s = loop.time() + REST_S
                if self._rows:
                    self._armed = loop.call_at(self._rests_until_s, self._turn)
                return
