"""What the Java clients print, read as facts: who was acknowledged what, and when nothing came.

Pure. Lines of the Java runtime are left out, a line of the probe that is not as it should be is an
error, and so is more than a bounded number of lines. Times are CLOCK_MONOTONIC in milliseconds,
which all pods of one machine share with this process (`time.monotonic`).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

LINES_MAX = 1_000_000  # ten times what fits into a container's log before the kubelet rotates it
LINE_MAX = 4096


class JavaLogError(Exception):
    """A client's output is not what the probe prints."""


class Ack(NamedTuple):
    """One acknowledged message: its client-made id, its place, and when the answer came."""

    key: str
    queue: int
    offset: int
    at_ms: int


class Refusal(NamedTuple):
    """One message that was not acknowledged: what came instead, and when."""

    reason: str
    at_ms: int


class Received(NamedTuple):
    """One consumed message."""

    key: str
    queue: int
    offset: int
    body: str


class Totals(NamedTuple):
    """What a client that was asked to stop counted itself."""

    acknowledged: int
    refused: int


class JavaLog:
    """Everything that one client has said so far, in its order.

    Attributes:
        acks: acknowledged messages.
        nacks: messages that were not, after the first acknowledgement.
        waits: refusals before the first acknowledgement, at most one a second.
        received: consumed messages.
        totals: None until the client has ended as asked.
    """

    def __init__(self) -> None:
        self.acks: list[Ack] = []
        self.nacks: list[Refusal] = []
        self.waits: list[Refusal] = []
        self.received: list[Received] = []
        self.totals: Totals | None = None

    @classmethod
    def parse(cls, text: str) -> JavaLog:
        """Read a client's output; a last line that is not complete yet does not count.

        Raises:
            JavaLogError: a line of the probe is malformed, or there is too much.
        """
        log = cls()
        *lines, _ = text.split("\n", LINES_MAX + 1)
        if len(lines) > LINES_MAX:
            raise JavaLogError(f"more than {LINES_MAX} lines")
        for number, line in enumerate(lines, 1):
            kind, _, rest = line.partition(" ")
            if kind not in _READERS:
                continue
            try:
                _READERS[kind](log, rest)
            except ValueError as error:
                raise JavaLogError(f"line {number}: {line[:LINE_MAX]!r}: {error}") from error
        return log

    def acknowledged(self) -> set[str]:
        """Keys of the acknowledged messages."""
        return {ack.key for ack in self.acks}

    def consumed(self) -> set[str]:
        """Keys of the received messages."""
        return {message.key for message in self.received}

    def longest_gap_ms(self, after_ms: float, until_ms: float = math.inf) -> int | None:
        """The longest time between two successive acknowledgements that ends in the given span.

        It may start before `after_ms`. None if no gap ends in it: nothing has been acknowledged
        since, or not twice.
        """
        gaps = (
            later.at_ms - earlier.at_ms
            for earlier, later in pairwise(self.acks)
            if after_ms < later.at_ms <= until_ms
        )
        return max(gaps, default=None)


def _ack(log: JavaLog, rest: str) -> None:
    key, queue, offset, at_ms = rest.split()
    log.acks.append(Ack(key, int(queue), int(offset), int(at_ms)))


def _nack(log: JavaLog, rest: str) -> None:
    log.nacks.append(_refusal(rest))


def _wait(log: JavaLog, rest: str) -> None:
    log.waits.append(_refusal(rest))


def _message(log: JavaLog, rest: str) -> None:
    key, queue, offset, body = rest.split(" ", 3)
    log.received.append(Received(key, int(queue), int(offset), body))


def _end(log: JavaLog, rest: str) -> None:
    acknowledged, refused = rest.split()
    log.totals = Totals(int(acknowledged), int(refused))


def _refusal(rest: str) -> Refusal:
    reason, at_ms = rest.split()
    return Refusal(reason, int(at_ms))


_READERS: dict[str, Callable[[JavaLog, str], None]] = {
    "ACK": _ack,
    "NACK": _nack,
    "WAIT": _wait,
    "MSG": _message,
    "END": _end,
}
