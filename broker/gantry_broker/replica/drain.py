"""Hand-over: how a master, or a replica, leaves on purpose without making anybody wait.

Rules protected: a leaving master accepts no write any more, and never again in that epoch, so that
whatever it still acknowledges was written before; it asks for one member of the set by designated
election under compare on its own epoch, so that a late request cannot depose a later master.

It waits a moment for the whole set to hold its whole log, because then every send in flight is
acknowledged before the switch; then for one member that does; then it takes the member that holds
most: every member of the set has all that was acknowledged, and the rest is answered "stored, not
replicated".
"""

from gantry_protocol.types import BrokerId, Epoch

from gantry_broker.replica.effects import DrainEnded, Effect, HandOver
from gantry_broker.replica.events import HandOverFinished
from gantry_broker.replica.lineage import LogFacts
from gantry_broker.replica.syncset import Member
from gantry_broker.replica.values import Limits


class Drain:
    """The departure of one master in one epoch."""

    __slots__ = ("_asked", "_ended", "_limits", "_not_before_ms", "_refused", "_since_ms")

    def __init__(self, now_ms: int, limits: Limits) -> None:
        """The wait begins now."""
        self._limits = limits
        self._since_ms = now_ms
        self._not_before_ms = now_ms
        self._asked: BrokerId | None = None
        self._refused: set[BrokerId] = set()
        self._ended = False

    @property
    def refused(self) -> frozenset[BrokerId]:
        """Members that the controller would not elect."""
        return frozenset(self._refused)

    def step(self, best: Member | None, log: LogFacts, epoch: Epoch, now_ms: int) -> list[Effect]:
        """Decide again; ``best`` is the member to hand over to, None when there is none."""
        waited_ms = now_ms - self._since_ms
        if self._ended:
            return []
        if waited_ms >= self._limits.drain_give_up_ms:
            return self._end("no member took over in time")
        if self._asked is not None:
            return []
        if best is None:
            if waited_ms >= self._limits.drain_wait_ms or self._refused:
                return self._end("no other member of the sync-state set stays")
            return []
        if now_ms < self._not_before_ms or not self._settled(best, log, waited_ms):
            return []
        self._asked = best.broker_id
        return [HandOver(target=best.broker_id, epoch=epoch)]

    def _settled(self, best: Member, log: LogFacts, waited_ms: int) -> bool:
        """Whether waiting any longer would gain too little."""
        if waited_ms >= self._limits.drain_wait_ms or log.confirm >= log.end:
            return True
        return best.acked >= log.end and waited_ms >= self._limits.drain_settle_ms

    def nobody_else(self) -> list[Effect]:
        """No other replica is even connected: there is nothing to wait for."""
        return [] if self._ended else self._end("no other member is there to take over")

    def finished(self, end: HandOverFinished, now_ms: int) -> None:
        """The election is over. When the target was elected, the new epoch ends this master anyway.

        Where nobody has answered, nobody has refused: the controllers' leader may be leaving, too,
        and the next one is asked for the same.
        """
        target, self._asked = self._asked, None
        if target is None:
            return
        if end.accepted:
            self._asked = target
            return
        if end.answered:
            self._refused.add(target)
        self._not_before_ms = now_ms + self._limits.retry_first_ms

    def _end(self, reason: str) -> list[Effect]:
        self._ended = True
        return [DrainEnded(reason)]


class Departure:
    """The departure of a replica that is not the master (any more).

    It stays until the master has let it go, so that nobody waits for it; when the master needs it
    to keep the minimum, or is not there, it goes after the same moment that a master waits.
    """

    __slots__ = ("_ended", "_limits", "_since_ms")

    def __init__(self, limits: Limits) -> None:
        """Nobody leaves yet."""
        self._limits = limits
        self._since_ms: int | None = None
        self._ended = False

    def begin(self, now_ms: int) -> None:
        """The wait begins; anew with each master that has to be told."""
        self._since_ms = now_ms

    def step(self, now_ms: int, *, counted_on: bool) -> list[Effect]:
        """Whether to go now; ``counted_on`` unless a master has said that it does not."""
        if self._since_ms is None or self._ended:
            return []
        if counted_on and now_ms - self._since_ms < self._limits.drain_wait_ms:
            return []
        self._ended = True
        return [DrainEnded("the master does not wait for this replica")]
