"""The history of masters as the controllers told it: at most one broker per epoch.

Pure: events of `/v1/watch` and readings of `/v1/groups` are entered as they arrive, from any
controller and in any order.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec


class Mastership(msgspec.Struct, frozen=True):
    """One broker being master in one epoch."""

    epoch: int
    broker_id: int


class MasterHistory:
    """All masterships seen during a trial."""

    def __init__(self) -> None:
        self._masters: dict[int, set[int]] = {}

    def enter(self, epoch: int, broker_id: int | None) -> bool:
        """Note that `broker_id` is master in `epoch`; True when that is news.

        None (no master at the moment) says nothing about an epoch.
        """
        if broker_id is None:
            return False
        masters = self._masters.setdefault(epoch, set())
        news = broker_id not in masters
        masters.add(broker_id)
        return news

    @property
    def masterships(self) -> list[Mastership]:
        """Every (epoch, master) seen, by epoch."""
        return [
            Mastership(epoch, broker_id)
            for epoch, masters in sorted(self._masters.items())
            for broker_id in sorted(masters)
        ]

    @property
    def conflicts(self) -> list[int]:
        """Epochs with more than one master; there must be none."""
        return [epoch for epoch, masters in sorted(self._masters.items()) if len(masters) > 1]

    @property
    def changes(self) -> int:
        """The number of times that the mastership moved to another broker."""
        order = [mastership.broker_id for mastership in self.masterships]
        return sum(1 for before, after in pairwise(order) if before != after)
