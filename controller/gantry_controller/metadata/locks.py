"""Owners of the queues that are consumed in order, as masters report them.

A master grants a queue to a new owner only after it has reported it here, so its successor knows
every owner there may be. Reports of one master take effect in the order in which it made them, and
none after its successor was elected.

The owners of a mapped queue move with it: what its new group's master reads here, once it knows
that it has the queue, names everybody whom the master before may have told that he owns it.
"""

from collections.abc import Container, Iterable, Mapping

from gantry_protocol.codes import ResponseCode
from gantry_protocol.queue_map import Segment
from msgspec.structs import replace

from gantry_controller.metadata.clients import LockTable, QueueOwner
from gantry_controller.metadata.events import ReportLocks
from gantry_controller.metadata.results import Result, missing, refuse
from gantry_controller.metadata.state import BrokerGroup, GroupKey, MetadataState
from gantry_controller.metadata.subscriptions import name_problem
from gantry_controller.metadata.topics import not_its_master

LOCKS_MAX = 50_000  # of one broker group
CLIENT_ID_MAX = 1024


def report_locks(state: MetadataState, event: ReportLocks) -> Result:
    """Takes over the owners of queues, all of the report or nothing."""
    group = state.find(event.cluster, event.name)
    if group is None:
        code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
        return missing(state, event, code, "Broker metadata is not existed")
    refusal = not_its_master(group, event.broker_id, event.incarnation, event.master_epoch)
    if refusal is not None:
        return refuse(*refusal, group)
    table = state.lock_table(group.key)
    last = table.serial if table.epoch == event.master_epoch else 0
    if event.serial == last:
        return Result(group=group)  # it came twice
    if event.serial < last:
        remark = f"Report {event.serial} was overtaken by report {last}"
        return refuse(ResponseCode.INVALID_PARAMETER, remark, group)
    problem = _problem(event)
    if problem is not None:
        return refuse(ResponseCode.INVALID_PARAMETER, problem, group)
    new = replace(_changed(table, event.groups), epoch=event.master_epoch, serial=event.serial)
    if new.count > max(LOCKS_MAX, table.count):
        remark = f"More than {LOCKS_MAX} locked queues of one broker group are not kept"
        return refuse(ResponseCode.INVALID_PARAMETER, remark, group)
    state.put_plain("locks", group.key, new)
    # Nobody who listens to changes of the broker group has anything to do with its locks.
    return Result(group=group)


def end_locks(state: MetadataState, group: BrokerGroup, *, keeps_owners: bool) -> None:
    """The group is removed: its queues belong to nobody.

    With ``keeps_owners`` those of mapped queues, which are to begin anew at other groups, are kept
    until these begin: their clients may not know yet that the group is gone.
    """
    if group.key not in state.locks:
        return
    locked = {
        (item.topic, item.queue_id)
        for owners in state.lock_table(group.key).groups.values()
        for item in owners
    }
    if keeps_owners:
        locked -= {
            (topic, queue.open.queue_id)
            for topic, queues in state.maps_of(group.cluster).maps.items()
            for queue in queues.queues
            if queue.open.group == group.name
        }
    _strike(state, group.key, locked)


def owners_follow(
    state: MetadataState, cluster: str, topic: str, moves: Iterable[tuple[Segment, Segment]]
) -> None:
    """Queues have moved from one segment to another: who owned them owns them there.

    The group before keeps its owners. Its master frees them when they are over, and older clients,
    which see the queues of each group, may go on with them. Nobody is there to free those of a
    group that was removed.
    """
    left: dict[str, dict[int, Segment]] = {}
    for before, after in moves:
        left.setdefault(before.group, {})[before.queue_id] = after
    for name, places in sorted(left.items()):
        arrived: dict[str, dict[str, list[QueueOwner]]] = {}
        for consumers, owners in state.lock_table((cluster, name)).groups.items():
            for owner in owners:
                if owner.topic == topic and owner.queue_id in places:
                    place = places[owner.queue_id]
                    moved = replace(owner, queue_id=place.queue_id)
                    arrived.setdefault(place.group, {}).setdefault(consumers, []).append(moved)
        for target, changes in sorted(arrived.items()):
            key = (cluster, target)
            state.put_plain("locks", key, _changed(state.lock_table(key), changes))
        if arrived and state.find(cluster, name) is None:
            _strike(state, (cluster, name), {(topic, queue_id) for queue_id in places})


def _strike(state: MetadataState, key: GroupKey, gone: Container[tuple[str, int]]) -> None:
    """Nobody owns the queues ``gone`` any more; nor is a table kept that is empty then."""
    table = state.lock_table(key)
    struck = {
        name: [
            replace(item, client_id="") for item in owners if (item.topic, item.queue_id) in gone
        ]
        for name, owners in table.groups.items()
    }
    left = _changed(table, struck)
    state.put_plain("locks", key, left if left.count else None)


def _problem(event: ReportLocks) -> str | None:
    for name, owners in sorted(event.groups.items()):
        problem = name_problem(name)
        if problem is not None:
            return problem
        if any(len(owner.client_id) > CLIENT_ID_MAX for owner in owners):
            return f"A client id of more than {CLIENT_ID_MAX} characters is a mistake."
    return None


def _changed(table: LockTable, changes: Mapping[str, Iterable[QueueOwner]]) -> LockTable:
    """The table after ``changes``, by consumer group; without a client a queue has no owner."""
    groups = dict(table.groups)
    count = table.count
    for name, changed in sorted(changes.items()):
        before = groups.pop(name, ())
        owners = {(item.topic, item.queue_id): item for item in (*before, *changed)}
        kept: tuple[QueueOwner, ...] = tuple(
            owners[queue] for queue in sorted(owners) if owners[queue].client_id
        )
        count += len(kept) - len(before)
        if kept:
            groups[name] = kept
    return replace(table, version=table.version + 1, count=count, groups=groups)
