"""Bodies between clients and brokers: sessions, subscriptions, groups, locks.

Upstream: ``HeartbeatData``, ``SubscriptionData``, ``SubscriptionGroupConfig``,
``ConsumerConnection``, ``LockBatchRequestBody``. Clients of different age and language send
different subsets; everything that has a sensible default has it.
"""

from typing import Any

import msgspec

from gantry_protocol.bodies.codec import Body
from gantry_protocol.bodies.route import DataVersion

CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
CLUSTERING = "CLUSTERING"
BROADCASTING = "BROADCASTING"
CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageQueue(Body, frozen=True, order=True):
    """A queue of a topic on one group; also the key of some maps."""

    broker_name: str
    queue_id: int
    topic: str


class SubscriptionData(Body, frozen=True):
    """The subscription of one consumer group to one topic."""

    topic: str
    sub_string: str = "*"
    tags_set: list[str] = msgspec.field(default_factory=list)
    code_set: list[int] = msgspec.field(default_factory=list)
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body, frozen=True):
    """One producer group of a client."""

    group_name: str


class ConsumerData(Body, frozen=True):
    """One consumer group of a client."""

    group_name: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = msgspec.field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Body, frozen=True):
    """Heartbeat (34). ``without_sub`` comes only from clients that were told of heartbeat v2."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = msgspec.field(default_factory=list)
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class CheckClientRequestBody(Body, frozen=True):
    """CheckClientConfig (46)."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


class ConsumerIdList(Body, frozen=True):
    """GetConsumerListByGroup (38)."""

    consumer_id_list: list[str]


class LockBatchBody(Body, frozen=True):
    """LockBatchMQ (41) and UnlockBatchMQ (42)."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue]
    only_this_broker: bool = False


class LockedQueues(Body, frozen=True):
    """The answer to LockBatchMQ: the queues that the caller owns now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet")


class SubscriptionGroupConfig(Body, frozen=True):
    """A subscription group's settings (codes 200, 201, 352); defaults are upstream's."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "CUSTOMIZED"}
    )
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class SubscriptionGroupTable(Body, frozen=True):
    """GetAllSubscriptionGroupConfig (201)."""

    subscription_group_table: dict[str, SubscriptionGroupConfig]
    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)


class ClientConnection(Body, frozen=True):
    """One client in a list of connections."""

    client_id: str
    client_addr: str
    language: str
    version: int


class ProducerConnections(Body, frozen=True):
    """GetProducerConnectionList (204)."""

    connection_set: list[ClientConnection]


class ConsumerConnections(Body, frozen=True):
    """GetConsumerConnectionList (203)."""

    connection_set: list[ClientConnection]
    subscription_table: dict[str, SubscriptionData]
    consume_type: str
    message_model: str
    consume_from_where: str


class GroupList(Body, frozen=True):
    """QueryTopicConsumeByWho (300)."""

    group_list: list[str]


class ConsumerOffsets(Body, frozen=True):
    """GetAllConsumerOffset (43): ``topic@group`` to offsets by queue id."""

    offset_table: dict[str, dict[int, int]]
