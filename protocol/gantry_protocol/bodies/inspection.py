"""Bodies of what administrators look at: queues, rates, producers, subscriptions; lists of changes.

Upstream: ``QueryConsumeQueueResponseBody``, ``BrokerStatsData``, ``ProducerTableInfo``,
``QueryConsumeTimeSpanBody``, ``QuerySubscriptionResponseBody``, ``GroupForbidden``,
``CreateTopicListRequestBody``, ``SubscriptionGroupList``, ``CheckRocksdbCqWriteResult``.
"""

from typing import Any

import msgspec

from gantry_protocol.bodies.client import MessageQueue, SubscriptionData, SubscriptionGroupConfig
from gantry_protocol.bodies.codec import Body
from gantry_protocol.bodies.route import TopicConfig


class QueueEntry(Body, frozen=True):
    """One message in 321: where its record is, and the hash of its tag."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = False


class QueueEntries(Body, frozen=True, omit_defaults=True):
    """QueryConsumeQueue (321). ``filter_data`` says why there is no subscription."""

    queue_data: list[QueueEntry]
    max_queue_index: int
    min_queue_index: int
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class StatsItem(Body, frozen=True):
    """A sum and its rate per second over one window; ``avgpt`` is the mean of each."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStats(Body, frozen=True):
    """ViewBrokerStatsData (315)."""

    stats_minute: StatsItem
    stats_hour: StatsItem
    stats_day: StatsItem


class ProducerInfo(Body, frozen=True):
    """One client in 328."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: int
    last_update_timestamp: int


class ProducerTable(Body, frozen=True):
    """GetAllProducerInfo (328): clients by producer group."""

    data: dict[str, list[ProducerInfo]]


class QueueTimeSpan(Body, frozen=True):
    """One queue in 303; times in ms since 1970, -1 for that of no message."""

    message_queue: MessageQueue
    min_time_stamp: int
    max_time_stamp: int
    consume_time_stamp: int
    delay_time: int = 0


class TimeSpans(Body, frozen=True):
    """QueryConsumeTimeSpan (303)."""

    consume_time_span_set: list[QueueTimeSpan]


class GroupSubscription(Body, frozen=True, omit_defaults=True):
    """QuerySubscriptionByConsumer (345)."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


class GroupForbidden(Body, frozen=True):
    """UpdateAndGetGroupForbidden (353)."""

    topic: str
    group: str
    readable: bool


class TopicConfigList(Body, frozen=True):
    """UpdateAndCreateTopicList (18)."""

    topic_config_list: list[TopicConfig]


class SubscriptionGroupList(Body, frozen=True):
    """UpdateAndCreateSubscriptionGroupList (225)."""

    group_config_list: list[SubscriptionGroupConfig]


class QueueCheck(Body, frozen=True):
    """CheckRocksdbCqWriteProgress (354)."""

    check_status: int
    check_result: str


class RequestModes(Body, frozen=True):
    """GetAllMessageRequestMode (402): by topic and group."""

    message_request_mode_map: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)


class DelayOffsets(Body, frozen=True):
    """GetAllDelayOffset (45): how far each level has been delivered."""

    offset_table: dict[int, int]
