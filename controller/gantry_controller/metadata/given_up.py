"""Queues of mapped topics whose broker group is gone: they begin anew at another one (ADR 0072).

A queue moves once its master has said where it ends. The master of a group that was retired or
removed says nothing any more, and the queue would take no messages for as long as it is away. So
its next segment begins at another group, behind a gap that is larger than what any master can have
taken: what the group holds keeps its offsets, and is read there should it come back. Its master
says then where its segments ended, and the rest of the gap is nobody's.

The leader waits for ``WAIT_S`` after a group has gone. A namespace that is deleted as a whole
retires all groups in that time, and then there is none that could have the queues. It waits as well
while no other group has a living master: the gap is for good, and the group may be back first.
"""

from collections.abc import Iterator

from gantry_protocol.queue_map import GAP, SEGMENTS_OF_GONE_MAX, MappedQueue, disowned, moved

from gantry_controller.metadata.candidates import Serves, living
from gantry_controller.metadata.events import MapQueues
from gantry_controller.metadata.placement import place
from gantry_controller.metadata.state import BrokerGroup, GroupKey, MetadataState

WAIT_S = 10.0
LOOK_EVERY_S = 1.0
QUEUES_AT_ONCE = 4096


def is_gone(state: MetadataState, cluster: str, name: str) -> bool:
    """Whether nobody is sent to a broker group: it was retired or removed."""
    group = state.find(cluster, name)
    return group is None or group.retired


def begun_anew(state: MetadataState, cluster: str, queue: MappedQueue, number: int) -> MappedQueue:
    """The queue at its target if the group that has it is gone; otherwise as it is."""
    if not queue.target or not is_gone(state, cluster, queue.open.group):
        return queue
    anew = moved(queue, number, queue.open.start + GAP)
    is_removed = state.find(cluster, queue.open.group) is None
    return disowned(anew, queue.open.group) if is_removed else anew


class GoneGroups:
    """The events that give queues of gone groups a place; the leader proposes them.

    Args:
        state: of the quorum.
        serves: whether a group has a living master.
    """

    def __init__(
        self, state: MetadataState, serves: Serves = lambda group: group.had_master
    ) -> None:
        self._state = state
        self._serves = serves
        self._since_s: dict[GroupKey, float] = {}
        self._next_look_s = float("-inf")

    def began(self) -> None:
        """This node leads now, or did not listen: nothing that was seen before counts."""
        self._since_s.clear()

    def applied(self, group: BrokerGroup) -> None:
        """A group has changed. If it is back, it is not gone for long however soon it goes again.

        Its master serves once it is back, and is to know that it is gone before its queues are at
        another group.
        """
        if not (group.removed or group.retired):
            self._since_s.pop(group.key, None)

    def due(self, now_s: float) -> list[MapQueues]:
        """The events to propose now; empty most of the time."""
        if now_s < self._next_look_s:
            return []
        self._next_look_s = now_s + LOOK_EVERY_S
        seen_s, self._since_s = self._since_s, {}
        for key in self._gone():
            self._since_s[key] = seen_s.get(key, now_s)
        due = {key for key, since_s in self._since_s.items() if now_s - since_s >= WAIT_S}
        events: list[MapQueues] = []
        for cluster in sorted({key[0] for key in due}):
            events += self._events(cluster, {name for place, name in due if place == cluster})
        return events

    def _gone(self) -> Iterator[GroupKey]:
        """The groups that have queues, and are gone."""
        for cluster in sorted({key[0] for key in self._state.queue_maps}):
            for name in self._state.maps_of(cluster).held:
                if is_gone(self._state, cluster, name):
                    yield cluster, name

    def _events(self, cluster: str, names: set[str]) -> Iterator[MapQueues]:
        """One for each topic that has queues at ``names``, for a bounded number of queues."""
        maps = self._state.maps_of(cluster)
        groups = living(self._state, cluster, self._serves)
        load = maps.load.copy()
        given = 0
        for topic in sorted(maps.maps) if groups else ():
            queues = maps.maps[topic].queues
            stuck = [
                number
                for number, queue in enumerate(queues)
                if queue.open.group in names and len(queue.used) < SEGMENTS_OF_GONE_MAX
            ]
            if not stuck:
                continue
            places = {number: queues[number].target for number in stuck}
            homeless = [number for number in stuck if places[number] not in groups]
            places |= place(topic, homeless, groups, load)
            load.update(places[number] for number in homeless)
            yield MapQueues(
                cluster=cluster,
                topic=topic,
                queues=len(queues),
                places=tuple(sorted(places.items())),
                given_up=True,
                owners=True,
            )
            given += len(stuck)
            if given >= QUEUES_AT_ONCE:
                return
