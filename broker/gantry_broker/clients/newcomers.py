"""The budget of new names a second: topics, consumer groups; pure but for attrs.

What is new costs more than what is known: a topic is committed by the controllers and read by every
member, a group's first offset is a row for ever. So each connection has a budget that fills with
time, and all together have one; beyond it the client hears 2 (system busy) and may try later. What
the group knows already is never refused here.
"""

from typing import NamedTuple

from gantry_protocol.codes import ResponseCode
from gantry_protocol.remoting.connection import Connection

from gantry_broker.store.contract import Refusal


class NewcomerBudget(NamedTuple):
    """A number at once, and a number per second."""

    at_once: int
    per_s: float


class Newcomers:
    """The budgets of one kind of name.

    Args:
        kind: of name, as the refusal calls it.
        own: of one connection.
        everybody: of all.

    Attributes:
        refused: names that were not taken, ever.
    """

    def __init__(self, kind: str, own: NewcomerBudget, everybody: NewcomerBudget) -> None:
        self.refused = 0
        self._key = f"new {kind}"
        self._own = own
        self._everybody = everybody
        self._until_s = 0.0  # when all that was granted will have been paid for
        self._refusal = Refusal(
            ResponseCode.SYSTEM_BUSY,
            f"[OVERLOAD]too many new {kind} in a short time, start flow control for a while",
        )

    def refuse(self, conn: Connection, now_s: float) -> Refusal | None:
        """Take one more name of ``conn``, or say why not."""
        own_s = _granted(conn.attrs.get(self._key, 0.0), self._own, now_s)
        all_s = _granted(self._until_s, self._everybody, now_s)
        if own_s is None or all_s is None:
            self.refused += 1
            return self._refusal
        conn.attrs[self._key] = own_s
        self._until_s = all_s
        return None


def _granted(until_s: float, budget: NewcomerBudget, now_s: float) -> float | None:
    """When one more is paid for, too; None if that takes longer than all that may come at once."""
    after_s = max(until_s, now_s) + 1 / budget.per_s
    return None if after_s - now_s > budget.at_once / budget.per_s else after_s


# A script may make a thousand topics through one connection, or a fleet connect at once.
TOPICS = NewcomerBudget(1_000, 20.0), NewcomerBudget(2_000, 50.0)
GROUPS = (
    NewcomerBudget(1_000, 50.0),
    NewcomerBudget(5_000, 200.0),
)  # that nobody knows: by a heartbeat or a commit
