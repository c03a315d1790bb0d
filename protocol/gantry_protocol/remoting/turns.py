"""Whose requests are served when: no turn of the event loop belongs to one connection.

Two rows. In the first are connections that ask for little: their requests are served as they come.
Who has more to say than one share, or whose requests are dear, stands in the second row, where
everybody gets a share in turn. Between two turns the loop looks at everything else: heartbeats,
acknowledgements, what a disk has done.

After its time the second row rests, the longer the more the first row uses of what is left to it:
up to twice as long. So peers with endless wishes take at most a third of the time from those with
few, and have all of it if there is nobody else. Dear requests, each as dear as ten sends and more,
are few where nobody means harm: the row rests four times as long for them, as soon as anybody is in
the first row at all. A connection that waits is not read from, so what waits is bounded by one read
each.

Some requests cost most of their time later, and elsewhere: each message of a batch is checked and
dispatched by every replica. Whoever serves one says so (``owe``). It counts like time of a dear
request, and the second row is not served while too much of it is still to be done (``settle``).

This is DRR with sparse flows first, as in RFC 8290, with time in place of bytes. What it refuses:
to interrupt a request. One that takes 0.2 s takes them; its row pays for it afterwards.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

SHARE_S = 0.001  # of one connection; some twenty sends
DEAR_S = 0.0005  # a request that takes so long on average; a send takes 60 µs, a batch of 32 200 µs
COSTS_AT_MOST_S = 0.002  # what one counts for at most in that
LARGE_BYTES = 64 * 1024  # who has so much of a frame under way stands in the second row
SHARE_FRAMES = 64  # decoded for it; frames may be of eight bytes
FIRST_ROW_S = 0.02  # in one turn; who comes later has the next one
SECOND_ROW_S = 0.002
BUSY_FIRST_ROW = 0.1  # of the time that the second row leaves; it rests as long as it ever does
USED_FIRST_ROW = 0.005  # the same for dear requests
REST = 2.0  # times what the second row has used
REST_DEAR = 4.0  # the same for dear requests
OWED_S = 0.2  # of work that was caused and is not done; the second row waits from then on
_MARK_AFTER_S = FIRST_ROW_S / 4  # a turn is told from the next one only when it gets long
_MEMORY_S = 0.5  # over which the first row's use is averaged


class Waiting(Protocol):
    """A connection that waits for its turn."""

    def take_turn(self) -> bool:
        """Use up to one share; whether its requests are dear."""


class Standing:
    """The standing of a connection; pure.

    Attributes:
        asks_much: in the second row: one share did not do, or its requests are dear.
        is_dear: the latter.
    """

    __slots__ = ("_cost_s", "asks_much", "is_dear")

    def __init__(self) -> None:
        self.asks_much = False
        self.is_dear = False
        self._cost_s = 0.0  # of its requests: rises slowly, and falls at once

    def note(self, used_s: float, served: int, more: bool) -> None:
        """A share took so long for so many requests, and there are more of them.

        What took long may have been kept from the processor: it counts for little, and what did
        not shows what this connection's requests cost.
        """
        cost_s = min(used_s / served, COSTS_AT_MOST_S)
        if cost_s < self._cost_s:
            self._cost_s = cost_s
        else:
            self._cost_s += (cost_s - self._cost_s) / 10
        self.is_dear = self._cost_s >= DEAR_S
        self.asks_much = more or self.is_dear


class Load:
    """The share of the second row's time that the first uses; pure."""

    def __init__(self) -> None:
        self._used_s = 0.0
        self._left_s = 0.0

    def note(self, passed_s: float, first_s: float, second_s: float) -> None:
        """Of the last ``passed_s`` the rows used so much."""
        kept = max(0.0, 1.0 - passed_s / _MEMORY_S)
        self._used_s = self._used_s * kept + first_s
        self._left_s = self._left_s * kept + max(passed_s - second_s, 0.0)

    def rest_s(self, second_s: float, dear_s: float) -> float:
        """The second row's rest after ``second_s``, of which dear requests took a part."""
        if self._left_s <= 0:
            return 0.0
        used = self._used_s / self._left_s
        cheap_s = (second_s - dear_s) * REST * min(1.0, used / BUSY_FIRST_ROW)
        return cheap_s + dear_s * REST_DEAR * min(1.0, used / USED_FIRST_ROW)


class Turns:
    """The rows of one event loop; the servers of a process share them.

    Attributes:
        put_off: connections that had to wait for a later turn, ever.
        owed_s: how long others will work for what was served.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """Nobody waits."""
        self.put_off = 0
        self.owed_s = 0.0
        self.clock = clock
        self._load = Load()
        self._first: deque[Waiting] = deque()
        self._second: deque[Waiting] = deque()
        self._first_s = 0.0  # used by the first row since the last turn
        self._newly_owed_s = 0.0  # since then
        self._turned_s = clock()
        self._rests_until_s = 0.0
        self._armed: asyncio.Handle | None = None
        self._is_soon = False  # it is armed, and not after a rest

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    @property
    def is_open(self) -> bool:
        """Whether somebody who comes now is served at once."""
        return self._first_s < FIRST_ROW_S

    def used(self, seconds: float) -> None:
        """Somebody who was not put off was served for so long."""
        self._first_s += seconds
        if self._first_s > _MARK_AFTER_S and not self._is_soon:
            self._arm()

    def owe(self, seconds: float) -> None:
        """Others will work so long for what is served now, until ``settle`` says that they have."""
        self.owed_s += seconds
        self._newly_owed_s += seconds

    def settle(self, seconds: float) -> None:
        """So much of what was owed is done."""
        self.owed_s -= seconds
        if self._second and self._armed is None:
            self._arm()

    def wait(self, one: Waiting, *, first: bool) -> None:
        """``one`` is served in a later turn; it waits once, until it is."""
        self.put_off += 1
        (self._first if first else self._second).append(one)
        if not self._is_soon and (first or self._armed is None):
            self._arm()

    def close(self) -> None:
        """Serve nobody any more."""
        self._first.clear()
        self._second.clear()
        if self._armed is not None:
            self._armed.cancel()
            self._armed, self._is_soon = None, False

    def _arm(self) -> None:
        """Have the next turn as soon as somebody may be served in it."""
        if self._armed is not None:
            self._armed.cancel()
        loop = asyncio.get_running_loop()
        rest_s = self._rests_until_s - self.clock()
        is_late = bool(self._first) or self._first_s > 0
        self._is_soon = is_late or (rest_s <= 0 and self.owed_s < OWED_S)
        if self._is_soon:
            self._armed = loop.call_soon(self._turn)
        elif self.owed_s >= OWED_S:
            self._armed = None  # until it is settled
        else:
            self._armed = loop.call_later(rest_s, self._turn)

    def _turn(self) -> None:
        self._armed, self._is_soon = None, False
        clock = self.clock
        first_s, self._first_s = self._first_s, 0.0
        begun_s = clock()
        self._serve(self._first, begun_s + FIRST_ROW_S)
        now_s = clock()
        second_s = dear_s = 0.0
        if self._second and now_s >= self._rests_until_s and self.owed_s < OWED_S:
            dear_s = self._serve(self._second, now_s + SECOND_ROW_S)
            second_s = clock() - now_s
        first_s += now_s - begun_s
        ended_s = now_s + second_s
        self._load.note(ended_s - self._turned_s, first_s, second_s)
        self._turned_s = ended_s
        owed_s, self._newly_owed_s = self._newly_owed_s, 0.0
        if second_s or owed_s:
            rest_s = self._load.rest_s(second_s + owed_s, dear_s + owed_s)
            self._rests_until_s = max(self._rests_until_s, ended_s) + rest_s
        if self._first or self._second:
            self._arm()

    def _serve(self, row: deque[Waiting], until_s: float) -> float:
        """Each in turn, until then; how long dear requests took."""
        dear_s = 0.0
        begun_s = self.clock()
        for _ in range(len(row)):  # who comes meanwhile stands behind them
            is_dear = row.popleft().take_turn()
            now_s = self.clock()
            if is_dear:
                dear_s += now_s - begun_s
            if now_s >= until_s:
                break
            begun_s = now_s
        return dear_s
