"""Subscription groups, and the membership of consumer groups (RIP-18).

A subscription group is a setting: an administrator's word, kept until it is deleted. Membership is
a report: only the process that is master in the group's present epoch may make one, so what a
deposed master still believes cannot overwrite what its successor has found.
"""

from gantry_protocol.codes import ResponseCode

from gantry_controller.metadata.clients import ConsumerGroup, ConsumerTable, SubscriptionTable
from gantry_controller.metadata.events import (
    DeleteSubscriptionGroup,
    ForgetConsumers,
    PutSubscriptionGroup,
    ReportConsumers,
)
from gantry_controller.metadata.results import Result, missing, refuse
from gantry_controller.metadata.state import BrokerGroup, MetadataState
from gantry_controller.metadata.topics import (
    NAME_CHARS,
    VERSIONS_PER_EPOCH,
    addressed,
    not_its_master,
)

NAME_LENGTH_MAX = 255  # Validators.CHARACTER_MAX_LENGTH
CONFIG_BYTES_MAX = 16 * 1024
SUBSCRIPTION_GROUPS_MAX = 20_000  # of one broker group
CONSUMER_GROUPS_MAX = 20_000  # of one broker group
CLIENTS_MAX = 10_000  # of one consumer group
SUBSCRIPTIONS_MAX = 4096  # of one consumer group


def put_subscription_group(state: MetadataState, event: PutSubscriptionGroup) -> Result:
    """Creates or changes one on one broker group, or on every one of a cluster."""
    problem = name_problem(event.group)
    if problem is None and len(event.config) > CONFIG_BYTES_MAX:
        problem = f"A subscription group of more than {CONFIG_BYTES_MAX} bytes is a mistake."
    if problem is not None:
        return refuse(ResponseCode.INVALID_PARAMETER, problem)
    keys = addressed(state, event.cluster, event.name)
    if isinstance(keys, Result):
        return keys
    for key in keys:
        known = state.subscription_table(key).groups
        if event.group not in known and len(known) >= SUBSCRIPTION_GROUPS_MAX:
            return refuse(
                ResponseCode.SYSTEM_ERROR,
                f"Group {key[1]} has {SUBSCRIPTION_GROUPS_MAX} subscription groups, the most it "
                "may have",
            )
    changed = False
    for key in keys:
        table = state.subscription_table(key)
        if table.groups.get(event.group) != event.config:
            groups = {**table.groups, event.group: event.config}
            state.put_subscriptions(key, SubscriptionTable(table.version + 1, groups))
            changed = True
    version = state.subscription_table(keys[0]).version if len(keys) == 1 else None
    return Result(subscriptions_version=version, changed=changed)


def delete_subscription_group(state: MetadataState, event: DeleteSubscriptionGroup) -> Result:
    """Deletes one; deleting what is not there succeeds, as upstream's does."""
    keys = addressed(state, event.cluster, event.name, retired=True)
    if isinstance(keys, Result):
        return keys
    changed = False
    for key in keys:
        table = state.subscription_table(key)
        if event.group in table.groups:
            rest = {name: text for name, text in table.groups.items() if name != event.group}
            state.put_subscriptions(key, SubscriptionTable(table.version + 1, rest))
            changed = True
    version = state.subscription_table(keys[0]).version if len(keys) == 1 else None
    return Result(subscriptions_version=version, changed=changed)


def begin_settings(state: MetadataState, group: BrokerGroup) -> None:
    """The settings of a group that was just adopted are those made here, and no others.

    Its brokers may remember those of another quorum, with a version: ours goes on above it.
    """
    table = state.subscription_table(group.key)
    version = max(table.version + 1, group.base_epoch * VERSIONS_PER_EPOCH)
    state.put_subscriptions(group.key, SubscriptionTable(version, table.groups))


def report_consumers(state: MetadataState, event: ReportConsumers) -> Result:
    """Takes over which consumer groups have which members, all of the report or nothing."""
    group = state.find(event.cluster, event.name)
    if group is None:
        code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
        return missing(state, event, code, "Broker metadata is not existed")
    refusal = _refuse_report(state, group, event)
    if refusal is not None:
        code, remark = refusal
        return refuse(code, remark, group)
    table = state.consumer_table(group.key)
    groups = dict(table.groups)
    for name, members in sorted(event.groups.items()):
        if members is not None and members.clients:
            groups[name] = _in_order(members)
        else:
            groups.pop(name, None)
    changed = [name for name in event.groups if groups.get(name) != table.groups.get(name)]
    if changed:
        state.put_consumers(group.key, ConsumerTable(table.version + 1, groups), changed)
    # Nobody who listens to changes of the broker group has anything to do with its clients.
    return Result(group=group, consumers_changed=tuple(changed))


def end_consumers(state: MetadataState, group: BrokerGroup) -> tuple[str, ...]:
    """Nobody consumes from the group any more; returns the consumer groups that did."""
    table = state.consumer_table(group.key)
    if table.groups:
        state.put_consumers(group.key, ConsumerTable(table.version + 1), table.groups)
    return tuple(table.groups)


def forget_consumers(state: MetadataState, event: ForgetConsumers) -> Result:
    """Nobody hears those whom a master that is gone for long has reported."""
    group = state.find(event.cluster, event.name)
    if group is None:
        return Result()
    if group.master_epoch != event.master_epoch:
        code = ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
        return refuse(code, f"The group is in master epoch {group.master_epoch} by now", group)
    return Result(group=group, consumers_changed=end_consumers(state, group))


def _refuse_report(
    state: MetadataState, group: BrokerGroup, event: ReportConsumers
) -> tuple[ResponseCode, str] | None:
    refusal = not_its_master(group, event.broker_id, event.incarnation, event.master_epoch)
    if refusal is not None:
        return refusal
    known = state.consumer_table(group.key).groups
    if len(known) + sum(name not in known for name in event.groups) > CONSUMER_GROUPS_MAX:
        return (
            ResponseCode.INVALID_PARAMETER,
            f"More than {CONSUMER_GROUPS_MAX} consumer groups on one broker group are not kept",
        )
    for name, members in sorted(event.groups.items()):
        problem = name_problem(name) if members is None else _members_problem(name, members)
        if problem is not None:
            return ResponseCode.INVALID_PARAMETER, problem
    return None


def _members_problem(name: str, members: ConsumerGroup) -> str | None:
    if len(members.clients) > CLIENTS_MAX or len(members.subscriptions) > SUBSCRIPTIONS_MAX:
        return (
            f"Of the consumer group {name} at most {CLIENTS_MAX} clients and {SUBSCRIPTIONS_MAX} "
            "subscriptions are kept."
        )
    return name_problem(name)


def _in_order(members: ConsumerGroup) -> ConsumerGroup:
    """The canonical form; of two clients of one id the later one counts."""
    clients = {client.client_id: client for client in members.clients}
    subscriptions = {subscription.topic: subscription for subscription in members.subscriptions}
    return ConsumerGroup(
        clients=tuple(clients[client] for client in sorted(clients)),
        subscriptions=tuple(subscriptions[subscription] for subscription in sorted(subscriptions)),
        message_model=members.message_model,
        consume_type=members.consume_type,
        consume_from_where=members.consume_from_where,
    )


def name_problem(group: str) -> str | None:
    """The fault of a consumer group's name, or None (RocketMQ ``Validators``)."""
    if not group:
        return "The specified group is blank."
    if len(group) > NAME_LENGTH_MAX:
        return f"The specified group is longer than group max length {NAME_LENGTH_MAX}."
    if not NAME_CHARS.issuperset(group):
        return (
            f"The specified group[{group}] contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    return None
