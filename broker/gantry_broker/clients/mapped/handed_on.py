"""Committed offsets of closed segments that are about to go, handed on to who has the queue.

What a consumer group commits stays where the queue was then, and is looked for back through the
segments. Without its last segment a group that pauses would be unknown, and begin at the end. So
each offset is looked for in the later segments, and where none has one, it is committed where the
queue is now, unless the group has done so itself meanwhile (``IF_NONE_KEPT``). A segment that is
to be released is settled once every group with an offset there is known to have a later one. A
group that is drained hands all of its own on (``handing_over``).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.headers.client import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.queue_map import Segment
from gantry_protocol.remoting.asking import Outcome

from gantry_broker.clients.mapped.maps import ClusterMaps
from gantry_broker.clients.mapped.masters import OtherMasters
from gantry_broker.clients.mapped.places import IF_NONE_KEPT, PHYSICAL
from gantry_broker.clients.view import GroupView
from gantry_broker.store.tables.resets import is_mark

ASKED_MAX = 64  # questions under way
CALL_TIMEOUT_S = 2.0

Commit = Callable[[str, str, int, int], bool]


class Closed(NamedTuple):
    """A segment of a queue, which its group holds, and where it ended."""

    number: int
    segment: Segment
    end: int


class HandedOffset(NamedTuple):
    """An offset of a consumer group that is to be known in a later segment."""

    group: str
    topic: str
    closed: Closed
    offset: int


class _Few:
    """Some offsets that are asked about at once; ``done`` comes when all are answered."""

    def __init__(self, count: int, failed: list[HandedOffset], done: Callable[[], None]) -> None:
        self._left = count
        self._failed = failed
        self._done = done

    def kept(self) -> None:
        """One is known in a later segment, for good."""
        self._left -= 1
        if not self._left:
            self._done()

    def failed(self, wanted: HandedOffset) -> None:
        """This one is not, or nobody can say."""
        self._failed.append(wanted)
        self.kept()


class HandedOn:
    """See the module.

    Args:
        view: the group, whose master this is.
        maps: of its cluster.
        masters: of its other groups.
        commit: remembers a consumer group's position here: group, topic, queue id, offset.
    """

    def __init__(
        self, view: GroupView, maps: ClusterMaps, masters: OtherMasters, commit: Commit
    ) -> None:
        self._view = view
        self._maps = maps
        self._masters = masters
        self._commit = commit

    def settle(
        self, topic: str, closed: Sequence[Closed], done: Callable[[set[int]], None]
    ) -> None:
        """Hand on what was committed in these; ``done`` comes once, with the queues settled."""
        by_id = {item.segment.queue_id: item for item in closed}
        wanted = [
            HandedOffset(group, topic, by_id[queue_id], max(offset, by_id[queue_id].end))
            for group, queue_id, offset in self._view.store.committed.of_queues(topic, by_id)
            if not is_mark(group)
        ]
        numbers = {item.number for item in closed}
        self.hand_on(wanted, lambda failed: done(numbers - {item.closed.number for item in failed}))

    def hand_on(
        self, wanted: Sequence[HandedOffset], done: Callable[[list[HandedOffset]], None]
    ) -> None:
        """Have offsets known in later segments; ``done`` comes once, with those that are not."""
        self._hand_on_all(wanted, [], done)

    def _hand_on_all(
        self,
        wanted: Sequence[HandedOffset],
        failed: list[HandedOffset],
        done: Callable[[list[HandedOffset]], None],
    ) -> None:
        """The next few, all at once; then those that are left."""
        some, others = wanted[:ASKED_MAX], wanted[ASKED_MAX:]
        if not some:
            done(failed)
            return

        def go_on() -> None:
            asyncio.get_running_loop().call_soon(self._hand_on_all, others, failed, done)

        few = _Few(len(some), failed, go_on)
        for item in some:
            behind = self._behind(item)
            if behind:
                self._look_back(item, behind, few)
            else:
                few.failed(item)

    def _behind(self, item: HandedOffset) -> list[Segment]:
        """The segments behind this one that somebody can be asked about; none: look again."""
        queues, (number, closed, _) = self._maps.of(item.topic), item.closed
        if queues is None or number >= len(queues.queues):
            return []
        segments = queues.queues[number].segments
        if closed not in segments[:-1]:
            return []
        behind = segments[segments.index(closed) + 1 : -1]
        return [
            *(segment for segment in behind if not self._maps.is_gone(segment.group)),
            segments[-1],
        ]

    def _look_back(self, item: HandedOffset, segments: list[Segment], few: _Few) -> None:
        """The last segment first; where none knows the group, the offset goes to where it is."""
        if not segments:
            self._hand_on(item, few)
            return
        *before, last = segments
        if last.group == self._view.broker_name:
            key = (item.group, item.topic, last.queue_id)
            offset = self._view.store.committed.query(*key)
            if offset is None:
                self._look_back(item, before, few)
            elif self._view.store.committed.must_write(*key):
                self._commit(*key, offset)  # it is in the log soon
                few.failed(item)
            else:
                few.kept()
            return
        header = QueryConsumerOffsetRequestHeader(item.group, item.topic, last.queue_id, False)

        def told(outcome: Outcome) -> None:
            if _code(outcome) == ResponseCode.QUERY_NOT_FOUND:
                self._look_back(item, before, few)
            elif _code(outcome) == ResponseCode.SUCCESS:
                few.kept()
            else:
                few.failed(item)

        ext = {**to_ext(header), PHYSICAL: self._epoch(item.topic)}
        command = request(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        self._masters.ask(last.group, command, told, CALL_TIMEOUT_S)

    def _hand_on(self, item: HandedOffset, few: _Few) -> None:
        queues = self._maps.of(item.topic)
        if queues is None or item.closed.number >= len(queues.queues):
            few.failed(item)
            return
        place = queues.queues[item.closed.number].open
        if place.group == self._view.broker_name:
            self._commit(item.group, item.topic, place.queue_id, item.offset)
            few.failed(item)  # the next round sees whether it is in the log
            return
        header = UpdateConsumerOffsetRequestHeader(
            item.group, item.topic, place.queue_id, item.offset
        )

        def told(outcome: Outcome) -> None:
            if _code(outcome) == ResponseCode.SUCCESS:
                few.kept()
            else:
                few.failed(item)

        ext = {**to_ext(header), PHYSICAL: self._epoch(item.topic), IF_NONE_KEPT: "true"}
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        self._masters.ask(place.group, command, told, CALL_TIMEOUT_S)

    def _epoch(self, topic: str) -> str:
        queues = self._maps.of(topic)
        return str(0 if queues is None else queues.epoch)


def _code(outcome: Outcome) -> int | None:
    return outcome.code if isinstance(outcome, RemotingCommand) else None
