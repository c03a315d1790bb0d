"""Changes between two readings of a broker group, in words for people.

Pure, and deliberately small: it tells what the controllers say, never what a trial hopes for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantry_protocol.admin import GroupView, MemberView, QuorumView

CONTACT_MS = 300  # controllers hear each other every 60 ms


def member_name(group: GroupView, broker_id: int | None) -> str:
    """The pod of a broker id, or `broker 7` while nobody knows its pod."""
    if broker_id is None:
        return "nobody"
    for member in group.members:
        if member.broker_id == broker_id and member.pod_name:
            return member.pod_name
    return f"broker {broker_id}"


def changes(before: GroupView | None, after: GroupView) -> list[str]:
    """One sentence per change that matters to somebody who watches a failover."""
    told: list[str] = []
    old = {member.broker_id: member for member in before.members} if before else {}
    for member in after.members:
        told += _member_changes(old.get(member.broker_id), member, after)
    if before is None or (before.master_broker_id, before.master_epoch) != (
        after.master_broker_id,
        after.master_epoch,
    ):
        told += _master_changes(after)
    if before is not None and set(before.sync_state_set) != set(after.sync_state_set):
        names = ", ".join(member_name(after, item) for item in sorted(after.sync_state_set))
        told.append(f"in-sync set is now {names or 'empty'}")
    return told


def _member_changes(old: MemberView | None, new: MemberView, group: GroupView) -> list[str]:
    name = member_name(group, new.broker_id)
    if old is None:
        return [f"{name} registered as broker {new.broker_id}"]
    told = []
    if new.incarnation != old.incarnation and old.incarnation is not None:
        told.append(f"{name} is back as a new process")
    elif old.alive and not new.alive:
        told.append(f"{name} is gone, say the controllers")
    elif new.alive and not old.alive:
        told.append(f"{name} is alive again")
    if new.draining and not old.draining:
        told.append(f"{name} drains: it takes no more writes and hands over")
    return told


def _master_changes(group: GroupView) -> list[str]:
    if group.master_broker_id is None:
        return ["there is no master"]
    name = member_name(group, group.master_broker_id)
    return [f"{name} is master in epoch {group.master_epoch}"]


def settled(group: GroupView | None) -> bool:
    """Whether the group has a master and every replica it should have is alive and in sync."""
    return (
        group is not None
        and group.master_broker_id is not None
        and group.replicas is not None
        and len(group.sync_state_set) >= group.replicas
        and sum(1 for member in group.members if member.alive and not member.draining)
        >= group.replicas
    )


def whole(quorum: QuorumView | None) -> bool:
    """Whether the leader hears every other controller: then one of them may be taken away."""
    return quorum is not None and all(
        peer.id == quorum.node_id
        or (peer.last_contact_ms is not None and peer.last_contact_ms <= CONTACT_MS)
        for peer in quorum.peers
    )
