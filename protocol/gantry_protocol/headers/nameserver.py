"""Headers of the name service: codes 1xx, 2xx and 9xx on port 9876.

Upstream: ``org.apache.rocketmq.remoting.protocol.header.namesrv``. Only headers with fields are
listed; 106, 206, 304 and the unit topic lists carry none.
"""

import msgspec

from gantry_protocol.command import Int32, Int64


class GetRouteInfoRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetRouteInfoByTopic (105)."""

    topic: str
    accept_standard_json_only: bool = False


class RegisterBrokerRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """RegisterBroker (103), from brokers of the old kind; ``body_crc32`` 0 means unchecked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    ha_server_addr: str | None = None
    heartbeat_timeout_ms: Int64 | None = msgspec.field(name="heartbeatTimeoutMillis", default=None)
    enable_acting_master: bool = False
    compressed: bool = False
    body_crc32: Int32 = 0


class RegisterBrokerResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """Both fields only for a broker that is not the master, when a master is alive."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """UnregisterBroker (104); also the header of 322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class GetBrokerMemberGroupRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetBrokerMemberGroup (901)."""

    cluster_name: str
    broker_name: str


class GetKVConfigRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetKvConfig (101) and DeleteKvConfig (102)."""

    namespace: str
    key: str


class PutKVConfigRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """PutKvConfig (100)."""

    namespace: str
    key: str
    value: str


class GetKVConfigResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetKvConfig (101)."""

    value: str | None = None


class GetKVListByNamespaceRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetKvListByNamespace (219)."""

    namespace: str


class GetTopicsByClusterRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetTopicsByCluster (224)."""

    cluster: str


class DeleteTopicFromNamesrvRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """DeleteTopicInNamesrv (216)."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """RegisterTopicInNamesrv (217)."""

    topic: str


class WritePermOfBrokerRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """WipeWritePermOfBroker (205) and AddWritePermOfBroker (327).

    ``cluster_name`` is an extension, for a name that several clusters have.
    """

    broker_name: str
    cluster_name: str | None = None


class WipeWritePermOfBrokerResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """WipeWritePermOfBroker (205)."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerResponseHeader(msgspec.Struct, frozen=True, rename="camel"):
    """AddWritePermOfBroker (327)."""

    add_topic_count: Int32
