"""Order in which controllers are asked: writes at the leader, reads at the nearest follower.

A follower answers a read from its own state, once that is as new as the leader's was when the read
began (``raft/follower_reads.py`` of the controller). So reads need not add to the leader's load. A
follower that does not answer reads now, since it lags or hears no leader, is put aside for a while.
"""

from collections.abc import Sequence
from typing import NamedTuple

NEAR_FACTOR = 2.0
NEAR_S = 0.001
"""Followers are as near as the nearest one within twice its round trip and one millisecond more."""


class KnownController(NamedTuple):
    """One connected controller as its asker sees it.

    Attributes:
        leads: it said so when it was last asked.
        round_trip_s: of a question that it answers at once; infinite before the first one.
        is_aside: it lately could not answer a read.
    """

    leads: bool
    round_trip_s: float
    is_aside: bool


def for_writes(controllers: Sequence[KnownController], turn: int) -> list[int]:
    """The leader, then the others in turn, which pass a write on to it."""
    return sorted(_turned(controllers, turn), key=lambda at: not controllers[at].leads)


def for_reads(controllers: Sequence[KnownController], turn: int) -> list[int]:
    """Near followers in turn, those farther away, the leader, and at last who is put aside."""
    followers = [item for item in controllers if not item.leads and not item.is_aside]
    nearest_s = min((item.round_trip_s for item in followers), default=0.0)
    near_s = NEAR_FACTOR * nearest_s + NEAR_S

    def rank(at: int) -> int:
        controller = controllers[at]
        if controller.leads:
            return 2
        if controller.is_aside:
            return 3
        return 0 if controller.round_trip_s <= near_s else 1

    return sorted(_turned(controllers, turn), key=rank)


def _turned(controllers: Sequence[KnownController], turn: int) -> list[int]:
    size = len(controllers)
    return [(turn + at) % size for at in range(size)]
