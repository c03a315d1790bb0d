"""Headers for subscription groups at the controllers, and for 31001 and 31002, which are ours."""

import msgspec

from gantry_protocol.command import Int64
from gantry_protocol.headers.controller import WireBrokerId, WireEpoch


class SubscriptionGroupRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """200 and 201; upstream sends no field. ``broker_name`` None means every group (extension)."""

    cluster_name: str | None = None
    broker_name: str | None = None


class SubscriptionsVersionHeader(msgspec.Struct, frozen=True, rename="camel"):
    """Answer to 200, 201 and 207 of the controllers: the version of the table (extension)."""

    subscriptions_version: Int64 | None = None


class ReportConsumersRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """31001: the three that say that the sender is the master must be true when it is applied."""

    cluster_name: str
    broker_name: str
    broker_id: WireBrokerId
    master_epoch: WireEpoch
    incarnation: str = ""


class GetConsumersRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """31002. ``consumer_group`` None means all."""

    broker_name: str
    cluster_name: str | None = None
    consumer_group: str | None = None
