"""Committed offsets in closed segments of a group that is drained, handed on before it goes.

Once the group is retired nobody can ask it: a consumer group that has read here, and has no offset
where the queue is now, would begin at the end there. So each offset is handed on as it is
(``handed_on``), and the drain waits until all are known elsewhere. What could not be handed on is
tried again with the next look, after all that was not tried yet.
"""

from collections import deque

from gantry_protocol.queue_map import MAPPED, Segment, number_of

from gantry_broker.clients.core.drain import OffsetLeft
from gantry_broker.clients.mapped.handed_on import ASKED_MAX, Closed, HandedOffset
from gantry_broker.clients.view import GroupView
from gantry_broker.store.tables.resets import is_mark

_Row = tuple[str, str, int]  # consumer group, topic, queue of this group


class HandingOver:
    """See the module; of one mastership.

    Args:
        view: the group.
    """

    def __init__(self, view: GroupView) -> None:
        """Nothing is handed on before ``look``."""
        self._view = view
        self._settled: set[_Row] = set()
        self._failed: dict[_Row, None] = {}  # who was tried last is at the end
        self._is_busy = False
        self._closed = False

    def close(self) -> None:
        """The mastership is over: what is under way is the last."""
        self._closed = True

    def look(self) -> list[OffsetLeft]:
        """The offsets that are not known elsewhere yet; a round goes through them, if none does."""
        left, wanted = self._left()
        if wanted and not self._is_busy and not self._closed:
            self._is_busy = True
            later = [wanted[row] for row in self._failed if row in wanted]
            first = [item for row, item in wanted.items() if row not in self._failed]
            self._hand_on(deque([*first, *later]), set())
        return left

    def _left(self) -> tuple[list[OffsetLeft], dict[_Row, HandedOffset]]:
        left: list[OffsetLeft] = []
        wanted: dict[_Row, HandedOffset] = {}
        rows: set[_Row] = set()
        for group, topic, queue_id, offset in self._view.store.committed.all():
            if is_mark(group) or not self._is_mapped(topic):
                continue
            row = (group, topic, queue_id)
            rows.add(row)
            if row in self._settled:
                continue
            place = self._place(topic, queue_id)
            if isinstance(place, Closed):
                wanted[row] = HandedOffset(group, topic, place, offset)
                left.append(OffsetLeft(group, topic, self._open(topic, place.number)))
            elif place is None:
                left.append(OffsetLeft(group, topic, ""))
        self._settled &= rows
        self._failed = {row: None for row in self._failed if row in wanted}
        return left, wanted

    def _is_mapped(self, topic: str) -> bool:
        config = self._view.store.topics.lookup(topic)
        return config is not None and MAPPED in config.attributes

    def _place(self, topic: str, queue_id: int) -> Closed | Segment | None:
        """The closed segment of a queue of this group, or the open one.

        One that was released is of no interest any more: it is told as the open one. None: the
        queue is about to move, or it is not known yet whether it has.
        """
        book, number = self._view.queues, number_of(queue_id)
        queues = book.of(topic)
        if queues is None or not book.maps.is_known_to(self._view.broker_name):
            return None
        if number >= len(queues.queues):
            return Segment(self._view.broker_name, 0, queue_id)
        queue = queues.queues[number]
        for segment, behind in zip(queue.segments, queue.segments[1:], strict=False):
            if (segment.group, segment.queue_id) == (self._view.broker_name, queue_id):
                return Closed(number, segment, behind.start)
        is_here = (queue.open.group, queue.open.queue_id) == (self._view.broker_name, queue_id)
        return None if is_here and queue.target else queue.open

    def _open(self, topic: str, number: int) -> str:
        """The group that has a queue now; empty: the topic is gone."""
        queues = self._view.queues.of(topic)
        if queues is None or number >= len(queues.queues):
            return ""
        return queues.queues[number].open.group

    def _hand_on(self, wanted: deque[HandedOffset], silent: set[str]) -> None:
        """The next few, then those that are left.

        Args:
            wanted: all of the round that were not tried yet.
            silent: groups that did not take one: the rest of theirs waits for the next round.
        """
        due: list[tuple[HandedOffset, str]] = []
        while wanted and len(due) < ASKED_MAX:
            item = wanted.popleft()
            to = self._open(item.topic, item.closed.number)
            if to and to not in silent:
                due.append((item, to))
        if not due or self._closed:
            self._is_busy = False
            return

        def done(failed: list[HandedOffset]) -> None:
            for item, to in due:
                row = (item.group, item.topic, item.closed.segment.queue_id)
                self._failed.pop(row, None)
                if item in failed:
                    self._failed[row] = None
                    silent.add(to)
                else:
                    self._settled.add(row)
            self._hand_on(wanted, silent)

        self._view.queues.handed_on.hand_on([item for item, _ in due], done)
