"""Bodies of requests about lite topics, and of their answers.

Upstream: ``LiteSubscriptionDTO``, ``OffsetOption``, ``LiteSubscriptionCtlRequestBody``,
``GetBrokerLiteInfoResponseBody``, ``GetParentTopicInfoResponseBody``,
``GetLiteTopicInfoResponseBody``, ``GetLiteClientInfoResponseBody``.
"""

import msgspec

from gantry_protocol.bodies.codec import Body

PARTIAL_ADD, PARTIAL_REMOVE = "PARTIAL_ADD", "PARTIAL_REMOVE"
COMPLETE_ADD, COMPLETE_REMOVE = "COMPLETE_ADD", "COMPLETE_REMOVE"
POLICY, OFFSET, TAIL_N, TIMESTAMP = "POLICY", "OFFSET", "TAIL_N", "TIMESTAMP"
POLICY_LAST, POLICY_MIN, POLICY_MAX = range(3)


class OffsetOption(Body, frozen=True):
    """The place where a client that subscribes wants to begin."""

    type: str
    value: int = 0


class LiteSubscription(Body, frozen=True):
    """A client's wish to subscribe to more lite topics, or less.

    Attributes:
        action: ``PARTIAL_ADD``, ``PARTIAL_REMOVE``, ``COMPLETE_ADD`` or ``COMPLETE_REMOVE``.
        client_id: the client.
        group: its consumer group.
        topic: the parent.
        lite_topic_set: names of lite topics.
        offset_option: where to begin in those that are added.
        version: of the client's set; nothing depends on it.
    """

    action: str
    client_id: str
    group: str
    topic: str
    lite_topic_set: list[str] | None = None
    offset_option: OffsetOption | None = None
    version: int = 0


class LiteSubscriptions(Body, frozen=True):
    """LiteSubscriptionCtl (200071)."""

    subscription_set: list[LiteSubscription]


class BrokerLiteInfo(Body, frozen=True):
    """GetBrokerLiteInfo (200074): figures of a broker group."""

    store_type: str
    max_lmq_num: int
    current_lmq_num: int
    lite_subscription_count: int
    order_info_count: int
    cq_table_size: int
    offset_table_size: int
    event_map_size: int
    topic_meta: dict[str, int]
    group_meta: dict[str, list[str]]


class ParentTopicInfo(Body, frozen=True):
    """GetParentTopicInfo (200075)."""

    topic: str
    ttl: int
    groups: list[str]
    lmq_num: int
    lite_topic_count: int


class ClientGroup(Body, frozen=True):
    """A client of a group."""

    client_id: str
    group: str


class LiteOffsets(Body, frozen=True):
    """Upstream's ``TopicOffset``."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


class LiteTopicInfo(Body, frozen=True):
    """GetLiteTopicInfo (200076)."""

    parent_topic: str
    lite_topic: str
    subscriber: list[ClientGroup]
    topic_offset: LiteOffsets
    sharding_to_broker: bool


class LiteClientInfo(Body, frozen=True):
    """GetLiteClientInfo (200077)."""

    parent_topic: str
    group: str
    client_id: str
    last_access_time: int
    last_consume_time: int
    lite_topic_count: int
    lite_topic_set: list[str] = msgspec.field(default_factory=list)
