"""Queue maps in the state: made, changed, and told by masters where a segment ends (ADR 0072).

A queue that moves has a target. Its group's master takes no more messages for it, says where it
ends once all before is confirmed, and in that event the segment of the target begins. So a queue
has one open segment at any time, and nothing is ever behind the end of another.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gantry_protocol.codes import ResponseCode
from gantry_protocol.queue_map import (
    GAP,
    MAPPED,
    MAPPED_QUEUES_MAX,
    SEGMENTS_MAX,
    SEGMENTS_OF_GONE_MAX,
    MappedQueue,
    QueueMap,
    Segment,
    disowned,
    ended,
    given_up,
    moved,
    released,
)
from msgspec.structs import replace

from gantry_controller.metadata.candidates import Serves, candidates, may_have_queues
from gantry_controller.metadata.events import MapQueues, ReleaseSegments, SealQueues
from gantry_controller.metadata.given_up import begun_anew, is_gone
from gantry_controller.metadata.locks import owners_follow
from gantry_controller.metadata.placement import Move, place
from gantry_controller.metadata.results import Result, missing, refuse
from gantry_controller.metadata.state import BrokerGroup, MetadataState
from gantry_controller.metadata.topic_table import Topic
from gantry_controller.metadata.topics import merge_topics, not_its_master, topic_problem

_INVALID = ResponseCode.INVALID_PARAMETER
_READ_WRITE = 6


def map_queues(state: MetadataState, event: MapQueues) -> Result:
    """Makes a mapped topic, gives it more queues, or has queues move; all of it or nothing."""
    cluster, topic = event.cluster, event.topic
    serving = [group.name for group in state.serving_by_name(cluster)]
    groups = may_have_queues(state, cluster)
    known, places = state.queue_map(cluster, topic), dict(event.places)
    problem = _problem(state, event, known, groups)
    if problem is not None:
        return refuse(_INVALID, problem)
    old = () if known is None else known.queues
    queues = [_led_to(queue, places.get(number, queue.goal)) for number, queue in enumerate(old)]
    if event.given_up:
        queues = [
            begun_anew(state, cluster, queue, number) if number in places else queue
            for number, queue in enumerate(queues)
        ]
    chosen = place(
        topic,
        [number for number in range(len(old), event.queues) if number not in places],
        groups,
        state.maps_of(cluster).load + Counter(places.values()),
    )
    for number in range(len(old), event.queues):
        group = places.get(number) or chosen[number]
        moves = state.ended_maps(cluster).moves
        queues.append(MappedQueue((Segment(group, 0, number),), "", moves))
    if known is not None and tuple(queues) == known.queues:
        return Result()
    if event.owners:
        owners_follow(state, cluster, topic, _begun(old, queues))
    epoch = max(event.epoch, 1 if known is None else known.epoch + 1)
    _put(state, cluster, topic, QueueMap(epoch, state.index, tuple(queues)), serving)
    return Result(changed=True)


def seal_queues(state: MetadataState, event: SealQueues) -> Result:
    """Takes the ends of segments, which their group's master has made, and begins the next ones.

    A group that was given up and is back tells the ends of its former segments first.
    What is not about to move any more is left as it is: its master sees that in the map.
    """
    numbers = [number for number, _ in event.ends]
    reported = _reported(state, event, numbers)
    if isinstance(reported, Result):
        return reported
    group, known = reported
    if event.map_epoch not in (0, known.epoch):
        remark = f"The map of {event.topic} has changed since epoch {event.map_epoch}: look again"
        return refuse(_INVALID, remark, group)
    queues = list(known.queues)
    for number, end in sorted(event.ends):
        queue = queues[number]
        late = given_up(queue, group.name)
        if late is not None and late.start <= end < late.start + GAP:
            queues[number] = ended(queue, late, end)
            continue
        if queue.open.group != group.name or not queue.target:
            continue
        if end < queue.open.start:
            remark = f"Queue {number} of {event.topic} cannot end at {end}, before it begins"
            return refuse(_INVALID, remark, group)
        target = state.find(group.cluster, queue.target)
        is_there = target is not None and not target.retired
        queues[number] = moved(queue, number, end) if is_there else replace(queue, target="")
    if event.owners:
        owners_follow(state, group.cluster, event.topic, _begun(known.queues, queues))
    return _changed(state, event.topic, group, known, queues)


def release_segments(state: MetadataState, event: ReleaseSegments) -> Result:
    """Takes first segments out of which their group has nothing left, as its master says.

    What was released before, or is not the first segment any more, is left as it is. Offsets that
    consumer groups have committed there are the master's to hand on before.
    """
    reported = _reported(state, event, [number for number, _, _ in event.least])
    if isinstance(reported, Result):
        return reported
    group, known = reported
    queues = list(known.queues)
    for number, queue_id, least in event.least:
        queues[number] = released(queues[number], group.name, queue_id, least)
    return _changed(state, event.topic, group, known, queues)


def disown(state: MetadataState, group: BrokerGroup) -> None:
    """Has what a group that is removed held of queues be nobody's.

    Its name may come again, with other volumes: readers would wait there for ever.
    """
    for topic, known in list(state.maps_of(group.cluster).maps.items()):
        queues = [disowned(queue, group.name) for queue in known.queues]
        _changed(state, topic, group, known, queues)


def _reported(
    state: MetadataState, event: SealQueues | ReleaseSegments, numbers: Iterable[int]
) -> tuple[BrokerGroup, QueueMap] | Result:
    """The group whose master reports on queues, and their map; or the refusal."""
    group = state.find(event.cluster, event.name)
    if group is None:
        code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
        return missing(state, event, code, "Broker metadata is not existed")
    refusal = not_its_master(group, event.broker_id, event.incarnation, event.master_epoch)
    if refusal is not None:
        return refuse(*refusal, group)
    known = state.queue_map(group.cluster, event.topic)
    if known is None:
        return refuse(_INVALID, f"Topic {event.topic} has no queue map", group)
    for number in numbers:
        if not 0 <= number < len(known.queues):
            return refuse(_INVALID, f"Topic {event.topic} has no queue {number}", group)
    return group, known


def _changed(
    state: MetadataState,
    topic: str,
    group: BrokerGroup,
    known: QueueMap,
    queues: Sequence[MappedQueue],
) -> Result:
    """The map of ``topic`` has these queues now, if they are others than before."""
    if tuple(queues) == known.queues:
        return Result(group=group)
    changed = QueueMap(known.epoch + 1, state.index, tuple(queues))
    state.put_queue_map(group.cluster, topic, changed)
    return Result(group=group, changed=True)


def events_of(state: MetadataState, cluster: str, moves: Iterable[Move]) -> list[MapQueues]:
    """The events that begin ``moves``, one for each topic that still is there."""
    places: dict[str, dict[int, str]] = {}
    for move in moves:
        places.setdefault(move.topic, {})[move.queue] = move.target
    return [
        MapQueues(
            cluster=cluster,
            topic=topic,
            queues=len(state.queue_maps[cluster, topic].queues),
            places=tuple(sorted(some.items())),
        )
        for topic, some in places.items()
        if (cluster, topic) in state.queue_maps
    ]


def places_for(
    state: MetadataState,
    cluster: str,
    topic: str,
    queues: int,
    wish: Mapping[int, str],
    serves: Serves,
) -> tuple[tuple[int, str], ...]:
    """``wish``, and a group for each new queue that it does not name; who proposes the event asks.

    Whoever applies it again, after each start, need not choose then.
    """
    known, groups = state.queue_map(cluster, topic), candidates(state, cluster, serves)
    new = range(0 if known is None else len(known.queues), min(queues, MAPPED_QUEUES_MAX))
    load = state.maps_of(cluster).load + Counter(wish.values())
    chosen = (
        place(topic, [item for item in new if item not in wish], groups, load) if groups else {}
    )
    return tuple(sorted({**chosen, **wish}.items()))


def _problem(  # a table of refusals
    state: MetadataState, event: MapQueues, known: QueueMap | None, groups: list[str]
) -> str | None:
    cluster, topic = event.cluster, event.topic
    if not 1 <= event.queues <= MAPPED_QUEUES_MAX:
        return f"A mapped topic has 1 to {MAPPED_QUEUES_MAX} queues, not {event.queues}."
    problem = topic_problem(topic, Topic(event.queues, event.queues, _READ_WRITE))
    if problem is not None:
        return problem
    if not groups:
        return f"There is no broker group that serves in cluster {cluster}."
    if known is None and any(key[0] == cluster for key in state.having(topic)):
        return f"Topic {topic} exists in cluster {cluster} without a queue map; choose another name"
    if known is not None and event.queues < len(known.queues):
        return (
            f"Topic {topic} has {len(known.queues)} queues; a mapped topic cannot have fewer than "
            "it had"
        )
    for number, group in sorted(event.places):
        if not 0 <= number < event.queues:
            return f"Topic {topic} has queues 0 to {event.queues - 1}; there is no queue {number}."
        if group not in groups:
            return f"Queue {number} of {topic} cannot go to {group}: no such broker group serves."
        if known is None or number >= len(known.queues):
            continue
        queue = known.queues[number]
        is_stuck = event.given_up and is_gone(state, cluster, queue.open.group)
        most = SEGMENTS_OF_GONE_MAX if is_stuck else SEGMENTS_MAX
        if queue.open.group != group and len(queue.used) >= most:
            return (
                f"Queue {number} of {topic} has {most} segments, the most it may have; it "
                f"can move again once {_what_frees(state, cluster, queue.segments[0])}."
            )
    return None


def _what_frees(state: MetadataState, cluster: str, oldest: Segment) -> str:
    """What has to happen before the oldest segment of a queue can be released."""
    name = oldest.group
    if is_gone(state, cluster, name):
        return f"broker group {name}, which has the oldest one, is back, or was forgotten for good"
    return f"broker group {name} has deleted the oldest messages: shorten its retention if needed"


def _led_to(queue: MappedQueue, group: str) -> MappedQueue:
    """The queue on its way to ``group``; it stays if it is there."""
    return replace(queue, target="" if group == queue.open.group else group)


def _begun(
    before: Iterable[MappedQueue], after: Iterable[MappedQueue]
) -> list[tuple[Segment, Segment]]:
    """Where queues were open, and where they are now, of those that have moved."""
    pairs = zip(before, after, strict=False)  # a topic may be given more queues
    return [(old.open, new.open) for old, new in pairs if old.open != new.open]


def _put(state: MetadataState, cluster: str, topic: str, new: QueueMap, groups: list[str]) -> None:
    """Keep a map, and see to it that ``groups`` have the topic: any may be asked for it."""
    state.put_queue_map(cluster, topic, new)
    config = Topic(len(new.queues), len(new.queues), _READ_WRITE, attributes={MAPPED: "true"})
    for name in groups:
        merge_topics(state, (cluster, name), {topic: config})
