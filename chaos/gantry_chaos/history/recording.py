"""From a load's own events to history lines. Pure: clock and file are given.

A load sends many messages at once, but a client of a history does one thing at a time. So each
message under way is a client of its own, taken from a pool in turn: as many clients as messages
were ever under way together, each about equally busy, so that a client's gap is an outage and no
idleness.

The outcome follows what was answered, not which exception came: a message that was given up is
FAILURE only if no answer to any attempt was lost.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from gantry_chaos.history.lines import Outcome, Request, Response, join

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_chaos.history.lines import Line

CLIENTS_MAX = 1000
NO_MASTER = "none"


class _Sending(msgspec.Struct):
    """A message under way."""

    client: str
    since_ms: int
    lost_answers: int = 0


class MessageRecorder:
    """Takes the events of producers and consumers, as a ledger does.

    Args:
        write: gets every line.
        now_ms: milliseconds of the monotonic clock.
        name: of this load; clients are `NAME-p0`, `NAME-p1`, … and `NAME-c`.
    """

    def __init__(self, write: Callable[[Line], None], now_ms: Callable[[], int], name: str) -> None:
        self._write = write
        self._now_ms = now_ms
        self._name = name
        self._idle: deque[str] = deque()
        self._clients = 0
        self._sending: dict[str, _Sending] = {}

    def sent(self, value: str) -> None:
        """A message goes to the producer now."""
        assert value not in self._sending, "values are unique"
        if not self._idle:
            assert self._clients < CLIENTS_MAX, "a load has a bounded number of lanes"
            self._idle.append(f"{self._name}-p{self._clients}")
            self._clients += 1
        sending = _Sending(self._idle.popleft(), self._now_ms())
        self._sending[value] = sending
        self._write(Request(sending.client, "enqueue", value, None, sending.since_ms))

    def answer_lost(self, value: str) -> None:
        """One attempt ended without an answer."""
        self._sending[value].lost_answers += 1

    def acknowledged(self, value: str, position: str) -> None:
        """It was answered with success, and is promised to be at `position`."""
        self._end(value, "SUCCESS", {"position": position})

    def given_up(self, value: str) -> None:
        """It will not be tried again."""
        lost = self._sending[value].lost_answers
        self._end(value, "UNKNOWN" if lost else "FAILURE", {})

    def consumed(self, value: str, position: str, e2e_ms: int = -1) -> None:
        """A consumer received it."""
        now_ms, extra = self._now_ms(), join({"position": position})
        client = f"{self._name}-c"
        line = Response(client, "dequeue", "SUCCESS", value, None, now_ms, 0, extra, e2e_ms)
        self._write(line)

    def _end(self, value: str, outcome: Outcome, extra: dict[str, object]) -> None:
        sending = self._sending.pop(value)
        if sending.lost_answers:
            extra["lost"] = sending.lost_answers
        now_ms = self._now_ms()
        took_ms = now_ms - sending.since_ms
        self._write(
            Response(sending.client, "enqueue", outcome, value, None, now_ms, took_ms, join(extra))
        )
        self._idle.append(sending.client)


def metadata_read(
    client: str, group: str, called_ms: int, returned_ms: int, epoch: int, master: str | None
) -> tuple[Line, Line]:
    """A read of a group's master, as the register checker takes it; None: there is no master."""
    value = f"{epoch}:{NO_MASTER if master is None else master}"
    took_ms = returned_ms - called_ms
    return (
        Request(client, "read", None, group, called_ms),
        Response(client, "read", "SUCCESS", value, group, returned_ms, took_ms),
    )


def metadata_unread(client: str, group: str, called_ms: int, returned_ms: int) -> tuple[Line, Line]:
    """A read that nobody answered."""
    took_ms = returned_ms - called_ms
    return (
        Request(client, "read", None, group, called_ms),
        Response(client, "read", "UNKNOWN", None, group, returned_ms, took_ms),
    )


def commit(
    client: str, topic: str, number: int, called_ms: int, returned_ms: int, *, answered: bool
) -> tuple[Line, Line]:
    """A change of a topic that controllers committed, or that nobody answered."""
    outcome: Outcome = "SUCCESS" if answered else "UNKNOWN"
    took_ms = returned_ms - called_ms
    return (
        Request(client, "commit", str(number), topic, called_ms),
        Response(client, "commit", outcome, str(number), topic, returned_ms, took_ms),
    )
