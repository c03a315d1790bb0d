"""The share of a new broker group in the queues of mapped topics (ADR 0072).

A group that comes into a cluster with mapped topics is written down as a newcomer, with its topics
(``newcomers``). Once its first master lives the leader has queues move to it, topic by topic, and
strikes it off when it has had its share. So a leader that dies in between leaves the rest to its
successor, and a group that somebody empties later stays empty.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from gantry_protocol.queue_map import QueueMap

from gantry_controller.metadata.candidates import had_masters
from gantry_controller.metadata.events import Event, MapQueues, TakeShare
from gantry_controller.metadata.placement import Move, weight
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, GroupKey, MetadataState

ANSWERED_WITHIN_S = 10.0  # what was proposed is applied by then, or was given up
QUEUES_AT_ONCE = 4096  # looked at in a turn, about 10 ms of work; at least one topic


def take_share(state: MetadataState, event: TakeShare) -> Result:
    """Strikes a newcomer off; a late or repeated event changes nothing."""
    key = (event.cluster, event.name)
    if key not in state.newcomers:
        return Result()
    state.put_plain("newcomers", key, None)
    return Result(changed=True)


class Share:
    """The queues that one newcomer is to be given, topic by topic.

    After each topic it has one in ``groups`` of all queues that were looked at, rounded down. So it
    is given at most that part of all, and of each large topic about as much as of the others.

    Args:
        newcomer: name of the group.
        groups: the number of groups that may have queues and had a master, the newcomer included.
        load: how many queues each has now.
    """

    def __init__(self, newcomer: str, groups: int, load: Counter[str]) -> None:
        self._newcomer = newcomer
        self._groups = groups
        self._load = load.copy()
        self._seen = 0  # queues of the topics that were looked at
        self._has = 0  # of these, those that it has or is given

    def of(self, topic: str, queues: QueueMap) -> list[Move]:
        """The queues of the next topic that it is given: from those who have most."""
        self._seen += len(queues.queues)
        at: dict[str, list[int]] = {}
        for number, queue in enumerate(queues.queues):
            if queue.goal == self._newcomer:
                self._has += 1
            elif not queue.target and not queue.is_full:
                at.setdefault(queue.goal, []).append(number)
        for numbers in at.values():
            numbers.sort(key=lambda number: (weight(self._newcomer, topic, number), number))
        moves: list[Move] = []
        while at and self._has < self._seen // self._groups:
            most = max(at, key=lambda group: (self._load[group], group))
            moves.append(Move(topic, at[most].pop(), most, self._newcomer))
            if not at[most]:
                del at[most]
            self._load[most] -= 1
            self._has += 1
        return moves


class Shares:
    """The events that give newcomers their share; the leader proposes them.

    Args:
        state: of the quorum.
        has_living_master: whether the process that was elected lives, as this node knows.
    """

    def __init__(
        self, state: MetadataState, has_living_master: Callable[[BrokerGroup], bool]
    ) -> None:
        self._state = state
        self._has_living_master = has_living_master
        self._under_way: tuple[GroupKey, Iterator[list[Event]]] | None = None
        self._said_all_s = 0.0

    def began(self) -> None:
        """This node leads now, or did not listen: what it had proposed may have come to nothing."""
        self._under_way = None

    def due(self, now_s: float) -> list[Event]:
        """The events to propose now; empty most of the time. One newcomer after the other."""
        if self._under_way is not None and self._under_way[0] not in self._state.newcomers:
            self._under_way = None
        if self._under_way is None:
            key = next(filter(self._is_ready, sorted(self._state.newcomers)), None)
            if key is None:
                return []
            self._under_way = key, self._events(key)
        events = next(self._under_way[1], [])
        if events:
            self._said_all_s = now_s
        elif now_s - self._said_all_s > ANSWERED_WITHIN_S:
            self._under_way = None
        return events

    def _is_ready(self, key: GroupKey) -> bool:
        """Whether the group has its master, or will have none and is to be struck off."""
        group = self._state.groups[key]
        return self._is_out(group) or self._has_living_master(group)

    def _is_out(self, group: BrokerGroup) -> bool:
        return group.removed or group.retired or group.key in self._state.drains

    def _events(self, key: GroupKey) -> Iterator[list[Event]]:
        """What is to be proposed in each turn, the last time that the share was given."""
        cluster, name = key
        maps = self._state.maps_of(cluster)
        share = Share(name, len(had_masters(self._state, cluster)), maps.load)
        events: list[Event] = []
        looked_at = 0
        for topic in sorted(maps.maps):
            if self._is_out(self._state.groups[key]):
                break
            queues = self._state.queue_map(cluster, topic)  # as it is by now
            if queues is None:
                continue
            moves = share.of(topic, queues)
            if moves:
                places = tuple(sorted((move.queue, name) for move in moves))
                events.append(
                    MapQueues(
                        cluster=cluster, topic=topic, queues=len(queues.queues), places=places
                    )
                )
            looked_at += len(queues.queues)
            if looked_at >= QUEUES_AT_ONCE:
                yield events
                events, looked_at = [], 0
        yield [*events, TakeShare(cluster=cluster, name=name)]
