"""A master's knowledge of one other replica during one epoch.

``acked <= sent <= the master's end``. ``acked`` counts only what the replica acknowledged *after*
its handshake in this epoch: an acknowledgement vouches for equal bytes, and only the handshake
makes them equal. Before it, ``acked`` is 0, so confirm cannot pass a member of the set that has
not connected. (RocketMQ's ``AutoSwitchHAService`` skips members whose acknowledgement is unknown
instead, and so confirms records that a member of the set does not have.)
"""

from gantry_protocol.types import BrokerId, Offset

from gantry_broker.replica.pace import Pace
from gantry_broker.replica.values import DEFAULT_LIMITS, Limits


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
            moment.
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
        self._mark_end = None

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
            self.caught_up_ms = now_ms
        elif self._mark_end is not None and flushed_end >= self._mark_end:
            self.caught_up_ms = max(self.caught_up_ms, self._mark_ms)
        if self._mark_end is None or flushed_end >= self._mark_end:
            self._mark_end, self._mark_ms = end, now_ms
        return None

    def excuse(self, pause_ms: int) -> None:
        """The master itself stood still for this long; its own silence is no evidence."""
        self.absent_since_ms += pause_ms
        self.caught_up_ms += pause_ms
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
