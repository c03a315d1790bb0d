"""From evidence to suspicion: when a broker's process is held to be gone.

Four kinds of evidence count, in order of speed. Each leads to nothing but an ordinary election
inside the sync-state set, so a wrong suspicion costs one needless switch and never data.

``REFUSED``  the connection that carried its heartbeats closed, *and* its own address has since
             refused two connections, at least 50 ms apart. One refusal may be a listener that is
             just restarting; a time-out or an unreachable host proves nothing about the process.
``POD_GONE`` the operator said that the pod with this uid is gone (terminating is not gone), and no
             newer heartbeat came from it.
``SILENT``   nothing was heard of the registered process for its heartbeat time-out. The time it
             registered counts as a sign, and so does the time this node began to watch: a new
             leader has heard nothing of many a living broker, and a stalled one has not listened.
             A process that this node never heard at all has ``UNHEARD_S``: when all controllers
             come back under new addresses, brokers find them seconds after each other.
``REPLACED`` another process of the same broker registered. Both hold the lock on one volume in
             turn, so the earlier one is gone.

A row about another incarnation than the registered one says nothing.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from gantry_protocol.types import BrokerId

from gantry_controller.liveness.core.table import BrokerSigns, HeartbeatTable
from gantry_controller.metadata.events import LiveMember
from gantry_controller.metadata.state import BrokerGroup, Member

UNHEARD_S = 10.0
"""How long a leader waits for a process that registered before and that it has never heard.

Name servers remember for up to 30 s that a name did not exist, each for itself, so a living master
may find new controllers later than its replicas do.
"""


class Suspicion(StrEnum):
    """The reason why a process is held to be gone."""

    REFUSED = "refused"
    POD_GONE = "pod gone"
    SILENT = "silent"
    REPLACED = "replaced"


class Clock(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The times that the rules need.

    Attributes:
        now_s: the present.
        watching_since_s: since when silence means something to this node.
        default_timeout_s: for brokers that have not told their own.
    """

    now_s: float
    watching_since_s: float
    default_timeout_s: float


def row_of(table: HeartbeatTable, group: BrokerGroup, member: Member) -> BrokerSigns | None:
    """The row of the member's registered process."""
    row = table.row(group.key, member.broker_id)
    return row if row is not None and member.is_incarnation(row.beat.incarnation) else None


def suspicion(
    table: HeartbeatTable, group: BrokerGroup, member: Member, clock: Clock
) -> Suspicion | None:
    """The reason why the member's registered process is held to be gone, if it is."""
    row = row_of(table, group, member)
    gone_s = table.gone_since(member.pod_uid)
    if gone_s is not None and (row is None or row.seen_s <= gone_s):
        return Suspicion.POD_GONE
    if row is not None and row.refused:
        return Suspicion.REFUSED
    if clock.now_s > silent_from(table, group, member, clock):
        return Suspicion.SILENT
    return None


def not_proved_gone(
    table: HeartbeatTable, group: BrokerGroup, clock: Clock
) -> tuple[LiveMember, ...]:
    """The members that nothing speaks against, ascending by id; more than those that are alive.

    It is the evidence for what must not be done to somebody who may live: a new leader has heard
    nothing of many a living broker.
    """
    return tuple(
        _named(member) for member in group.members if suspicion(table, group, member, clock) is None
    )


def to_forget(
    table: HeartbeatTable, group: BrokerGroup, clock: Clock, broker_id: BrokerId
) -> tuple[LiveMember, ...]:
    """The evidence for forgetting ``broker_id``, ascending by id; doubt speaks for the member.

    It is named unless something proves it gone. Of the others, who are to hold what it holds, only
    those are that were heard: whom nothing speaks against yet may be dead, and this the last copy.
    """
    return tuple(
        _named(member)
        for member in group.members
        if is_alive(table, group, member, clock)
        or (member.broker_id == broker_id and suspicion(table, group, member, clock) is None)
    )


def silent_from(table: HeartbeatTable, group: BrokerGroup, member: Member, clock: Clock) -> float:
    """The time after which the member, if nothing is heard of it until then, counts as silent."""
    row = row_of(table, group, member)
    since_s = clock.watching_since_s
    registered_s = table.registered_at(group.key, member.broker_id)
    if row is None and (registered_s is None or registered_s < since_s):
        return since_s + max(clock.default_timeout_s, UNHEARD_S)
    last_s = max(since_s, registered_s or since_s, since_s if row is None else row.seen_s)
    return last_s + (clock.default_timeout_s if row is None else row.beat.timeout_s)


def is_alive(table: HeartbeatTable, group: BrokerGroup, member: Member, clock: Clock) -> bool:
    """Whether the registered process was heard within its time-out and nothing speaks against it.

    Stricter than "not suspected": somebody never heard of is no candidate.
    """
    row = row_of(table, group, member)
    return row is not None and _is_heard(table, member, row, clock)


def _is_heard(table: HeartbeatTable, member: Member, row: BrokerSigns, clock: Clock) -> bool:
    """``is_alive`` of a member whose registered process has this row."""
    if row.refused or clock.now_s > row.silent_from_s:
        return False
    if member.pod_uid is None:
        return True
    gone_s = table.gone_since(member.pod_uid)
    return gone_s is None or row.seen_s > gone_s


def live_members(
    table: HeartbeatTable, group: BrokerGroup, clock: Clock, *, asking: BrokerId | None = None
) -> tuple[LiveMember, ...]:
    """The evidence for an event about ``group``, ascending by id.

    ``asking`` is a member that has just spoken for itself: it is alive, even if its first heartbeat
    has not overtaken its request (the sole survivor of a group starts this way). And the recorded
    master is held to be alive until something speaks against it: a new leader, which has heard
    nobody yet, must not replace it because somebody asks.
    """
    rows = table.rows_of(group.key)
    found = []
    for member in group.members:
        row = rows.get(member.broker_id)
        if (
            row is not None
            and member.is_incarnation(row.beat.incarnation)
            and _is_heard(table, member, row, clock)
        ):
            found.append(_heard_to_say(row))
        elif member.broker_id == asking and member.registrations:
            found.append(_named(member))
        elif _is_unsuspected_master(table, group, member, clock):
            found.append(_named(member, connected=False))
    return tuple(found)


def alive_of(
    table: HeartbeatTable, group: BrokerGroup, broker_ids: Iterable[BrokerId], clock: Clock
) -> tuple[LiveMember, ...]:
    """Of the members with these ids, those that are alive; who they are, not how far they are.

    The evidence of a change of the sync-state set, which comes more often than any other event.
    """
    rows = table.rows_of((group.cluster, group.name))
    found = []
    for broker_id in broker_ids:
        for member in group.members:  # as ``group.member`` does; a call per id would cost as much
            if member.broker_id == broker_id:
                break
        else:
            continue
        row = rows.get(broker_id)
        if row is not None:
            incarnation = row.beat.incarnation
            if member.is_incarnation(incarnation) and _is_heard(table, member, row, clock):
                found.append(LiveMember(broker_id, incarnation))
                continue
        if _is_unsuspected_master(table, group, member, clock):
            found.append(_named(member))
    return tuple(found)


def some_drain(table: HeartbeatTable, group: BrokerGroup) -> bool:
    """Whether ``draining`` has anybody to look at."""
    for row in table.rows_of(group.key).values():  # noqa: SIM110 - a generator costs as much again
        if row.beat.draining:
            return True
    return False


def draining(table: HeartbeatTable, group: BrokerGroup, clock: Clock) -> list[BrokerId]:
    """The living members that are about to stop, ascending."""
    rows = table.rows_of(group.key)
    return [
        member.broker_id
        for member in group.members
        if (row := rows.get(member.broker_id)) is not None
        and row.beat.draining
        and is_alive(table, group, member, clock)
    ]


def _heard_to_say(row: BrokerSigns) -> LiveMember:
    beat = row.beat
    return LiveMember(
        broker_id=beat.broker_id,
        incarnation=beat.incarnation,
        epoch=beat.epoch,
        max_offset=beat.max_offset,
        confirm_offset=beat.confirm_offset,
        priority=beat.priority,
        draining=beat.draining,
        connected=row.connected,
    )


def _named(member: Member, *, connected: bool = True) -> LiveMember:
    incarnation = member.incarnation if member.announces else ""
    return LiveMember(broker_id=member.broker_id, incarnation=incarnation, connected=connected)


def _is_unsuspected_master(
    table: HeartbeatTable, group: BrokerGroup, member: Member, clock: Clock
) -> bool:
    return (
        member.broker_id == group.master_id
        and group.master_is_current
        and suspicion(table, group, member, clock) is None
    )


def master_suspicion(table: HeartbeatTable, group: BrokerGroup, clock: Clock) -> Suspicion | None:
    """The reason to hold the group's elected process for gone; None also without a master."""
    master = group.master
    if master is None:
        return None
    if not group.master_is_current:
        return Suspicion.REPLACED
    return suspicion(table, group, master, clock)
