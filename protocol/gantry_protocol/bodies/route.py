"""Bodies of the name service: routes, clusters, topics.

Upstream: ``TopicRouteData``, ``ClusterInfo``, ``TopicList``, ``TopicConfig``, ``DataVersion``,
``KVTable``. Broker ids are quoted keys, which every client reads.
"""

from typing import Any

import msgspec

from gantry_protocol.bodies.codec import Body

PERM_PRIORITY = 8
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1
MASTER_ID = 0  # clients write to broker 0 only


class QueueData(Body, frozen=True):
    """One group's queues of a topic."""

    broker_name: str
    perm: int
    read_queue_nums: int
    write_queue_nums: int
    topic_sys_flag: int = 0


class BrokerData(Body, frozen=True, omit_defaults=True):
    """One group's addresses."""

    broker_addrs: dict[int, str]
    broker_name: str
    cluster: str
    enable_acting_master: bool = False
    zone_name: str | None = None


class MappedQueuesOfGroup(Body, frozen=True):
    """The part of upstream's ``TopicQueueMappingInfo`` that readers of routes look at.

    Attributes:
        total_queues: of the topic, in the whole cluster.
        curr_id_map: the numbers of those that the group takes messages for are its keys.
    """

    total_queues: int = 0
    curr_id_map: dict[int, int] = msgspec.field(default_factory=dict)


class TopicRouteData(Body, frozen=True, omit_defaults=True):
    """GetRouteInfoByTopic (105)."""

    broker_datas: list[BrokerData]
    queue_datas: list[QueueData]
    filter_server_table: dict[str, list[str]]
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, MappedQueuesOfGroup] | None = None


class TopicQueues(Body, frozen=True):
    """RegisterTopicInNamesrv (217): the part of a ``TopicRouteData`` that counts."""

    queue_datas: list[QueueData] = msgspec.field(default_factory=list)


class ClusterInfo(Body, frozen=True):
    """GetBrokerClusterInfo (106)."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


class TopicList(Body, frozen=True, omit_defaults=True):
    """A list of topics: codes 206, 224, 304, 311, 312, 313 and 343."""

    topic_list: list[str]
    broker_addr: str | None = None


class KVTable(Body, frozen=True):
    """Texts by name: GetKvListByNamespace (219), 28 and the answer to RegisterBroker (103)."""

    table: dict[str, str]


class DataVersion(Body, frozen=True):
    """Equality, not order, tells whether something changed."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


class TopicConfig(Body, frozen=True):
    """GetTopicConfig (351), and the values of topic tables."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class TopicConfigTable(Body, frozen=True, omit_defaults=True):
    """GetAllTopicConfig (21). ``data_version`` is a broker's, ``topics_version`` a controller's.

    Attributes:
        topics_since: the version at which each topic was created (ours): one that was deleted and
            created again looks as before, and is another.
    """

    topic_config_table: dict[str, TopicConfig]
    data_version: DataVersion | None = None
    topics_version: int | None = None
    topics_since: dict[str, int] | None = None


class TopicConfigSerializeWrapper(Body, frozen=True):
    """The topics in a broker's registration; static topics are carried, not understood."""

    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion = DataVersion()
    topic_queue_mapping_detail_map: dict[str, Any] = msgspec.field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, Any] = msgspec.field(default_factory=dict)


class RegisterBrokerBody(Body, frozen=True):
    """RegisterBroker (103)."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = msgspec.field(default_factory=list)
