"""Queue locks of orderly consumers: who owns which queue; pure but for the clock.

Upstream: ``RebalanceLockManager``. A lock belongs to one client of a group and lasts ``LOCK_S``
after its last renewal. A client believes in a lock for ``BELIEF_S`` after the answer, and renews it
every 20 s.

Rule protected: a client is told that it owns a queue only while the controllers surely hold it for
the owner. So whoever is the next master finds every client that may believe in a lock, and honours
it (``restore``) for as long as it can, counted from then: nobody was told anything later.

A client that is no member of its group at any master lives on for ``BELIEF_S`` in its own opinion,
so its locks last for ``GONE_S``: that and the time in which an answer may be on its way, or come
from a master that does not know yet that it was replaced.

An unlock may come late: its client has given it up, made another connection and locked the queue
anew by that one. So it counts only by the connection that the last lock of the queue came by. By
any other, and at a master that the client has not asked yet, the lock runs out.
"""

import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from gantry_protocol.bodies import MessageQueue

LOCK_S = 60.0  # upstream's rebalanceLockMaxLiveTime
BELIEF_S = 30.0  # the clients' REBALANCE_LOCK_MAX_LIVE_TIME
GONE_S = BELIEF_S + 15.0
LOCKS_MAX = 50_000  # as many as the controllers keep of one broker group
CLIENT_ID_MAX = 1024  # likewise

Place = tuple[str, MessageQueue]
"""A queue, as one consumer group consumes it."""

Owners = dict[Place, str]
"""By place the client that owns it; an empty id: nobody does."""

IsMember = Callable[[str, str], bool]
"""Whether a client is a member of a consumer group at any master of the cluster."""

_NONE = 0  # no connection has this number


class _Lock(NamedTuple):
    """Who owns a queue.

    Attributes:
        client_id: the owner.
        renewed_s: when it asked last.
        connection: by which it may unlock; ``_NONE``: nobody knows.
    """

    client_id: str
    renewed_s: float
    connection: int = _NONE


class QueueLocks:
    """The owners of queues, by consumer group.

    Args:
        is_member: whose locks last the longest.
        clock: seconds, never falling.

    Attributes:
        by_quorum: whether owners have to be known to the controllers; those of another make keep
            none, and a lock is memory of one master then.
    """

    def __init__(self, is_member: IsMember, clock: Callable[[], float] = time.monotonic) -> None:
        self.by_quorum = True
        self._is_member = is_member
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0
        self._kept: Owners = {}  # what the controllers surely hold
        self._doubtful: set[Place] = set()  # a report of it was made, and not answered yet
        self._news: dict[Place, None] = {}  # to be reported

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], connection: int
    ) -> None:
        """Take or renew for ``client_id`` what is free; ``owned`` says what it may believe.

        A renewal by an older ``connection`` than the last one was late itself, and so may be an
        unlock behind it.
        """
        now_s = self._clock()
        if not client_id or len(client_id) > CLIENT_ID_MAX:
            return
        if self._count >= LOCKS_MAX:
            self.sweep()
        held = self._groups.setdefault(group, {})
        for queue in queues:
            known = held.get(queue)
            if known is None and self._count >= LOCKS_MAX:
                continue
            if known is None or self._is_over(group, known, now_s):
                self._count += known is None
                held[queue] = _Lock(client_id, now_s, connection)
                self._look((group, queue))
            elif known.client_id == client_id:
                by = connection if connection >= known.connection else _NONE
                held[queue] = _Lock(client_id, now_s, by)
                self._look((group, queue))
        if not held:
            del self._groups[group]

    def unlock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], connection: int
    ) -> None:
        """Free the caller's own locks that it has locked last by ``connection``."""
        for queue in queues:
            known = self._groups.get(group, {}).get(queue)
            if known is not None and (known.client_id, known.connection) == (client_id, connection):
                self._free((group, queue))

    def owned(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Those of ``queues`` that the client owns, and that the controllers hold for it."""
        return [
            queue
            for queue in queues
            if self._owner((group, queue)) == client_id
            and (not self.by_quorum or self._kept.get((group, queue)) == client_id)
        ]

    def is_decided(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> bool:
        """Whether none of ``queues`` will be the client's once the controllers hold it."""
        return not self.by_quorum or not any(
            self._owner((group, queue)) == client_id and self._kept.get((group, queue)) != client_id
            for queue in queues
        )

    def is_held(self, group: str) -> bool:
        """Whether some queue is locked for ``group``: its members consume in order."""
        now_s = self._clock()
        return any(
            not self._is_over(group, lock, now_s) for lock in self._groups.get(group, {}).values()
        )

    def sweep(self) -> None:
        """Free what is over."""
        now_s = self._clock()
        for group, held in list(self._groups.items()):
            for queue in [at for at, lock in held.items() if self._is_over(group, lock, now_s)]:
                self._free((group, queue))

    # ---- the controllers' knowledge

    def restore(self, owners: Owners) -> None:
        """The controllers hold these, of an earlier master; each counts as renewed now."""
        now_s = self._clock()
        for (group, queue), client_id in owners.items():
            held = self._groups.setdefault(group, {})
            self._count += queue not in held
            held[queue] = _Lock(client_id, now_s)
        self._kept = dict(owners)

    def adopt(self, owners: Owners) -> None:
        """The controllers hold these, of queues that have come here; each counts as renewed now.

        Whoever reads them reports nothing meanwhile. What was owned or freed here since is known
        better here: it came with an earlier master's owners.
        """
        now_s = self._clock()
        for place, client_id in owners.items():
            if self._owner(place) or place in self._news or place in self._doubtful:
                continue
            self._groups.setdefault(place[0], {})[place[1]] = _Lock(client_id, now_s)
            self._count += 1
            self._kept[place] = client_id

    @property
    def has_news(self) -> bool:
        """Whether something is to be reported."""
        return self.by_quorum and bool(self._news)

    def take_news(self, most: int) -> Owners:
        """Changes to be reported now; ``reported`` or ``unreported`` comes once for it."""
        places = list(islice(self._news, most))
        for place in places:
            del self._news[place]
            self._kept.pop(place, None)
            self._doubtful.add(place)
        return {place: self._owner(place) for place in places}

    def reported(self, owners: Owners) -> None:
        """The controllers hold them."""
        for place, client_id in owners.items():
            self._doubtful.discard(place)
            if client_id:
                self._kept[place] = client_id
            self._look(place)

    def unreported(self, owners: Owners, *, is_refused: bool) -> None:
        """Nobody knows whether the controllers hold them, or, when refused, they surely do not."""
        for place, client_id in owners.items():
            if is_refused and client_id and self._owner(place) == client_id:
                self._free(place)
            if is_refused:
                self._news.pop(place, None)
            else:
                self._news[place] = None

    def _owner(self, place: Place) -> str:
        known = self._groups.get(place[0], {}).get(place[1])
        return "" if known is None else known.client_id

    def _free(self, place: Place) -> None:
        held = self._groups[place[0]]
        del held[place[1]]
        self._count -= 1
        if not held:
            del self._groups[place[0]]
        self._look(place)

    def _look(self, place: Place) -> None:
        """Have a place reported unless the controllers surely hold it as it is."""
        if place not in self._doubtful and self._kept.get(place, "") == self._owner(place):
            self._news.pop(place, None)
        else:
            self._news[place] = None

    def _is_over(self, group: str, lock: _Lock, now_s: float) -> bool:
        lasted_s = now_s - lock.renewed_s
        return lasted_s >= GONE_S and (
            lasted_s >= LOCK_S or not self._is_member(group, lock.client_id)
        )
