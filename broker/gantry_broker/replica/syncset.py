"""The sync-state set and its members, as the master sees them while the set may be changing.

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

Of each other replica, in the set or not, the master keeps a ``Member`` for one epoch. ``acked <=
sent <= the master's end``. ``acked`` counts only what the replica acknowledged *after* its
handshake in this epoch: an acknowledgement vouches for equal bytes, and only the handshake makes
them equal. Before it, ``acked`` is 0, so confirm cannot pass a member of the set that has not
connected. (RocketMQ's ``AutoSwitchHAService`` skips members whose acknowledgement is unknown
instead, and so confirms records that a member of the set does not have.)
"""

from gantry_protocol.types import BrokerId, Epoch, Offset

from gantry_broker.replica.effects import Propose
from gantry_broker.replica.events import Adopted, ProposalFinished, Refused
from gantry_broker.replica.pace import Pace
from gantry_broker.replica.values import DEFAULT_LIMITS, ControllerView, Limits

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


class Member:
    """One replica, followed for the length of one mastership.

    Attributes:
        link: the link it speaks on; None while there is none.
        streaming: it has acknowledged its truncation on this link, so bytes may flow.
        acked: flushed there and equal to ours; 0 = unknown. Stays when the link closes, since
            what is on its disk stays there.
        sent: one past the last byte sent on this link; before the first, where it was told to cut.
        absent_since_ms: when the link was lost, or the epoch began.
        connected_once: whether it has had a link in this epoch.
        caught_up_ms: the newest moment at which it is known to have held the whole log of that
            moment; before there is one, when we first heard of it, for patience begins then.
        seen_whole_ms: the same, by what it acknowledged on this link; None before it has.
        draining: it said that it is about to leave.
        heard_ms: when it last acknowledged anything in this epoch, or the epoch began. By that
            it says, too, that it has not left for a newer one.
        has_room: it said that its disk is far from full.
        pace: what the others have waited for it.
        owes: 0, or what was confirmed when it came back with less: see ``has_lost``.
    """

    __slots__ = (
        "_mark_end",
        "_mark_ms",
        "absent_since_ms",
        "acked",
        "broker_id",
        "caught_up_ms",
        "connected_once",
        "draining",
        "has_room",
        "heard_ms",
        "link",
        "owes",
        "pace",
        "seen_whole_ms",
        "sent",
        "sent_ms",
        "streaming",
    )

    def __init__(self, broker_id: BrokerId, now_ms: int, limits: Limits = DEFAULT_LIMITS) -> None:
        """A replica that has not connected yet; the clock of its patience starts now."""
        self.broker_id = broker_id
        self.link: int | None = None
        self.streaming = False
        self.acked = self.sent = Offset(0)
        self.sent_ms = now_ms
        self.absent_since_ms = now_ms
        self.connected_once = False
        self.caught_up_ms = self.heard_ms = now_ms
        self.seen_whole_ms: int | None = None
        self.draining = False
        self.has_room = False
        self.owes = Offset(0)
        self._mark_end: Offset | None = None
        self._mark_ms = now_ms
        self.pace = Pace(limits, now_ms)

    @property
    def has_lost(self) -> bool:
        """Whether it came back without records that are confirmed, and has not got them yet.

        No disk that keeps its promises makes a member of the set come back like that: its volume
        was restored from a copy, or somebody else runs under its id. It must not be elected.
        """
        return self.acked < self.owes

    def greeted(self, link: int, point: Offset, confirm: Offset, *, draining: bool) -> None:
        """The handshake has begun on a new link; nothing it acknowledged before counts for it.

        Args:
            link: the new one.
            point: up to where its log is ours.
            confirm: ours.
            draining: it is about to leave.
        """
        self.owes = confirm if point < confirm else Offset(0)
        self.link, self.streaming = link, False
        self.connected_once = True
        self.sent = point
        self.acked = Offset(0)
        self.draining = draining
        self.has_room = False  # its acknowledgements say
        self._mark_end = self.seen_whole_ms = None

    def lost(self, now_ms: int) -> None:
        """The link is gone."""
        self.link, self.streaming = None, False
        self.absent_since_ms = now_ms

    def acknowledged(self, flushed_end: Offset, end: Offset, now_ms: int) -> str | None:
        """Take an acknowledgement; returns what is wrong with it, None when nothing is.

        The mark is the end of the log at an earlier acknowledgement: whoever passes it held, at
        that moment's end, all there was (Kafka's ``lastCaughtUpTimeMs``).
        """
        if not self.acked <= flushed_end <= self.sent:
            return f"it acknowledges {flushed_end}, expected {self.acked} to {self.sent}"
        self.streaming = True
        self.acked = flushed_end
        self.heard_ms = now_ms
        if flushed_end >= end:
            self.caught_up_ms = self.seen_whole_ms = now_ms
        elif self._mark_end is not None and flushed_end >= self._mark_end:
            self.seen_whole_ms = self._mark_ms
            self.caught_up_ms = max(self.caught_up_ms, self._mark_ms)
        if self._mark_end is None or flushed_end >= self._mark_end:
            self._mark_end, self._mark_ms = end, now_ms
        return None

    def excuse(self, pause_ms: int) -> None:
        """The master itself stood still for this long; its own silence is no evidence."""
        self.absent_since_ms += pause_ms
        self.caught_up_ms += pause_ms
        if self.seen_whole_ms is not None:
            self.seen_whole_ms += pause_ms
        self.pace.excuse(pause_ms)

    def fell_behind(self, now_ms: int, limits: Limits) -> bool:
        """Whether waiting for this member any longer would hold up everybody."""
        if self.link is None:
            return self._is_gone(now_ms, limits)
        return now_ms - self.caught_up_ms >= limits.lag_ms

    def is_silent(self, now_ms: int, limits: Limits) -> bool:
        """Whether nothing says that it still follows this epoch."""
        if self.link is None:
            return self._is_gone(now_ms, limits)
        return now_ms - self.heard_ms >= limits.silence_ms

    def _is_gone(self, now_ms: int, limits: Limits) -> bool:
        """Whether it has been without a link for too long."""
        patience = limits.link_closed_ms if self.connected_once else limits.connect_grace_ms
        return now_ms - self.absent_since_ms >= patience
