"""Sends that wait for their records to be confirmed, and what they are answered.

Rule protected: the answer is 0 only when confirm covers the last record *and* the sync-state set
has the minimum of members at that moment. Everything else that was stored ends in 12: after
``REPLICATION_TIMEOUT_S``, with the places of its records, and at once when the mastership ends or
is in doubt, without them, because from then on nobody here knows whether the records stay. Each
send is answered exactly once.

Sends wait in the order of their records, so confirming and expiring both look at the front only.
"""

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import Offset

from gantry_broker.store.contract import Appended, SendOutcome, StoredAt

REPLICATION_TIMEOUT_S = 3.0  # upstream's syncFlushTimeout for replication

_CONFIRMED = ResponseCode.SUCCESS  # to look a member up costs a tenth of a microsecond
_NOT_REPLICATED = "stored, and not confirmed by enough replicas in time"
_TOO_FEW = "stored and replicated, while the in-sync replicas were not enough"
_MASTERSHIP_LOST = "stored, and this broker lost its mastership before it was confirmed"


# The end of its records, until when it waits, where they are, whom to tell. A plain tuple, for one
# is made per send.
_Waiting: TypeAlias = tuple[int, float, Sequence[StoredAt], Appended]


class PendingAppends:
    """The waiting sends of one master.

    Attributes:
        confirmed: sends answered 0, ever.
        unconfirmed: sends answered 12, ever.
    """

    def __init__(self) -> None:
        """Nobody waits."""
        self.confirmed = 0
        self.unconfirmed = 0
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, stored: Sequence[StoredAt], done: Appended, now_s: float) -> None:
        """Let a send wait for the last of its records."""
        last = stored[-1]
        end, deadline_s = last.offset + last.size, now_s + REPLICATION_TIMEOUT_S
        self._waiting.append((end, deadline_s, stored, done))

    def confirm(self, confirm: Offset, *, enough_in_sync: bool) -> None:
        """Everything below ``confirm`` is confirmed."""
        all_waiting = self._waiting
        while all_waiting and all_waiting[0][0] <= confirm:
            waiting = all_waiting.popleft()
            if enough_in_sync:
                _, _, stored, done = waiting
                self.confirmed += 1
                done(SendOutcome(_CONFIRMED, None, stored))
            else:
                self._give_up(waiting, _TOO_FEW)

    def expire(self, now_s: float) -> None:
        """Answer those that have waited long enough."""
        while self._waiting and self._waiting[0][1] <= now_s:
            self._give_up(self._waiting.popleft(), _NOT_REPLICATED)

    def end(self, remark: str = _MASTERSHIP_LOST) -> None:
        """The mastership is over, or nobody here knows whether it is; ``remark`` says which."""
        while self._waiting:
            _, _, _, done = self._waiting.popleft()
            self.unconfirmed += 1
            done(SendOutcome(ResponseCode.FLUSH_SLAVE_TIMEOUT, remark))

    def _give_up(self, waiting: _Waiting, remark: str) -> None:
        _, _, stored, done = waiting
        self.unconfirmed += 1
        done(SendOutcome(ResponseCode.FLUSH_SLAVE_TIMEOUT, remark, stored))
