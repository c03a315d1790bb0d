"""Queues of mapped topics leave broker groups that are drained (ADR 0072).

The leader proposes the moves for as long as a queue is, or is to be, at such a group. So what was
refused, or what an earlier leader did not come to, is proposed again, and nobody needs to ask.
Queues go to groups with a living master, and wait while there is none: a master that is told of a
target takes no more messages.
"""

from collections import Counter
from collections.abc import Iterator

from gantry_controller.metadata.candidates import Serves, living
from gantry_controller.metadata.events import MapQueues
from gantry_controller.metadata.placement import place
from gantry_controller.metadata.state import GroupKey, MetadataState

AGAIN_AFTER_S = 10.0  # what was proposed is applied by then, or was given up
QUEUES_AT_ONCE = 4096  # looked at in a turn, about 10 ms of work; at least one topic


class DrainedGroups:
    """The events that have queues leave drained groups; the leader proposes them.

    Args:
        state: of the quorum.
        serves: whether a group has a living master.
    """

    def __init__(self, state: MetadataState, serves: Serves) -> None:
        self._state = state
        self._serves = serves
        self._turns: Iterator[list[MapQueues]] | None = None  # of the round under way
        self._looked_at: set[GroupKey] = set()  # groups of the last round
        self._again_s = float("-inf")

    def began(self) -> None:
        """This node leads now, or did not listen: what it had proposed may have come to nothing."""
        self._turns = None
        self._looked_at.clear()

    def due(self, now_s: float) -> list[MapQueues]:
        """The events to propose now; empty most of the time. A round takes many turns."""
        if self._turns is None:
            groups = self._with_queues()
            self._looked_at &= groups
            if groups == self._looked_at and (not groups or now_s < self._again_s):
                return []
            self._looked_at = groups
            self._turns = self._round()
        events = next(self._turns, None)
        if events is None:
            self._turns = None
            self._again_s = now_s + AGAIN_AFTER_S
        return events or []

    def _with_queues(self) -> set[GroupKey]:
        """The drained groups that have queues, or are to have some."""
        return {key for key in self._state.drains if self._state.maps_of(key[0]).load[key[1]]}

    def _round(self) -> Iterator[list[MapQueues]]:
        """What is to be proposed in each turn, until all topics were looked at."""
        for cluster in sorted({cluster for cluster, _ in self._looked_at}):
            load = self._state.maps_of(cluster).load.copy()
            topics = sorted(self._state.maps_of(cluster).maps)
            while topics:
                yield list(self._turn(cluster, topics, load))

    def _turn(self, cluster: str, topics: list[str], load: Counter[str]) -> Iterator[MapQueues]:
        """The events for the last few of ``topics``, which are taken off."""
        groups = living(self._state, cluster, self._serves)
        looked_at = 0
        while topics and looked_at < QUEUES_AT_ONCE:
            topic = topics.pop()
            known = self._state.queue_map(cluster, topic)  # as it is by now
            if known is None:
                continue
            looked_at += len(known.queues)
            homeless = [
                number
                for number, queue in enumerate(known.queues)
                if (cluster, queue.goal) in self._state.drains
                and not queue.is_full  # one would hold up all others
            ]
            if not homeless or not groups:
                continue
            places = place(topic, homeless, groups, load)
            load.update(places.values())
            yield MapQueues(
                cluster=cluster,
                topic=topic,
                queues=len(known.queues),
                places=tuple(sorted(places.items())),
            )
