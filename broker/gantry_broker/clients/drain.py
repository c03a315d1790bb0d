"""A drain of this group, as its master carries it out: closes it for new messages, and looks on.

Routes show that the group takes nothing, and clients ask for routes every 30 s. Until each has
asked, a send is taken as before, since not every sender tries another broker when it is refused.
From then on new messages are refused with 16. What the group owes goes on: pulls, delayed messages,
retries, and transactions that were begun.

While a drain lasts, the master looks every ``LOOK_EVERY_S`` at what is left, and never spends more
than a tenth of its time on that. What it refuses: to say that nothing is left before everything
that was stored is confirmed.
"""

import asyncio
from typing import TYPE_CHECKING, Protocol

from gantry_protocol.codes import ResponseCode
from gantry_protocol.process import log

from gantry_broker.clients.core.drain import (
    NOT_LOOKED,
    DrainReport,
    OffsetLeft,
    Remains,
    Unread,
    judge,
    may_close,
)
from gantry_broker.clients.mapped.committed_later import CommittedLater
from gantry_broker.clients.mapped.handing_over import HandingOver
from gantry_broker.clients.progress import GroupProgress, Place
from gantry_broker.clients.pulled import PulledOffsets
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.topic_rules import is_retry
from gantry_broker.clients.transactions import Transactions
from gantry_broker.store.contract import QueueOffsets, Refusal

if TYPE_CHECKING:
    from gantry_broker.clients.delivery import Delivery

LOOK_EVERY_S = 1.0
SHARE = 10  # a look that took so long is followed by a pause of ten times that
GRACE_S = 60.0  # twice the time after which clients ask for routes again

_CLOSED = Refusal(
    ResponseCode.NO_PERMISSION,
    "this broker group is being drained and takes no new messages: ask for the topic's route",
)
_log = log.get("drain")


class Leaving(Protocol):
    """The part of a group that its drain has to know."""

    @property
    def drain_began_ms(self) -> int | None:
        """The time at which the controllers began to drain the group; None: they did not."""

    @property
    def is_confirmed(self) -> bool:
        """Whether everything that is stored is confirmed."""


class Staying:
    """A group that is not drained."""

    drain_began_ms = None
    is_confirmed = True


class GroupDrain:
    """See the module; of one mastership.

    Args:
        group: whether it is drained.
        sessions: who is connected.
        progress: how far consumer groups are.
        pulled: how far members that keep their offsets themselves are.
        transactions: that are open.
        elsewhere: how far they are in queues that have moved away.
        handing: what they have committed there.
        grace_s: in which every client asks for routes.

    Attributes:
        began_s: when this master learned of the drain; None while there is none.
        delivery: brings parked messages to their queues; None before it has begun.
        refused: sends that were refused.
        unread: as of the last look; consumer groups that have something to read.
        offsets: likewise; those that are not known yet where their queues are now.
    """

    def __init__(
        self,
        group: Leaving,
        sessions: Sessions,
        progress: GroupProgress,
        pulled: PulledOffsets,
        transactions: Transactions,
        elsewhere: CommittedLater,
        handing: HandingOver,
        grace_s: float = GRACE_S,
    ) -> None:
        """Nothing is looked at before ``learned``."""
        self.delivery: Delivery | None = None
        self.refused = 0
        self.unread: list[Unread] = []
        self.offsets: list[OffsetLeft] = []
        self._group = group
        self._sessions = sessions
        self._progress = progress
        self._pulled = pulled
        self._transactions = transactions
        self._elsewhere = elsewhere
        self._handing = handing
        self.grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False  # the mastership
        self.began_s: float | None = None  # when this master learned of the drain
        self._sent_s = 0.0  # when something was sent last, since then
        self._is_closed = False
        self._report = NOT_LOOKED

    @property
    def report(self) -> DrainReport | None:
        """The word on what is left; None while the group is not drained."""
        return None if self.began_s is None else self._report

    def learned(self) -> None:
        """The controllers may have said something new of the group's drain."""
        is_drained = self._group.drain_began_ms is not None
        if self._is_over or is_drained is (self.began_s is not None):
            return
        _log.info("drain begins" if is_drained else "drain ends")
        self._is_closed = False
        self._report, self.unread, self.offsets = NOT_LOOKED, [], []
        if is_drained:
            self.began_s = self._sent_s = self._loop.time()
            self._look_in(0)
        else:
            self.began_s = None
            self._stop()

    def refuse(self, topic: str) -> Refusal | None:
        """The reason to refuse a new message to ``topic``, if there is one; it counts as sent."""
        if self.began_s is None or is_retry(topic):
            return None
        if self._is_closed:
            self.refused += 1
            return _CLOSED
        self._sent_s = self._loop.time()
        return None

    def close(self) -> None:
        """The mastership is over."""
        self._is_over = True
        self._handing.close()
        self.began_s = None
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, wait_s: float) -> None:
        self._timer = self._loop.call_later(wait_s, self._look)

    def _look(self) -> None:
        assert self.began_s is not None, "the timer ends with the drain"
        began_s, now_s = self.began_s, self._loop.time()
        if not self._is_closed:
            self._is_closed = may_close(
                waited_s=now_s - began_s,
                grace_s=self.grace_s,
                quiet_s=now_s - self._sent_s,
                producers=self._sessions.producer_groups(),
            )
        # Before the queues are asked: what is delivered meanwhile is counted there, not nowhere.
        seen = Remains(
            is_closed=self._is_closed,
            is_whole=self._group.is_confirmed and self._is_known,
            unread=(),
            parked=0 if self.delivery is None else sum(self.delivery.pending().values()),
            transactions=len(self._transactions.ledger),
        )
        wanted = self._progress.places_of_all()
        places = [(group, place) for group, found in wanted.items() for place in found]
        looked_s = self._loop.time() - now_s

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            nonlocal looked_s
            if self.began_s != began_s:
                return  # the drain ended meanwhile
            if not isinstance(answers, Refusal):
                at_s = self._loop.time()
                self.unread = self._unread(places, answers)
                self.offsets = self._handing.look()
                self._report = judge(seen._replace(unread=self.unread, offsets=self.offsets))
                looked_s += self._loop.time() - at_s
            self._look_in(max(LOOK_EVERY_S, SHARE * looked_s))

        self._timer = None
        self._progress.ask([place for _, place in places], learned)

    @property
    def _is_known(self) -> bool:
        """Whether it is known what is delayed and what is open."""
        return self.delivery is not None and self.delivery.is_known and self._transactions.ready

    def _unread(self, places: list[tuple[str, Place]], answers: list[QueueOffsets]) -> list[Unread]:
        left: dict[tuple[str, str], int] = {}
        asked: list[tuple[str, str, int]] = []
        for (group, place), queue in zip(places, answers, strict=True):
            topic, queue_id, committed = place
            present = self._sessions.group(group)
            away = self._elsewhere.offset((group, topic, queue_id))
            position = committed if away is None else max(away, committed or 0)
            if present is not None and present.is_broadcasting:
                # Its members keep their offsets themselves.
                pulled = self._pulled.offset(group, topic, queue_id)
                position = queue.max_offset if pulled is None else pulled
            if queue.max_offset > max(queue.min_offset, committed or 0):
                asked.append((group, topic, queue_id))  # also once it is known: it stays so
            count = queue.max_offset - max(queue.min_offset, position or 0)
            if count > 0:
                left[group, topic] = left.get((group, topic), 0) + count
        self._elsewhere.ask(asked)
        return [
            Unread(group, topic, count, len(self._sessions.client_ids(group)))
            for (group, topic), count in left.items()
        ]
