"""Headers of the requests about queue maps that brokers send to controllers."""

import msgspec

from gantry_protocol.command import Int32, Int64
from gantry_protocol.headers.controller import WireBrokerId, WireEpoch

WAIT_MAX_MS = 5_000


class GetQueueMapsRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GetQueueMaps (31013): what changed in the queue maps of a cluster.

    Attributes:
        cluster_name: whose maps.
        known_index: of the last answer; 0 at first.
        known_ended: likewise.
        wait_ms: how long an answer without news may wait, at most ``WAIT_MAX_MS``.
    """

    cluster_name: str
    known_index: Int64 = 0
    known_ended: Int64 = 0
    wait_ms: Int32 = 0


class MapQueuesRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """MapQueues (31014): makes or changes the queue map of a topic; the body has the places."""

    cluster_name: str
    topic: str
    queues: Int32
    epoch: Int64 = 0


class QueueReportRequestHeader(msgspec.Struct, frozen=True, rename="camel"):
    """A master's report on queues of a mapped topic.

    The sender must be the master, by all three, when it is applied.
    """

    cluster_name: str
    broker_name: str
    broker_id: WireBrokerId
    master_epoch: WireEpoch
    topic: str
    incarnation: str = ""


class SealQueuesRequestHeader(QueueReportRequestHeader, frozen=True):
    """SealQueues (31015): where segments of queues that move end; the body has the ends.

    ``map_epoch`` is of the map by which the master acts; 0: an older one's, who does not say.
    """

    map_epoch: Int64 = 0


class ReleaseSegmentsRequestHeader(QueueReportRequestHeader, frozen=True):
    """ReleaseSegments (31016): segments of which nothing is left; the body names them."""
