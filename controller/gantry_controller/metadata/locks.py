"""Owners of the queues that are consumed in order, as masters report them.

A master grants a queue to a new owner only after it has reported it here, so its successor knows
every owner there may be. Reports of one master take effect in the order in which it made them, and
none after its successor was elected.
"""

from gantry_protocol.codes import ResponseCode

from gantry_controller.metadata.clients import LockTable, QueueOwner
from gantry_controller.metadata.events import ReportLocks
from gantry_controller.metadata.results import Result, missing, refuse
from gantry_controller.metadata.state import BrokerGroup, MetadataState
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
    new = _changed(table, event)
    if new.count > max(LOCKS_MAX, table.count):
        remark = f"More than {LOCKS_MAX} locked queues of one broker group are not kept"
        return refuse(ResponseCode.INVALID_PARAMETER, remark, group)
    state.put_plain("locks", group.key, new)
    # Nobody who listens to changes of the broker group has anything to do with its locks.
    return Result(group=group)


def end_locks(state: MetadataState, group: BrokerGroup) -> None:
    """The group is removed: its queues belong to nobody."""
    if group.key in state.locks:
        state.put_plain("locks", group.key, None)


def _problem(event: ReportLocks) -> str | None:
    for name, owners in sorted(event.groups.items()):
        problem = name_problem(name)
        if problem is not None:
            return problem
        if any(len(owner.client_id) > CLIENT_ID_MAX for owner in owners):
            return f"A client id of more than {CLIENT_ID_MAX} characters is a mistake."
    return None


def _changed(table: LockTable, event: ReportLocks) -> LockTable:
    groups = dict(table.groups)
    count = table.count
    for name, changes in sorted(event.groups.items()):
        before = groups.pop(name, ())
        owners = {(item.topic, item.queue_id): item for item in (*before, *changes)}
        kept: tuple[QueueOwner, ...] = tuple(
            owners[queue] for queue in sorted(owners) if owners[queue].client_id
        )
        count += len(kept) - len(before)
        if kept:
            groups[name] = kept
    return LockTable(table.version + 1, event.master_epoch, event.serial, count, groups)
