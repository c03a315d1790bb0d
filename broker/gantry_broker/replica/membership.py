"""Who should be in the sync-state set: shrink, expand, and leave on request.

Rule protected (H7): a replica joins only when it has acknowledged, in this epoch, everything up to
``max(confirm, epoch_start)``: then it lacks no confirmed record, and it holds the whole log with
which the master began its epoch, including records that are not confirmed yet.

The set may shrink below the minimum, down to the master alone: the minimum refuses writes (H11), it
does not keep a dead member in the set. A leaving member is let go at once while enough others stay,
so that nobody waits for its acknowledgement; when all members leave together the set stays as it
is, and any of them may be elected when they come back.
"""

from collections.abc import Mapping

from gantry_protocol.types import BrokerId, Offset

from gantry_broker.replica.facts import LogFacts
from gantry_broker.replica.member import Member
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
        if not members[broker_id].fell_behind(now_ms, limits):
            wanted.add(broker_id)
    joins_at = max(log.confirm, epoch_start)
    for broker_id, member in members.items():
        if broker_id not in current and may_join(member, joins_at, now_ms, limits):
            wanted.add(broker_id)
    for broker_id in sorted(wanted - {me}):
        if members[broker_id].draining and len(wanted) > max(min_in_sync, 1):
            wanted.discard(broker_id)
    return frozenset(wanted)


def may_join(member: Member, joins_at: Offset, now_ms: int, limits: Limits) -> bool:
    """Whether a replica outside the set holds enough to be in it and would not leave at once."""
    return (
        member.streaming
        and not member.draining
        and member.acked >= joins_at
        and not member.fell_behind(now_ms, limits)
    )


def in_sync_target(
    current: frozenset[BrokerId],
    members: Mapping[BrokerId, Member],
    *,
    me: BrokerId,
    draining: frozenset[BrokerId],
) -> Member | None:
    """The member to hand over to: connected, staying, and of those the one that holds most."""
    staying = [
        member
        for broker_id, member in members.items()
        if broker_id in current - draining - {me} and member.streaming and not member.draining
    ]
    return max(staying, key=lambda member: (member.acked, -member.broker_id), default=None)
