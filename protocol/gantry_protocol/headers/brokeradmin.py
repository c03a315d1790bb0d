"""Headers of the admin tool's calls to brokers (and, for topics, to the controller).

Upstream: ``org.apache.rocketmq.remoting.protocol.header``.
"""

import msgspec

from gantry_protocol.command import Int32, Int64
from gantry_protocol.headers.controller import WireBrokerId, WireEpoch


class CreateTopicRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """UpdateAndCreateTopic (17). ``broker_name`` None means every group of the cluster (extension).

    With ``if_absent`` (extension) a topic that exists stays as it is: a broker that makes a topic
    for a send does not know yet what somebody else has just made it to be.
    """

    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    default_topic: str | None = None
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: str | None = None
    # extension
    broker_name: str | None = None
    cluster_name: str | None = None
    if_absent: bool = False


class CreateTopicResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The controller's answer to UpdateAndCreateTopic: the table's version (extension)."""

    topics_version: Int64 | None = None


class GetAllTopicConfigRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetAllTopicConfig (21); upstream sends no field, our brokers name their group (extension)."""

    cluster_name: str | None = None
    broker_name: str | None = None


class ReportTopicsRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ReportTopics (31009): a part of the topics in the log of an adopted group's master.

    The sender must be the master, by all three, when it is applied. ``more``: further parts follow.
    """

    cluster_name: str
    broker_name: str
    broker_id: WireBrokerId
    master_epoch: WireEpoch
    incarnation: str = ""
    more: bool = False


class DeleteTopicRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """DeleteTopicInBroker (215)."""

    topic: str
    cluster_name: str | None = None
    broker_name: str | None = None


class TopicRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetTopicStatsInfo (202), QueryTopicConsumeByWho (300) and GetTopicConfig (351)."""

    topic: str


class GetConsumeStatsRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetConsumeStats (208)."""

    consumer_group: str
    topic: str | None = None


class GetProducerConnectionListRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetProducerConnectionList (204)."""

    producer_group: str


class QueryTopicsByConsumerRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """QueryTopicsByConsumer (343) and GetSubscriptionGroupConfig (352)."""

    group: str


class QueryMessageRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """QueryMessage (12). ``index_type`` of newer clients: ``U`` for unique keys, ``K`` for keys."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool = msgspec.field(name="_UNIQUE_KEY_QUERY", default=False)
    index_type: str | None = None


class QueryMessageResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to QueryMessage; both fields are always there."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


RESET_QUEUES = "gantryQueues"
"""In the answer to a reset that is a request: the queues in which it is carried out, ever."""


class ResetOffsetRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """InvokeBrokerToResetOffset (222). ``timestamp`` -1 is the end, ``queue_id`` -1 all queues.

    ``request`` is Gantry's: a number that rises; each queue carries each request out once.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = False
    queue_id: Int32 = -1
    offset: Int64 | None = None
    # extension
    request: Int64 | None = msgspec.field(name="gantryRequest", default=None)


class DeleteSubscriptionGroupRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """DeleteSubscriptionGroup (207)."""

    group_name: str
    clean_offset: bool = False
    # extension
    cluster_name: str | None = None
    broker_name: str | None = None


class GetConsumerRunningInfoRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetConsumerRunningInfo (307); passed on to the client as it came."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ConsumeMessageDirectly (309); ``msg_id`` is an offset id of this broker."""

    consumer_group: str
    client_id: str
    msg_id: str
    broker_name: str | None = None


class TopicAndGroupRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """QueryConsumeTimeSpan (303), QuerySubscriptionByConsumer (345); with ``readable`` 353."""

    topic: str
    group: str
    readable: bool | None = None


class GetConsumerStatusRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """InvokeBrokerToGetConsumerStatus (223). ``client_addr`` is a client id; None means all."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumeStatsInBrokerRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetBrokerConsumeStats (317)."""

    is_order: bool = False


class ViewBrokerStatsDataRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ViewBrokerStatsData (315)."""

    stats_name: str
    stats_key: str


class QueryConsumeQueueRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """QueryConsumeQueue (321)."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class CloneGroupOffsetRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """CloneGroupOffset (314). Without a topic all of the source group's are meant."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
