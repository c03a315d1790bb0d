"""The sync-state set as the master sees it while the controller may be changing it.

Rule protected (H5, H6): only the controller changes the set, by compare on (master epoch, set
epoch), and while the outcome of a change is open the master counts every member that *may* be in
the set. A new master is elected inside the controller's set; a record is confirmed only when
every member of every set the controller may hold has it; so no electable replica lacks it.

An attempt without an answer stays open: it may still be applied. It is closed by a set with a
higher set epoch, which makes its compare fail for ever. When nothing else is to be changed, the
same attempt is repeated; when that is refused (the member it adds has died), a *fence* moves the
set epoch: one member is taken out and, being in step, put back by the next proposal. Kafka's
``AlterPartition`` reverts to the old set on a refusal instead and relies on its single connection
for order; requests here may travel through another controller and overtake each other.
"""

from gantry_protocol.types import BrokerId, Epoch

from gantry_broker.replica.effects import Propose
from gantry_broker.replica.events import Adopted, ProposalFinished, Refused
from gantry_broker.replica.values import ControllerView, Limits

Members = frozenset[BrokerId]


class SyncStateSet:
    """One master's view of the set during one epoch.

    Attributes:
        members: the set at ``epoch``, as the controller last said.
        epoch: the set epoch; never falls.
        pending: the attempt that is on its way; None between attempts.
        doubtful: brokers outside ``members`` that an attempt of unknown outcome would add.
    """

    def __init__(self, me: BrokerId, view: ControllerView, limits: Limits) -> None:
        """Start from the set of the election that made ``me`` the master."""
        self._me = me
        self._limits = limits
        self._attempts = 0
        self._not_before_ms = 0
        self._retry_ms = limits.retry_first_ms
        self._refusals = 0
        self.master_epoch: Epoch = view.master_epoch
        self.members: Members = view.sync_state_set | {me}
        self.epoch = view.sync_state_set_epoch
        self.pending: Propose | None = None
        self.doubtful: Members = frozenset()

    @property
    def counted(self) -> Members:
        """Everybody who may be in the controller's set: old and proposed together."""
        if self.pending is None:
            return self.members | self.doubtful
        return self.members | self.doubtful | self.pending.sync_state_set

    def adopt(self, members: Members, epoch: int) -> bool:
        """Take a newer set; whatever was open under an older set epoch can no longer happen."""
        if epoch <= self.epoch:
            return False
        self.members, self.epoch = members | {self._me}, epoch
        self.doubtful = frozenset()
        self._refusals = 0
        self._not_before_ms, self._retry_ms = 0, self._limits.retry_first_ms
        return True

    def plan(self, wanted: Members, now_ms: int) -> Propose | None:
        """The next attempt towards ``wanted``; None while one is open, or nothing is to be done."""
        if self.pending is not None or now_ms < self._not_before_ms:
            return None
        target = wanted if wanted != self.members else self._resolving()
        if target is None:
            return None
        self._attempts += 1
        self.pending = Propose(
            attempt=self._attempts,
            master_epoch=self.master_epoch,
            sync_state_set=target,
            sync_state_set_epoch=self.epoch,
        )
        return self.pending

    def _resolving(self) -> Members | None:
        """A proposal whose only purpose is to close an attempt of unknown outcome."""
        if not self.doubtful:
            return None
        if self._refusals == 0:
            return self.members | self.doubtful
        others = sorted(self.members - {self._me})
        return self.members - {others[-1]} if others else self.members | self.doubtful

    def finished(self, event: ProposalFinished, now_ms: int) -> bool:
        """Close the pending attempt; returns whether the set changed."""
        attempt = self.pending
        if attempt is None or attempt.attempt != event.attempt:
            return False
        self.pending = None
        if isinstance(event.outcome, Adopted):
            return self.adopt(event.outcome.sync_state_set, event.outcome.sync_state_set_epoch)
        if attempt.sync_state_set_epoch == self.epoch:
            self._open_outcome(attempt, refused=isinstance(event.outcome, Refused))
            self._not_before_ms = now_ms + self._retry_ms
            self._retry_ms = min(self._retry_ms * 2, self._limits.retry_last_ms)
        return False

    def _open_outcome(self, attempt: Propose, *, refused: bool) -> None:
        """A refusal closes this attempt and says nothing of earlier ones; silence closes none."""
        if refused:
            self._refusals += 1
        else:
            self.doubtful |= attempt.sync_state_set - self.members
