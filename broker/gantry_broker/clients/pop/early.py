"""Requests by receipts that come before a new master has read what is in flight: they wait for it.

A client that is refused takes it that nothing was done, and asks again, or has its message again.
But what the last master left unanswered is given to the next one as soon as that serves, and the
last one may have carried it out. Only who has read the log can tell, so nothing is answered before,
as no pop is. The wait ends with an error that promises nothing (14).

Bounded: how many wait, what they hold, and how long.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.deadlines import Deadlines

from gantry_broker.clients.waiting_room import RoomLimits, WaitingRoom, held_bytes

WAIT_S = 2.5  # clients give a request 3 s
NOT_READ = "service not available now. what earlier masters wrote of messages in flight is not read"
_LIMITS = RoomLimits(  # fewer than the events that may wait for an append
    pulls=4_096, size_bytes=16 * 1024 * 1024, own_pulls=1_024, own_bytes=4 * 1024 * 1024
)

Serve: TypeAlias = Callable[[Connection, RemotingCommand], RemotingCommand | None]


class _Early(NamedTuple):
    """One that waits."""

    conn: Connection
    request: RemotingCommand
    serve: Serve
    size_bytes: int


class EarlyRequests:
    """See the module.

    Attributes:
        room: what waits now.
    """

    def __init__(self) -> None:
        """Nobody waits."""
        self.room = WaitingRoom(_LIMITS)
        self._early: dict[int, _Early] = {}  # in the order in which they came
        self._numbers = itertools.count(1)
        self._deadlines = Deadlines(self._refuse)

    def wait(
        self, conn: Connection, request: RemotingCommand, serve: Serve
    ) -> RemotingCommand | None:
        """Have ``serve`` answer ``request`` later; returns a refusal if there is no room."""
        size_bytes = held_bytes(request, None)
        if not self.room.enter(conn.id, size_bytes):
            return reply(request, ResponseCode.SERVICE_NOT_AVAILABLE, NOT_READ)
        number = next(self._numbers)
        self._early[number] = _Early(conn, request, serve, size_bytes)
        self._deadlines.add(number, WAIT_S)
        return None

    def serve_all(self) -> None:
        """The log was read, or nobody knows when it will be: serve everybody."""
        for number in list(self._early):
            early = self._take(number)
            try:
                answer = early.serve(early.conn, early.request)
            except GantryError as error:  # of this request alone
                answer = reply(early.request, error.answer_code, str(error))
            if answer is not None:
                _answer(early, answer)

    def close(self) -> None:
        """The mastership is over: nobody here will know."""
        for number in list(self._early):
            self._refuse(number)
        self._deadlines.clear()

    def _refuse(self, number: int) -> None:
        early = self._take(number)
        _answer(early, reply(early.request, ResponseCode.SERVICE_NOT_AVAILABLE, NOT_READ))

    def _take(self, number: int) -> _Early:
        early = self._early.pop(number)
        self._deadlines.remove(number)
        self.room.leave(early.conn.id, early.size_bytes)
        return early


def _answer(early: _Early, answer: RemotingCommand) -> None:
    if not early.request.is_oneway and not early.conn.closed:
        early.conn.reply(early.request, answer)
