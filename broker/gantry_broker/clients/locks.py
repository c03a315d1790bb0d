"""Queue locks of orderly consumers.

Upstream: ``RebalanceLockManager``. A lock belongs to one client of a group, lasts 60 s after its
last renewal and is memory of one master: after a change of master, clients lock again.
"""

import time
from collections.abc import Callable, Iterable

from gantry_protocol.bodies import MessageQueue

LOCK_S = 60.0  # upstream's rebalanceLockMaxLiveTime
MAX_LOCKS = 1_000_000


_Held = dict[MessageQueue, tuple[str, float]]  # owner, when it ends


class QueueLocks:
    """The owners of queues, by consumer group."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._groups: dict[str, _Held] = {}
        self._count = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Take or renew what is free; returns what ``client_id`` owns now."""
        now_s = self._clock()
        if self._count >= MAX_LOCKS:
            self._sweep(now_s)
        held = self._groups.setdefault(group, {})
        owned = []
        for queue in queues:
            owner, ends_s = held.get(queue, (client_id, 0.0))
            is_free = owner == client_id or ends_s <= now_s
            if is_free and (queue in held or self._count < MAX_LOCKS):
                self._count += queue not in held
                held[queue] = (client_id, now_s + LOCK_S)
                owned.append(queue)
        if not held:
            del self._groups[group]
        return owned

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free the caller's own locks."""
        held = self._groups.get(group, {})
        for queue in queues:
            if queue in held and held[queue][0] == client_id:
                del held[queue]
                self._count -= 1
        if not held:
            self._groups.pop(group, None)

    def is_held(self, group: str) -> bool:
        """Whether some queue is locked for ``group``: its members consume in order."""
        now_s = self._clock()
        return any(ends_s > now_s for _, ends_s in self._groups.get(group, {}).values())

    def _sweep(self, now_s: float) -> None:
        for group, held in list(self._groups.items()):
            kept = {queue: lock for queue, lock in held.items() if lock[1] > now_s}
            self._count -= len(held) - len(kept)
            if kept:
                self._groups[group] = kept
            else:
                del self._groups[group]
