"""Questions of a broker to its clients, by the number that their answers will bear.

A broker asks on the connection that the client keeps. Everything is bounded: how many questions
are under way, and how long. A client that leaves meanwhile has not answered, and is said to be
offline at once.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.deadlines import Deadlines

Answered = Callable[[int, str | None, dict[str, str] | None, bytes], None]
"""Takes code, remark, fields and body of an answer."""


class Question(NamedTuple):
    """A question under way, for ``asker``, to ``asked``."""

    asker: Connection
    asked: Connection
    done: Answered


class Questions:
    """Questions of one kind.

    Args:
        who: the clients that are asked, as remarks name them.
        limit: how many may be under way.
        within_s: how long an answer may take.
        numbers: different ones for all kinds of questions, since answers bear nothing else.

    Attributes:
        refused: because too many were under way.
        expired: because no answer came in time.
    """

    def __init__(self, who: str, limit: int, within_s: float, numbers: Iterator[int]) -> None:
        self.refused = self.expired = 0
        self._who = who
        self._limit = limit
        self._within_s = within_s
        self._numbers = numbers
        self._under_way: dict[int, Question] = {}
        self._deadlines = Deadlines(self._expired)

    def __len__(self) -> int:
        return len(self._under_way)

    def answered(self, conn: Connection, response: RemotingCommand) -> bool:
        """A client said something; returns whether somebody waits for it."""
        question = self._under_way.get(response.opaque)
        if question is None or question.asked is not conn:
            return False
        self._end(response.opaque)
        question.done(response.code, response.remark, response.ext, response.body)
        return True

    def connection_closed(self, conn: Connection) -> None:
        """End the waiting of, and for, a client that is gone."""
        for number, question in list(self._under_way.items()):
            if question.asker is conn:
                self._end(number)
            elif question.asked is conn:
                self._end(number)
                remark = f"the {self._who} went offline before it answered"
                question.done(ResponseCode.CONSUMER_NOT_ONLINE, remark, None, b"")

    def close(self) -> None:
        """Wait for nobody any more."""
        self._deadlines.clear()
        self._under_way.clear()

    def is_full(self, more: int = 1) -> bool:
        """Whether ``more`` questions would be too many; counts the refusal."""
        is_full = len(self._under_way) + more > self._limit
        self.refused += is_full
        return is_full

    def ask(self, question: Question, request: RemotingCommand) -> None:
        """Send ``request``; its number is ours."""
        number = next(self._numbers)
        self._under_way[number] = question
        self._deadlines.add(number, self._within_s)
        request.opaque = number
        question.asked.send(request)

    def _expired(self, number: int) -> None:
        question = self._under_way.pop(number, None)
        if question is not None:
            self.expired += 1
            remark = f"the {self._who} did not answer within {self._within_s:.0f} s"
            question.done(ResponseCode.CONSUME_MSG_TIMEOUT, remark, None, b"")

    def _end(self, number: int) -> None:
        del self._under_way[number]
        self._deadlines.remove(number)


def question_numbers() -> Iterator[int]:
    """Numbers for all questions of one mastership."""
    return itertools.count(1)
