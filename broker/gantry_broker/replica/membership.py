"""Membership of the sync-state set: shrink, expand, and leave on request.

Rule protected (H7): a replica joins only when it has acknowledged, in this epoch, everything up to
``max(confirm, epoch_start)``: then it lacks no confirmed record, and it holds the whole log with
which the master began its epoch, including records that are not confirmed yet.

Under steady load a replica with a slower disk is always a few records behind confirm and would
never join. So confirm waits for it: a replica that is close is *counted* first, for a bounded
time; once it has passed confirm, which now stands still, it is proposed. Who has not yet shown on
its link that it held the whole log of a moment is not close: a newcomer copies without being waited
for, however much there is.

A member that comes back with less than is confirmed leaves at once, however near it is: as long as
it is in the set it may be elected (``Member.has_lost``).

A member that stands still, or is slow by its history (``pace``), leaves as well, but only while the
minimum of members stays, one at a time, the slowest first; and it joins again when it has kept up
for a while, or at once when without it there would be fewer than the minimum.

The set may shrink below the minimum, down to the master alone: the minimum refuses writes (H11), it
does not keep a dead member in the set. A leaving member is let go at once while enough others stay,
so that nobody waits for its acknowledgement; when all members leave together the set stays as it
is, and any of them may be elected when they come back.
"""

from collections.abc import Mapping, Sequence

from gantry_protocol.types import BrokerId, Offset

from gantry_broker.replica.lineage import LogFacts
from gantry_broker.replica.syncset import Member
from gantry_broker.replica.values import Limits


def wanted_set(
    current: frozenset[BrokerId],
    members: Mapping[BrokerId, Member],
    log: LogFacts,
    *,
    me: BrokerId,
    epoch_start: Offset,
    min_in_sync: int,
    now_ms: int,
    limits: Limits,
) -> frozenset[BrokerId]:
    """The set the master would like, from the one it has."""
    wanted = {me}
    for broker_id in current - {me}:
        member = members[broker_id]
        if not member.fell_behind(now_ms, limits) and not member.has_lost:
            wanted.add(broker_id)
    joins_at = max(log.confirm, epoch_start)
    needed = max(min_in_sync, 1)
    able = [
        member
        for broker_id, member in members.items()
        if broker_id not in current and may_join(member, joins_at, now_ms, limits)
    ]
    for member in sorted(able, key=lambda item: (item.pace.is_out(now_ms), -item.acked)):
        if len(wanted) < needed or not member.pace.is_out(now_ms):
            wanted.add(member.broker_id)
    for broker_id in sorted(wanted - {me}):
        if members[broker_id].draining and len(wanted) > needed:
            wanted.discard(broker_id)
    slow = [members[item] for item in wanted & current - {me} if members[item].pace.holds_up]
    if slow and len(wanted) > needed:
        wanted.discard(max(slow, key=lambda item: (item.pace.recent_ms, item.broker_id)).broker_id)
    return frozenset(wanted)


def may_join(member: Member, joins_at: Offset, now_ms: int, limits: Limits) -> bool:
    """Whether a replica outside the set holds enough to be in it and would not leave at once."""
    return (
        member.streaming
        and not member.draining
        and member.acked >= joins_at
        and not member.fell_behind(now_ms, limits)
    )


class Joiner:
    """The one replica, if any, that confirm waits for before it is proposed.

    Attributes:
        broker_id: counted like a member of the set; None most of the time.
    """

    __slots__ = ("_limits", "_not_before_ms", "_until_ms", "broker_id")

    def __init__(self, limits: Limits) -> None:
        """Nobody yet."""
        self._limits = limits
        self._not_before_ms = 0
        self._until_ms = 0
        self.broker_id: BrokerId | None = None

    def review(
        self,
        counted: frozenset[BrokerId],
        members: Mapping[BrokerId, Member],
        joins_at: Offset,
        now_ms: int,
    ) -> None:
        """Choose, keep or give up; ``counted`` are those confirm waits for anyway."""
        if self.broker_id is not None:
            self._keep_or_end(counted, members[self.broker_id], now_ms)
        elif now_ms >= self._not_before_ms:
            for broker_id, member in members.items():
                if broker_id not in counted and self._is_close(member, joins_at, now_ms):
                    self.broker_id = broker_id
                    self._until_ms = now_ms + self._limits.join_wait_ms
                    return

    def _is_close(self, member: Member, joins_at: Offset, now_ms: int) -> bool:
        # By what it acknowledged, not by ``caught_up_ms``: that begins with a newcomer, who has all
        # to copy, and everybody would wait for him for as long as confirm may.
        whole_ms = member.seen_whole_ms
        return (
            member.streaming
            and not member.draining
            and not member.pace.is_out(now_ms)
            and 0 < member.acked < joins_at
            and whole_ms is not None
            and now_ms - whole_ms <= self._limits.join_wait_ms
        )

    def _keep_or_end(self, counted: frozenset[BrokerId], member: Member, now_ms: int) -> None:
        if member.broker_id in counted:
            self.broker_id = None
        elif not member.streaming or member.draining or now_ms >= self._until_ms:
            self.broker_id = None
            self._not_before_ms = now_ms + self._limits.lag_ms


def in_sync_target(
    current: frozenset[BrokerId],
    members: Mapping[BrokerId, Member],
    *,
    me: BrokerId,
    draining: frozenset[BrokerId],
    preferred: Sequence[frozenset[BrokerId]] = (),
) -> Member | None:
    """The member to hand over to: connected, staying, and of those one that holds most.

    Among those that hold equally much it is one in the best of the ``preferred`` places. A place
    never costs an answer: whoever holds less would leave sends "stored, not replicated".
    """
    staying = [
        member
        for broker_id, member in members.items()
        if broker_id in current - draining - {me} and member.streaming and not member.draining
    ]

    def place(member: Member) -> int:
        ranks = (n for n, ids in enumerate(preferred) if member.broker_id in ids)
        return next(ranks, len(preferred))

    return max(
        staying,
        key=lambda member: (member.acked, -place(member), -member.broker_id),
        default=None,
    )
