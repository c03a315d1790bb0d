"""The queue maps of one cluster, as look-ups need them; derived from the state."""

from collections import Counter
from collections.abc import Iterator

import msgspec
from gantry_protocol.queue_map import QueueMap
from gantry_protocol.types import Index


class EndedMaps(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The mapped topics of a cluster that were deleted.

    Attributes:
        index: in the log, of the last deletion.
        moves: no queue of theirs has moved more often. Those of a topic that is made now count on
            from here: a group's own queue of a deleted topic keeps its offsets, and its id must
            not come again for a segment that begins elsewhere.
    """

    index: Index = Index(0)
    moves: int = 0


class ClusterMaps(msgspec.Struct):
    """The queue maps of one cluster.

    Attributes:
        maps: by topic, in the order of their last change.
        load: how many queues each group has, or will have once those that move have moved.
        held: how many queues each group has now.
        longest: by topic, the most segments that one of its queues has.
    """

    maps: dict[str, QueueMap] = {}
    load: Counter[str] = msgspec.field(default_factory=Counter)
    held: Counter[str] = msgspec.field(default_factory=Counter)
    longest: dict[str, int] = {}

    def put(self, topic: str, new: QueueMap | None) -> None:
        """The map of ``topic`` is now this one; None: it has none any more."""
        old = self.maps.pop(topic, None)
        self.longest.pop(topic, None)
        if old is not None:
            self.load.subtract(queue.goal for queue in old.queues)
            self.held.subtract(queue.open.group for queue in old.queues)
        if new is not None:
            self.maps[topic] = new
            self.longest[topic] = max(len(queue.segments) for queue in new.queues)
            self.load.update(queue.goal for queue in new.queues)
            self.held.update(queue.open.group for queue in new.queues)
        self.load += Counter()  # drops what is 0
        self.held += Counter()

    @property
    def most_segments(self) -> int:
        """The most segments that a queue has."""
        return max(self.longest.values(), default=0)

    def since(self, index: Index) -> Iterator[tuple[str, QueueMap]]:
        """The maps that changed after ``index``, the last one first."""
        for topic in reversed(self.maps):
            item = self.maps[topic]
            if item.changed <= index:
                return
            yield topic, item
