"""Queue maps: which broker group holds which part of each queue of a mapped topic (ADR 0072).

A mapped topic has a fixed number of queues, numbered from 0. Each is a row of *segments*: a broker
group holds a segment as a queue of its own, and queue offsets go on from one segment to the next.
The last segment is open; its group takes new messages. A queue moves by a new segment, which begins
where the group before says that its own has ended.

Controllers keep maps, brokers act on them.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from gantry_protocol.types import Index

MAPPED: Final = "queue.map"
"""The attribute of a topic that has a map; it says ``true``."""

MAPPED_QUEUES_MAX: Final = 4096
"""Queues of a mapped topic."""

SEGMENTS_MAX: Final = 64
"""Segments of one queue that may move on."""

SEGMENTS_OF_GONE_MAX: Final = 96
"""Segments of one queue whose group is gone: until it begins anew elsewhere it takes no message."""

GAP: Final = 2**40
"""Queue offsets that are left out where a group is gone and nobody knows how far its segment went;
more messages than a queue takes in three months at 100,000 a second."""


STATIC_SINCE: Final = 412
"""The ordinal of V5_0_0_SNAPSHOT in upstream's ``MQVersion``: Java's clients from then on name a
mapped queue by its number, at whichever group."""


class Segment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of a queue, in one broker group.

    Attributes:
        group: name of the broker group; empty for a gap, which nobody has (``ended``).
        start: queue offset of its first message, or of its next one while it is empty. It ends
            where the next segment starts.
        queue_id: the queue of that group that holds it, which nothing else was ever in: the mapped
            queue's number, plus ``MAPPED_QUEUES_MAX`` for each move that the queue had before.
    """

    group: str
    start: int
    queue_id: int


class MappedQueue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One queue of a mapped topic.

    Attributes:
        segments: at least one, none starts before another that it follows; the last one is open.
            One without a message may have offsets that groups have committed. What was before the
            first one is at no group any more (``released``).
        target: the group that it is about to move to; empty while it does not move.
        moves: how often it has moved.
    """

    segments: tuple[Segment, ...]
    target: str = ""
    moves: int = 0

    @property
    def open(self) -> Segment:
        """The segment for new messages."""
        return self.segments[-1]

    @property
    def goal(self) -> str:
        """The group that it will be at once it has moved."""
        return self.target or self.open.group

    @property
    def used(self) -> tuple[Segment, ...]:
        """The segments that have or had messages, and the open one."""
        pairs = zip(self.segments, self.segments[1:], strict=False)
        closed = (segment for segment, following in pairs if segment.start < following.start)
        return (*closed, self.open)

    @property
    def is_full(self) -> bool:
        """Whether it cannot move: its segments are as many as it may have."""
        return len(self.segments) >= SEGMENTS_MAX and len(self.used) >= SEGMENTS_MAX

    def holder(self, offset: int) -> Segment:
        """The segment that has the message of this queue offset, or had it, or will have it.

        For one below them all, which was released, it is the first.
        """
        for segment in reversed(self.segments):
            if segment.start <= offset:
                return segment
        return self.segments[0]


class QueueMap(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The queues of one mapped topic.

    Attributes:
        epoch: rises with each change; what clients compare.
        changed: index in the controllers' log of the last change; what brokers compare.
        queues: by number.
    """

    epoch: int
    changed: Index
    queues: tuple[MappedQueue, ...]


def number_of(queue_id: int) -> int:
    """The mapped queue that the queue ``queue_id`` of a group holds a segment of."""
    return queue_id % MAPPED_QUEUES_MAX


def given_up(queue: MappedQueue, group: str) -> Segment | None:
    """The segment of ``group`` that others went on behind without knowing where it ends."""
    for segment, following in zip(queue.segments, queue.segments[1:], strict=False):
        if segment.group == group and following.start - segment.start >= GAP:
            return segment
    return None


def ended(queue: MappedQueue, segment: Segment, end: int) -> MappedQueue:
    """The queue once it is known where a segment ended that was given up.

    What follows up to the next segment is nobody's: a segment without a group, which readers pass
    over as they do with those of groups that are gone.
    """
    place = queue.segments.index(segment) + 1
    nobodys = Segment("", end, -1)
    return MappedQueue(
        (*queue.segments[:place], nobodys, *queue.segments[place:]), queue.target, queue.moves
    )


def moved(queue: MappedQueue, number: int, end: int) -> MappedQueue:
    """The queue ``number`` after its open segment has ended at ``end`` and its target's begins.

    A segment without a message stays too, for offsets that were committed there. Where there would
    be too many the oldest such one goes.
    """
    assert queue.target
    assert end >= queue.open.start
    moves = queue.moves + 1
    begun = Segment(queue.target, end, number + MAPPED_QUEUES_MAX * moves)
    after = MappedQueue((*queue.segments, begun), "", moves)
    if len(after.segments) > SEGMENTS_MAX and len(after.used) < len(after.segments):
        used = set(after.used)
        unused = next(segment for segment in after.segments if segment not in used)
        kept = tuple(segment for segment in after.segments if segment != unused)
        after = MappedQueue(kept, "", moves)
    return after


def released(queue: MappedQueue, group: str, queue_id: int, least: int) -> MappedQueue:
    """The queue without its first segment, if ``group`` has nothing of that any more.

    Args:
        queue: maybe one that has lost that segment already.
        group: which holds the segment.
        queue_id: the group's own queue that is the segment.
        least: the first queue offset that the group still has in it.
    """
    first, *others = queue.segments
    is_named = (first.group, first.queue_id) == (group, queue_id)
    if not others or not is_named or least < others[0].start:
        return queue
    return _of(queue, others)


def disowned(queue: MappedQueue, group: str) -> MappedQueue:
    """The queue once ``group`` is removed with all that it held: what it has closed is nobody's."""
    if all(segment.group != group for segment in queue.segments[:-1]):
        return queue
    closed = [
        Segment("", segment.start, -1) if segment.group == group else segment
        for segment in queue.segments[:-1]
    ]
    return _of(queue, [*closed, queue.open])


def _of(queue: MappedQueue, segments: Iterable[Segment]) -> MappedQueue:
    """The queue with these segments; what is nobody's goes in front, and is joined elsewhere."""
    kept: list[Segment] = []
    for segment in segments:
        if segment.group or (kept and kept[-1].group):
            kept.append(segment)
    return MappedQueue(tuple(kept), queue.target, queue.moves)
