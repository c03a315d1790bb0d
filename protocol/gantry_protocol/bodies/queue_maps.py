"""Bodies about queue maps: of Gantry's requests, and of upstream's for static topics (RIP-21)."""

from typing import Final

import msgspec

from gantry_protocol.bodies.codec import Body
from gantry_protocol.queue_map import QueueMap

SCOPE: Final = "__global__"


class QueueMaps(Body, frozen=True):
    """The answer to GetQueueMaps (31013).

    Attributes:
        index: what to name as known in the next question.
        ended: likewise; above the asked one when a mapped topic was deleted since.
        is_all: maps that are known and not told again, now or in the next answers, are no more.
        more: another question is answered at once.
        maps: those that changed, by topic.
        masters: by broker group of the cluster, where its master is; empty while there is none.
    """

    index: int
    ended: int
    is_all: bool = False
    more: bool = False
    maps: dict[str, QueueMap] = msgspec.field(default_factory=dict)
    masters: dict[str, str] = msgspec.field(default_factory=dict)


class QueuePlaces(Body, frozen=True):
    """The body of MapQueues (31014): broker groups by number of the queue."""

    places: dict[int, str] = msgspec.field(default_factory=dict)


class QueueEnds(Body, frozen=True):
    """The body of SealQueues (31015): queue offsets by number of the queue."""

    ends: dict[int, int]


class LeastOffsets(Body, frozen=True):
    """The body of ReleaseSegments (31016).

    Attributes:
        least: by number of the mapped queue, the group's own queue that is the segment, and the
            first queue offset that the group still has in it.
    """

    least: dict[int, tuple[int, int]]


class StaticQueueItem(msgspec.Struct, frozen=True, rename="camel"):
    """Upstream's ``LogicQueueMappingItem``: a segment of a queue."""

    gen: int
    queue_id: int
    bname: str
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


class StaticQueuesOfGroup(msgspec.Struct, frozen=True, rename="camel"):
    """Upstream's ``TopicQueueMappingInfo`` in routes; with items ``TopicQueueMappingDetail``.

    Attributes:
        curr_id_map: the queues that the group takes messages for, to the ids of its own queues.
        hosted_queues: by queue, its segments; in the latter only.
    """

    topic: str
    total_queues: int
    bname: str
    epoch: int
    scope: str = SCOPE
    dirty: bool = False
    curr_id_map: dict[int, int] = msgspec.field(default_factory=dict)
    hosted_queues: dict[int, list[StaticQueueItem]] | msgspec.UnsetType = msgspec.UNSET


def static_queues(topic: str, queues: QueueMap, group: str) -> StaticQueuesOfGroup:
    """The queues that ``group`` takes messages for, as routes say it."""
    return StaticQueuesOfGroup(
        topic=topic,
        total_queues=len(queues.queues),
        bname=group,
        epoch=queues.epoch,
        curr_id_map={
            number: number  # clients look at the keys
            for number, queue in enumerate(queues.queues)
            if queue.open.group == group
        },
    )
