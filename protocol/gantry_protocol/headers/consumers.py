"""Headers for subscription groups and for consumers, at the controllers."""

import msgspec

from gantry_protocol.command import Int64
from gantry_protocol.headers.controller import WireBrokerId, WireEpoch


class SubscriptionGroupRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """Codes 200 and 201. ``broker_name`` (extension) None means every group."""

    cluster_name: str | None = None
    broker_name: str | None = None


class SubscriptionsVersionHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The controllers' answer about subscription groups: the table's version (extension)."""

    subscriptions_version: Int64 | None = None


class ReportConsumersRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ReportConsumers (31001). The sender must be the master, by all three, when it is applied."""

    cluster_name: str
    broker_name: str
    broker_id: WireBrokerId
    master_epoch: WireEpoch
    incarnation: str = ""


class GetConsumersRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetConsumers (31002). ``consumer_group`` None means all."""

    broker_name: str
    cluster_name: str | None = None
    consumer_group: str | None = None
