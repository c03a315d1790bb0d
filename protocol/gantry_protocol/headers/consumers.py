"""Headers for subscription groups and for consumers, at the controllers."""

from typing import Annotated

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


class ReportLocksRequestHeader(ReportConsumersRequestHeader, frozen=True, rename="camel"):
    """ReportLocks (31011). ``serial`` rises with each report of one master."""

    serial: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = 1


class GetLocksRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetLocks (31012): the owners of a broker group's queues."""

    broker_name: str
    cluster_name: str | None = None


class GetConsumersRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetConsumers (31002). ``consumer_group`` None means all."""

    broker_name: str
    cluster_name: str | None = None
    consumer_group: str | None = None


class GetChangedConsumersRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetChangedConsumers (31007): what changed after ``since``, or a page of the whole.

    Attributes:
        cluster_name: whose consumers.
        since: as the last answer said; 0 for whoever knows nothing.
        after: likewise; None unless the last answer was a part of the whole and not its end.
    """

    cluster_name: str
    since: Int64 = 0
    after: str | None = None


class ConsumersChangedHeader(msgspec.Struct, frozen=True, rename="camel"):
    """ConsumersChanged (31008, oneway): a reason to ask for the changes now."""

    cluster_name: str
