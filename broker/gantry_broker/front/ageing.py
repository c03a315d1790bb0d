"""Connections that have lasted long at a front are ended, so that fronts share their clients.

Kubernetes leads a client to a front when it connects, and clients stay connected for days. So a
front that is added, by an autoscaler for instance, would get none of the clients that are there. A
connection is ended with an answer once it is old, and its client connects again, mostly elsewhere.

Consumers are left alone: the end of a connection has their consumer group divide its queues anew.
Whoever has a pull waiting, or names a consumer group in its heartbeat, is one.
"""

from collections.abc import Collection
from typing import Protocol

from gantry_protocol.bodies import HeartbeatData, decode_body
from gantry_protocol.errors import GantryError
from gantry_protocol.frame import FrameDecoder

ENDED_AT_ONCE = 64  # in a second; clients that were there together come back one after the other
_SPREAD = 0.25  # of the age, up and down
_PRIME, _MASK = 2_654_435_761, 0xFFFF_FFFF  # Knuth's multiplicative hash


class Lasting(Protocol):
    """The way of one client, as the router has it.

    Attributes:
        number: of its connection.
        since_s: when it began, seconds of the loop; or was looked at last and left alone.
    """

    number: int
    since_s: float

    @property
    def waiting(self) -> int:
        """Requests that are not answered."""

    @property
    def is_quiet(self) -> bool:
        """Whether everything but pulls is answered."""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for nothing, and has said nothing for a while."""

    @property
    def heartbeat(self) -> bytes | None:
        """The frame of the client's last heartbeat, if it is known."""

    def end_with_answer(self) -> None:
        """Ends it with the next answer that leaves nothing but pulls unanswered."""

    def end(self) -> None:
        """Ends it now."""


def end_old(ways: Collection[Lasting], now_s: float, age_s: float) -> int:
    """Ends those that are old, as soon as it costs their clients nothing; returns how many.

    Args:
        ways: of all clients.
        now_s: seconds of the loop.
        age_s: at which one is ended, give or take a quarter.
    """
    ended = 0
    for way in ways:
        if now_s - way.since_s < age_s * _part(way.number):
            continue
        if _consumes(way):
            way.since_s = now_s
        elif ended == ENDED_AT_ONCE:
            break
        elif way.is_idle:
            way.end()
            ended += 1
        elif way.heartbeat is not None:
            way.end_with_answer()
            ended += 1
    return ended


def _part(number: int) -> float:
    """Of the age, for the connection ``number``: 0.75 to 1.25."""
    return 1 - _SPREAD + 2 * _SPREAD * (number * _PRIME & _MASK) / _MASK


def _consumes(way: Lasting) -> bool:
    """Whether it may be a consumer's. One whose heartbeat is not known is one if it pulls."""
    if way.is_quiet and way.waiting:
        return True
    if way.heartbeat is None:
        return False
    try:
        (command,) = FrameDecoder().feed(way.heartbeat)
        return bool(decode_body(HeartbeatData, command.body).consumer_data_set)
    except (GantryError, ValueError):
        return True
