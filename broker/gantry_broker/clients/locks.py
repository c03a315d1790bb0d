"""Queue locks of orderly consumers: 41 and 42.

Upstream: ``RebalanceLockManager``. A lock belongs to one client of a group, lasts 60 s after its
last renewal and is memory of one master: after a change of master, clients lock again.
"""

import time
from collections.abc import Callable, Iterable

from gantry_protocol.bodies import MessageQueue

LOCK_S = 60.0  # upstream's rebalanceLockMaxLiveTime
MAX_LOCKS = 1_000_000

_Key = tuple[str, MessageQueue]


class QueueLocks:
    """Who owns which queue for which consumer group."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._locks: dict[_Key, tuple[str, float]] = {}  # owner, when it ends

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Take or renew what is free; returns what ``client_id`` owns now."""
        now_s = self._clock()
        if len(self._locks) >= MAX_LOCKS:
            self._sweep(now_s)
        owned = []
        for queue in queues:
            key = (group, queue)
            owner, ends_s = self._locks.get(key, (client_id, 0.0))
            is_free = owner == client_id or ends_s <= now_s
            if is_free and (key in self._locks or len(self._locks) < MAX_LOCKS):
                self._locks[key] = (client_id, now_s + LOCK_S)
                owned.append(queue)
        return owned

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free the caller's own locks."""
        for queue in queues:
            held = self._locks.get((group, queue))
            if held is not None and held[0] == client_id:
                del self._locks[(group, queue)]

    def _sweep(self, now_s: float) -> None:
        self._locks = {key: held for key, held in self._locks.items() if held[1] > now_s}
