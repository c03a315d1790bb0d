"""Pins: what must stay of a log, whoever asks; pure.

Rules protected: nothing goes that is not confirmed, and nothing that somebody needs. Who that is
stands here and nowhere else; ages, sizes, disks and tiers only say what may go below it.

Two kinds of need differ in one thing. What open transactions, delayed messages, consumers by POP
and members of the sync-state set need stays however full the disk is: nobody has it in another
place, or confirm waits for who reads it. A replica outside the set can begin anew where the log
begins then, so its copy keeps the log from ageing, but not a full disk full.
"""

from collections.abc import Iterable

import msgspec
from gantry_protocol.types import BrokerId, Offset

from gantry_broker.retention.core.rules import Need


class Pins(msgspec.Struct, frozen=True):
    """Those who need a log, and from where on.

    Attributes:
        needed: by transactions, delayed messages, consumers by POP and members of the set.
        copied: by replicas outside the set.
    """

    needed: tuple[Need, ...] = ()
    copied: tuple[Need, ...] = ()

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """Of all of them."""
        return tuple(need.at for need in (*self.needed, *self.copied))

    def bound(self, confirm: Offset) -> Offset:
        """Everything from here on stays."""
        return min((confirm, *self.offsets))


def pins(
    *,
    transactions: Iterable[Offset],
    parked: Offset | None,
    popped: Offset | None = None,
    members: Iterable[tuple[Offset, BrokerId]] = (),
    others: Iterable[tuple[Offset, BrokerId]] = (),
) -> Pins:
    """All pins of one log.

    Args:
        transactions: from where on open ones need it, or those that end from now on.
        parked: where the oldest delayed message stands; None without any.
        popped: from where on it says what is in flight; None where nobody pops.
        members: from where on replicas read it that confirm waits for.
        others: from where on other replicas copy it.
    """
    needed = [Need(at, "an open transaction") for at in transactions]
    if parked is not None:
        needed.append(Need(parked, "a delayed message"))
    if popped is not None:
        needed.append(Need(popped, "messages in flight"))
    needed += [Need(at, f"member {broker_id}") for at, broker_id in members]
    copied = [Need(at, f"replica outside the set, {broker_id}") for at, broker_id in others]
    return Pins(tuple(needed), tuple(copied))
