"""The place where a request about a queue of a mapped topic is served: decisions over a map.

A client names a queue by its number in the topic. What a group holds is a queue of its own with
another id, as the map says, and queue offsets are the same everywhere.

Clients that know static topics (Java from 5.0 on) see one row of queues for the whole cluster. All
others see as many queues at each group that has the topic: of those they are given the segments
that this very group holds, so that each message is seen at one group, and what they send goes to a
queue that this group takes messages for.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from gantry_protocol.command import RemotingCommand
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, STATIC_SINCE, QueueMap, Segment, number_of

PHYSICAL = "gantryPhysical"
"""In a request's fields: its queue id is that of a group's own queue, by the map of this epoch."""

AS_NEWEST = "gantryAsNewest"
"""In a question from group to group: by the map of who asks, the queue takes messages there."""

IF_NONE_KEPT = "gantryIfNoneKept"
"""In a commit from group to group: it counts only where the consumer group has no offset."""

AS_POPPED = "gantryAsPopped"
"""In what is asked and told from group to group: of a consumer group that pops, in a segment."""


class Here(NamedTuple):
    """Served by this group, as its own queue ``queue_id``."""

    queue_id: int


class There(NamedTuple):
    """Served by another group, as its own queue ``queue_id``."""

    group: str
    queue_id: int


class Wait(NamedTuple):
    """The queue moves: nothing is said before it has."""


class Moved(NamedTuple):
    """Nothing more is there below the queue offset ``next_offset``."""

    next_offset: int


class Nowhere(NamedTuple):
    """There is no such queue, or this group takes no messages for the topic."""

    is_unknown: bool


SendPlace: TypeAlias = Here | There | Wait | Nowhere
ReadPlace: TypeAlias = Here | There | Moved | Nowhere


def knows_static_topics(request: RemotingCommand) -> bool:
    """Whether a client sees one row of queues for the whole cluster."""
    return request.language == "JAVA" and request.version >= STATIC_SINCE


def open_here(queues: QueueMap, group: str) -> list[int]:
    """The numbers of the queues that ``group`` takes messages for now, ascending."""
    return [
        number
        for number, queue in enumerate(queues.queues)
        if queue.open.group == group and not queue.target
    ]


def came_here(queues: QueueMap, group: str) -> list[int]:
    """The queues of ``group`` that take messages of a mapped queue which was elsewhere before."""
    opens = (queue.open for queue in queues.queues)
    return [
        segment.queue_id
        for segment in opens
        if segment.group == group and segment.queue_id >= MAPPED_QUEUES_MAX
    ]


def place_of_send(
    queues: QueueMap, group: str, number: int, *, is_static: bool, turn: int
) -> SendPlace:
    """The place of a message that ``group`` was sent.

    Args:
        queues: of the topic.
        group: this one.
        number: of the queue; any below 0 leaves the choice to the broker.
        is_static: see ``knows_static_topics``.
        turn: rises from send to send.
    """
    if number >= len(queues.queues):
        return Nowhere(is_unknown=True)
    if number >= 0 and (is_static or queues.queues[number].open.group == group):
        queue = queues.queues[number]
        if queue.open.group != group:
            return There(queue.open.group, queue.open.queue_id)
        return Wait() if queue.target else Here(queue.open.queue_id)
    here = open_here(queues, group)
    if here:
        chosen = here[(number if number >= 0 else turn) % len(here)]
        return Here(queues.queues[chosen].open.queue_id)
    if is_static:
        queue = queues.queues[turn % len(queues.queues)]
        return Wait() if queue.open.group == group else There(queue.open.group, queue.open.queue_id)
    if any(queue.open.group == group for queue in queues.queues):
        return Wait()
    return Nowhere(is_unknown=False)


def place_of_read(
    queues: QueueMap,
    group: str,
    number: int,
    offset: int,
    *,
    is_static: bool,
    is_gone: Callable[[str], bool] = lambda group: False,
) -> ReadPlace:
    """The place at which a client of ``group`` reads the message of a queue offset.

    Args:
        queues: of the topic.
        group: this one.
        number: of the queue.
        offset: of the message.
        is_static: see ``knows_static_topics``.
        is_gone: whether a group was retired or removed; its messages are passed over.
    """
    if not 0 <= number < len(queues.queues):
        return Nowhere(is_unknown=True)
    queue = queues.queues[number]
    if is_static:
        if offset < queue.segments[0].start:
            return Moved(queue.segments[0].start)
        holder = queue.holder(offset)
        if is_gone(holder.group) and holder != queue.open:
            behind = queue.segments[queue.segments.index(holder) + 1 :]
            return Moved(next(one.start for one in behind if one.start > offset))
        if holder.group == group:
            return Here(holder.queue_id)
        return There(holder.group, holder.queue_id)
    segments = queue.used
    own = [place for place, segment in enumerate(segments) if segment.group == group]
    if not own:
        return Here(number)  # which never had a message
    held = [place for place in own if segments[place].start <= offset] or own[:1]
    last = held[-1]
    is_over = last + 1 < len(segments) and offset >= segments[last + 1].start
    if is_over and last != own[-1]:
        return Moved(segments[own[own.index(last) + 1]].start)
    return Here(segments[last].queue_id)


def end_of(queues: QueueMap, group: str, queue_id: int) -> Moved | Wait | None:
    """The end of what ``group`` has of a mapped queue as its own queue ``queue_id``.

    ``Moved`` is where the queue goes on elsewhere. ``Wait``: its end is about to be told, and may
    have been. None: it takes messages, or is not in this map.
    """
    number = number_of(queue_id)
    queue = queues.queues[number] if number < len(queues.queues) else None
    for place, segment in enumerate(queue.segments if queue is not None else ()):
        if queue is not None and (segment.group, segment.queue_id) == (group, queue_id):
            behind = queue.segments[place + 1 :]
            if behind:
                return Moved(behind[0].start)
            return Wait() if queue.target else None
    return None


def place_of_commit(
    queues: QueueMap, group: str, number: int, *, is_static: bool
) -> Here | There | Wait | Nowhere:
    """The place at which ``group`` is told how far a consumer group has come in a queue.

    It is where messages are taken: of two places that take commits, nobody knows which is newer.
    """
    seen = segments_seen(queues, group, number, is_static=is_static, unused=True)
    if not seen:
        return Nowhere(is_unknown=True)
    if seen[-1].group != group:
        return There(seen[-1].group, seen[-1].queue_id)
    is_moving = is_static and queues.queues[number].target
    return Wait() if is_moving else Here(seen[-1].queue_id)


def segments_seen(
    queues: QueueMap, group: str, number: int, *, is_static: bool, unused: bool = False
) -> Sequence[Segment]:
    """The segments of a queue that a client of ``group`` sees, in order; none: no such queue.

    Args:
        queues: of the topic.
        group: this one.
        number: of the queue.
        is_static: see ``knows_static_topics``.
        unused: also those that never had a message, where offsets may have been committed.
    """
    if not 0 <= number < len(queues.queues):
        return ()
    queue = queues.queues[number]
    segments = queue.segments if unused else queue.used
    if is_static:
        return segments
    own = [segment for segment in segments if segment.group == group]
    return own or (Segment(group, 0, number),)


class Earlier(NamedTuple):
    """A closed segment, and where it ended."""

    segment: Segment
    end: int


class Part(NamedTuple):
    """A segment of a queue that a group holds.

    Attributes:
        queue_id: of the group's own queue that it is.
        start: its first offset.
        end: where it ended; None: it takes messages.
        before: all earlier segments of the queue, in order.
    """

    queue_id: int
    start: int
    end: int | None
    before: tuple[Earlier, ...]

    @property
    def with_messages(self) -> list[Earlier]:
        """The earlier segments that have, or had, a message."""
        return [item for item in self.before if item.segment.start < item.end]


def parts_held(queues: QueueMap, group: str) -> dict[int, list[Part]]:
    """The segments that ``group`` holds, by the number of their queue, the oldest one first."""
    found: dict[int, list[Part]] = {}
    for number, queue in enumerate(queues.queues):
        ends = [following.start for following in queue.segments[1:]]
        closed = tuple(map(Earlier, queue.segments, ends))
        for place, segment in enumerate(queue.segments):
            if segment.group == group:
                end = ends[place] if place < len(ends) else None
                part = Part(segment.queue_id, segment.start, end, closed[:place])
                found.setdefault(number, []).append(part)
    return found
