"""Bounds of pulls that wait for records: their number and memory; pure bookkeeping.

A client decides how large its pull is (a subscription has no limit but the frame's), and how many
it sends. So both are bounded, for one connection and for all, and one connection cannot take the
room of the others. What a pull holds is estimated from what makes it large; its answer is no part
of it, since nothing is read for a pull before there is something to answer.
"""

from collections.abc import Collection
from typing import NamedTuple

from gantry_protocol.command import RemotingCommand

PULL_BYTES = 2_560  # an ordinary pull that waits, measured: its objects and its places in tables
_CODE_BYTES = 64  # a tag code in a set


class RoomLimits(NamedTuple):
    """The bounds of what may wait.

    Attributes:
        pulls: over all connections.
        size_bytes: held by them.
        own_pulls: of one connection; a consumer parks one per queue, thousands are normal.
        own_bytes: held by those; so many ordinary ones fit.
    """

    pulls: int = 200_000
    size_bytes: int = 256 * 1024 * 1024
    own_pulls: int = 4_096
    own_bytes: int = 16 * 1024 * 1024


class _Share:
    """What waits on one connection."""

    __slots__ = ("pulls", "size_bytes")

    def __init__(self) -> None:
        self.pulls = 0
        self.size_bytes = 0


class WaitingRoom:
    """Counts who waits.

    Args:
        limits: how much may.

    Attributes:
        pulls: that wait now.
        size_bytes: that they hold.
        refused: pulls that found no room, ever.
    """

    def __init__(self, limits: RoomLimits) -> None:
        self.pulls = 0
        self.size_bytes = 0
        self.refused = 0
        self._limits = limits
        self._shares: dict[int, _Share] = {}

    def enter(self, connection: int, size_bytes: int) -> bool:
        """Take a place, if there is one for this connection."""
        share = self._shares.get(connection) or _Share()
        limits = self._limits
        if (
            self.pulls >= limits.pulls
            or share.pulls >= limits.own_pulls
            or self.size_bytes + size_bytes > limits.size_bytes
            or share.size_bytes + size_bytes > limits.own_bytes
        ):
            self.refused += 1
            return False
        self._shares[connection] = share
        share.pulls += 1
        share.size_bytes += size_bytes
        self.pulls += 1
        self.size_bytes += size_bytes
        return True

    def leave(self, connection: int, size_bytes: int) -> None:
        """Give a place back that ``enter`` gave."""
        share = self._shares[connection]
        share.pulls -= 1
        share.size_bytes -= size_bytes
        if not share.pulls:
            del self._shares[connection]
        self.pulls -= 1
        self.size_bytes -= size_bytes


def held_bytes(request: RemotingCommand, codes: Collection[int] | None) -> int:
    """About how much memory a pull holds while it waits."""
    texts = sum(len(name) + len(text) for name, text in (request.ext or {}).items())
    return PULL_BYTES + texts + len(request.body) + _CODE_BYTES * len(codes or ())
