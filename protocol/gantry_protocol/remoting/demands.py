"""Demands of requests that brokers serve: resources, and what has to be allowed there; one table.

The rows are upstream's (``DefaultAuthorizationContextBuilder`` and the ``RocketMQAction`` of
headers) but for these, which are stricter or milder where upstream's leave a way around or demand
what no consumer has:

* The retry topic of a consumer group is that group, also in a pull: upstream lets a consumer of one
  group read the retry topic of any other.
* What names a message by its place in the log, of whatever topic, needs all topics.
* Who may consume a topic may ask for its offsets; upstream demands Get besides.
* Requests about which upstream says nothing, and lets everybody make, have a row here.
* Users and rules are changed by super users.

A code without a row is a super user's. A request that cannot be read demands nothing here: its
handler reads it in the same way, and refuses it.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gantry_protocol.access.judgement import Demand
from gantry_protocol.access.rules import Action, ResourceKind
from gantry_protocol.bodies import HeartbeatData, decode_body
from gantry_protocol.bodies.client import CheckClientRequestBody, LockBatchBody
from gantry_protocol.bodies.codec import Body
from gantry_protocol.bodies.inspection import SubscriptionGroupList, TopicConfigList
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.names import RETRY_PREFIX

Demands = Iterable[Demand]
Row = Callable[[RemotingCommand, str], Demands]
"""The demands of a request to a broker of a cluster.

Raises:
    WireError: its body does not read.
"""

PUB, SUB = Action.PUB, Action.SUB
CREATE, UPDATE, DELETE, GET = Action.CREATE, Action.UPDATE, Action.DELETE, Action.GET
READ = (SUB, GET)
_OF_CLIENTS = frozenset((PUB, SUB))  # a member sends to its retry topic, and pulls from it


def topic(name: str | None, *actions: Action) -> Demand:
    """The demand on a topic, or on the group whose retry topic it is."""
    if name is not None and name.startswith(RETRY_PREFIX):
        needed = actions if _OF_CLIENTS.isdisjoint(actions) else (SUB,)
        return Demand(ResourceKind.GROUP, name.removeprefix(RETRY_PREFIX), needed)
    return Demand(ResourceKind.TOPIC, name, actions)


def group(name: str | None, *actions: Action) -> Demand:
    """The demand on a consumer group."""
    return Demand(ResourceKind.GROUP, name, actions)


def _nothing(command: RemotingCommand, cluster: str) -> Demands:
    """Any user may."""
    return ()


def _on_cluster(*actions: Action) -> Row:
    return lambda _, cluster: (Demand(ResourceKind.CLUSTER, cluster, actions),)


def _on_all_topics(*actions: Action) -> Row:
    return lambda _, __: (topic(None, *actions),)


def _on_all_groups(*actions: Action) -> Row:
    return lambda _, __: (group(None, *actions),)


def _fields(*actions: Action, topics: str = "", groups: str = "") -> Row:
    """The resources that fields of the header name; all of them where it names none at all."""
    topic_fields, group_fields = topics.split(), groups.split()
    return lambda command, _: _named(command.ext or {}, actions, topic_fields, group_fields)


def _named(
    ext: Mapping[str, str], actions: tuple[Action, ...], topics: list[str], groups: list[str]
) -> tuple[Demand, ...]:
    named = (
        *(topic(ext[field], *actions) for field in topics if ext.get(field)),
        *(group(ext[field], *actions) for field in groups if ext.get(field)),
    )
    return named or (
        *(topic(None, *actions) for _ in topics),
        *(group(None, *actions) for _ in groups),
    )


def _send(field: str) -> Row:
    return lambda command, _: (topic((command.ext or {}).get(field), PUB),)


def _end_transaction(command: RemotingCommand, _: str) -> Demands:
    """Older clients do not name the topic."""
    return (topic((command.ext or {}).get("topic"), PUB),)


def _popped(command: RemotingCommand, _: str) -> Demands:
    """What was popped is named by its topic, or by one of the group's own retry topics."""
    ext = command.ext or {}
    return popped_of(ext.get("consumerGroup"), ext.get("topic"))


def popped_of(name: str | None, at: str | None) -> Demands:
    """The demands of who has a message of the topic ``at`` in the group ``name``."""
    retry = f"{RETRY_PREFIX}{name}"
    if at is not None and at.startswith((f"{retry}_", f"{retry}+")):
        return (group(name, SUB),)
    return group(name, SUB), topic(at, SUB)


class _Ack(Body, frozen=True):
    group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")


class _Acks(Body, frozen=True):
    acks: list[_Ack]


class _GroupOnTopic(Body, frozen=True):
    """SetMessageRequestMode (401), QueryAssignment (400)."""

    topic: str
    consumer_group: str


class _Subscription(Body, frozen=True):
    group: str
    topic: str


class _Subscriptions(Body, frozen=True):
    """LiteSubscriptionCtl (200071)."""

    subscription_set: list[_Subscription]


class _TopicName(Body, frozen=True):
    """UpdateAndCreateStaticTopic (513)."""

    topic: str


class _GroupName(Body, frozen=True):
    """UpdateAndCreateSubscriptionGroup (200)."""

    group_name: str


def _batch_ack(command: RemotingCommand, _: str) -> Demands:
    for item in decode_body(_Acks, command.body).acks:
        yield from popped_of(item.group, item.topic)


def _heartbeat(command: RemotingCommand, _: str) -> Demands:
    for consumer in decode_body(HeartbeatData, command.body).consumer_data_set:
        yield group(consumer.group_name, SUB)
        for subscription in consumer.subscription_data_set:
            yield topic(subscription.topic, SUB)


def _unregister(command: RemotingCommand, _: str) -> Demands:
    name = (command.ext or {}).get("consumerGroup")
    return (group(name, PUB, SUB),) if name else ()


def _check_client(command: RemotingCommand, _: str) -> Demands:
    body = decode_body(CheckClientRequestBody, command.body)
    return group(body.group, SUB), topic(body.subscription_data.topic, SUB)


def _locks(command: RemotingCommand, _: str) -> Demands:
    body = decode_body(LockBatchBody, command.body)
    return group(body.consumer_group, SUB), *(topic(queue.topic, SUB) for queue in body.mq_set)


def _assignment(command: RemotingCommand, _: str) -> Demands:
    body = decode_body(_GroupOnTopic, command.body)
    return group(body.consumer_group, SUB), topic(body.topic, SUB)


def _lite_subscriptions(command: RemotingCommand, _: str) -> Demands:
    for item in decode_body(_Subscriptions, command.body).subscription_set:
        yield group(item.group, SUB)
        yield topic(item.topic, SUB)


def _mode(command: RemotingCommand, _: str) -> Demands:
    body = decode_body(_GroupOnTopic, command.body)
    return group(body.consumer_group, UPDATE), topic(body.topic, UPDATE)


def _static_topic(command: RemotingCommand, _: str) -> Demands:
    """The topic that is made is the one in the body."""
    return (topic(decode_body(_TopicName, command.body).topic, CREATE),)


def _topic_list(command: RemotingCommand, _: str) -> Demands:
    configs = decode_body(TopicConfigList, command.body).topic_config_list
    return [topic(config.topic_name, CREATE) for config in configs]


def _group_setting(command: RemotingCommand, _: str) -> Demands:
    return (group(decode_body(_GroupName, command.body).group_name, CREATE),)


def _group_list(command: RemotingCommand, _: str) -> Demands:
    configs = decode_body(SubscriptionGroupList, command.body).group_config_list
    return [group(config.group_name, CREATE) for config in configs]


def _clone(command: RemotingCommand, _: str) -> Demands:
    """Without a topic all are meant."""
    ext = command.ext or {}
    return (
        group(ext.get("srcGroup"), *READ),
        group(ext.get("destGroup"), UPDATE),
        topic(ext.get("topic") or None, UPDATE),
    )


def _consume_directly(command: RemotingCommand, _: str) -> Demands:
    """The message may be of any topic."""
    return group((command.ext or {}).get("consumerGroup"), SUB), topic(None, *READ)


_PULL = _fields(SUB, topics="topic", groups="consumerGroup")
_OFFSETS = _fields(*READ, topics="topic")

TABLE: Mapping[int, Row] = {
    # Producers.
    RequestCode.SEND_MESSAGE: _send("topic"),
    RequestCode.SEND_MESSAGE_V2: _send("b"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b"),
    RequestCode.SEND_REPLY_MESSAGE: _send("topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _send("b"),
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.RECALL_MESSAGE: _fields(PUB, topics="topic"),
    # Consumers.
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.CONSUMER_SEND_MSG_BACK: _fields(SUB, topics="originTopic", groups="group"),
    RequestCode.QUERY_CONSUMER_OFFSET: _fields(*READ, topics="topic", groups="consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _fields(
        SUB, UPDATE, topics="topic", groups="consumerGroup"
    ),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _OFFSETS,
    RequestCode.GET_MAX_OFFSET: _OFFSETS,
    RequestCode.GET_MIN_OFFSET: _OFFSETS,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _OFFSETS,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _fields(*READ, groups="consumerGroup"),
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.CHECK_CLIENT_CONFIG: _check_client,
    RequestCode.POP_MESSAGE: _PULL,
    RequestCode.ACK_MESSAGE: _popped,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _popped,
    RequestCode.NOTIFICATION: _PULL,
    RequestCode.POLLING_INFO: _fields(*READ, topics="topic", groups="consumerGroup"),
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.POP_LITE_MESSAGE: _PULL,
    RequestCode.LITE_SUBSCRIPTION_CTL: _lite_subscriptions,
    # Both.
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.QUERY_MESSAGE: _fields(*READ, topics="topic"),
    RequestCode.VIEW_MESSAGE_BY_ID: _on_all_topics(*READ),
    # Administrators of topics.
    RequestCode.UPDATE_AND_CREATE_TOPIC: _fields(CREATE, topics="topic"),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _topic_list,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: _static_topic,
    RequestCode.DELETE_TOPIC_IN_BROKER: _fields(DELETE, topics="topic"),
    RequestCode.GET_TOPIC_CONFIG: _fields(GET, topics="topic"),
    RequestCode.GET_TOPIC_STATS_INFO: _fields(GET, topics="topic"),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _fields(GET, topics="topic"),
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _on_all_topics(GET),
    RequestCode.GET_ALL_TOPIC_CONFIG: _on_all_topics(GET),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _on_cluster(GET),
    RequestCode.GET_PARENT_TOPIC_INFO: _fields(GET, topics="topic"),
    RequestCode.GET_LITE_TOPIC_INFO: _fields(GET, topics="parentTopic"),
    # Administrators of consumer groups.
    RequestCode.GET_LITE_CLIENT_INFO: _fields(GET, topics="parentTopic", groups="group"),
    RequestCode.TRIGGER_LITE_DISPATCH: _fields(UPDATE, groups="group"),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group_setting,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _group_list,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _fields(DELETE, groups="groupName"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _fields(GET, groups="group"),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _on_all_groups(GET),
    RequestCode.GET_CONSUME_STATS: _fields(GET, topics="topic", groups="consumerGroup"),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _fields(GET, groups="consumerGroup"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _fields(GET, groups="consumerGroup"),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _fields(GET, groups="group"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _fields(GET, topics="topic", groups="group"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _fields(GET, topics="topic", groups="group"),
    RequestCode.QUERY_CONSUME_QUEUE: _fields(GET, topics="topic", groups="consumerGroup"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _fields(UPDATE, topics="topic", groups="group"),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _fields(GET, topics="topic", groups="group"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    RequestCode.CLONE_GROUP_OFFSET: _clone,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _fields(UPDATE, topics="topic", groups="group"),
    RequestCode.SET_MESSAGE_REQUEST_MODE: _mode,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _on_cluster(GET),
    RequestCode.GET_ALL_CONSUMER_OFFSET: _on_all_groups(GET),
    # Administrators of brokers.
    RequestCode.GET_BROKER_LITE_INFO: _on_cluster(GET),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _on_cluster(GET),
    RequestCode.GET_ALL_PRODUCER_INFO: _on_cluster(GET),
    RequestCode.GET_BROKER_RUNTIME_INFO: _on_cluster(GET),
    RequestCode.GET_BROKER_CONFIG: _on_cluster(GET),
    RequestCode.GET_BROKER_CONSUME_STATS: _on_cluster(GET),
    RequestCode.VIEW_BROKER_STATS_DATA: _on_cluster(GET),
    RequestCode.GET_ALL_DELAY_OFFSET: _on_cluster(GET),
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: _on_cluster(GET),
    RequestCode.GET_BROKER_EPOCH_CACHE: _on_cluster(GET),
    RequestCode.GET_BROKER_HA_STATUS: _on_cluster(GET),
    RequestCode.UPDATE_BROKER_CONFIG: _on_cluster(UPDATE),
    RequestCode.TRIGGER_DELETE_FILES: _on_cluster(UPDATE),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _on_cluster(UPDATE),
    RequestCode.CLEAN_UNUSED_TOPIC: _on_cluster(UPDATE),
    RequestCode.DELETE_EXPIRED_COMMITLOG: _on_cluster(UPDATE),
    RequestCode.AUTH_GET_USER: _on_cluster(GET),
    RequestCode.AUTH_LIST_USER: _on_cluster(GET),
    RequestCode.AUTH_GET_ACL: _on_cluster(GET),
    RequestCode.AUTH_LIST_ACL: _on_cluster(GET),
}

SUPER_USERS = frozenset(
    {
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    }
)
"""Requests that only super users may make; so are all that stand nowhere here."""

OPEN = frozenset(
    {
        RequestCode.GANTRY_PASSED_ON,  # of the same connection alone
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,  # hints, after which a broker asks for itself
        RequestCode.GANTRY_CONSUMERS_CHANGED,
    }
)
"""Requests that need no user: nothing is believed of them."""
