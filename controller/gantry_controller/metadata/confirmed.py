"""Confirmed ends of logs as the quorum remembers them, and the times that a person gave one up.

The rules are in ``floors``; see ADR 0057.
"""

import msgspec
from gantry_protocol.types import BrokerId, Epoch, Offset


class Floor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The known confirmed end of a group's log: all below ``offset``.

    The last byte of that was written in ``epoch``, so whoever holds it reaches both.
    """

    epoch: Epoch
    offset: Offset

    def reached_by(self, epoch: int, end: int) -> bool:
        """Whether a log of this end, the newest line of its lineage in ``epoch``, may hold it."""
        return epoch >= self.epoch and end >= self.offset


class Loss(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last time a person gave up what was confirmed (``events.AcceptLoss``).

    Attributes:
        master_epoch: that began with it.
        broker_id: who was elected, with a log up to ``end`` of ``epoch``.
        floor: what was known to be confirmed; None if nothing was known.
        at_ms: when, by the leader's clock.
    """

    master_epoch: Epoch
    broker_id: BrokerId
    epoch: Epoch
    end: Offset
    floor: Floor | None
    at_ms: int
