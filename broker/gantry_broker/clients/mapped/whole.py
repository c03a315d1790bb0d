"""Queues of mapped topics as one row of offsets each, for tools that add up what all groups say.

The group that takes a queue's messages tells of all of it: where it begins, though another group
has its oldest segment, and how far a consumer group is, though that has committed elsewhere last.
No other group tells of it, so each queue counts once. What nobody can read, since its group is
gone, does not count.

A consumer group without members may be known only where its queue was. Then the one that has its
newest offset tells of the queue, and no other. Consumer groups whose members see each broker
group's own part are left as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.headers.client import QueryConsumerOffsetRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.queue_map import MappedQueue, Segment, number_of
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import Handler
from msgspec.structs import replace

from gantry_broker.clients.mapped.places import PHYSICAL, STATIC_SINCE
from gantry_broker.clients.mapped.requests import MappedRequests
from gantry_broker.clients.sessions import ConsumerGroup
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueKey

ASKED_MAX = 64  # questions under way for one answer
CALL_TIMEOUT_S = 2.0

Place = tuple[str, int]
"""A topic, and the number of one of its queues."""

Found = dict[Place, int]
"""Offsets; what nobody could say is not there."""


class WholeQueues:
    """See the module.

    Args:
        view: the group.
        requests: reach the other segments.
        handlers: of the questions about this group's own.
    """

    def __init__(
        self, view: GroupView, requests: MappedRequests, handlers: dict[int, Handler]
    ) -> None:
        self._view = view
        self._requests = requests
        self._handlers = handlers

    def taken(self, topic: str) -> dict[int, Segment] | None:
        """The queues that this group takes messages for, and where; None: the topic has no map."""
        queues = self._view.queues.of(topic)
        if queues is None:
            return None
        return {
            number: queue.open
            for number, queue in enumerate(queues.queues)
            if queue.open.group == self._view.broker_name
        }

    def is_seen_by(self, group: ConsumerGroup | None) -> bool:
        """Whether a consumer group reads whole queues; one without members is taken to."""
        members = () if group is None else group.members.values()
        return all(
            member.language == "JAVA" and member.version >= STATIC_SINCE for member in members
        )

    def positions(
        self,
        connection: Connection,
        group: str,
        places: Sequence[Place],
        done: Callable[[Found, Found], None],
    ) -> None:
        """The place where a consumer group goes on in queues in which it committed nothing here.

        ``done`` is told what it has committed at other groups, and else where a queue begins.
        """
        older = [place for place in places if self._has_older(place)]

        def committed(found: Found) -> None:
            others = [place for place in older if place not in found]
            self.beginnings(connection, others, lambda more: done(found, more))

        self._ask(connection, RequestCode.QUERY_CONSUMER_OFFSET, group, older, {}, committed)

    def beginnings(
        self, connection: Connection, places: Sequence[Place], done: Callable[[Found], None]
    ) -> None:
        """The first offsets of queues that have more segments than that for new messages."""
        older = [place for place in places if self._has_older(place)]
        self._ask(connection, RequestCode.GET_MIN_OFFSET, "", older, {}, done)

    def left_behind(
        self,
        connection: Connection,
        group: str,
        rows: Mapping[QueueKey, int],
        done: Callable[[Found, Found], None],
    ) -> None:
        """Queues that have left, and in which a consumer group has committed here last.

        ``done`` is told what it has committed, and where these queues end.

        Args:
            connection: of who asks.
            group: of consumers.
            rows: what it has committed here.
            done: is told.
        """
        newest: dict[Place, int] = {}  # the group's own queue
        for topic, queue_id in rows:
            place = (topic, number_of(queue_id))
            queue = self._queue(place)
            if queue is not None and queue.open.group != self._view.broker_name:
                newest[place] = max(queue_id, newest.get(place, queue_id))
        behind: Found = {}

        def looked() -> None:
            places = list(behind)
            self._ask(
                connection,
                RequestCode.GET_MAX_OFFSET,
                "",
                places,
                {},
                lambda ends: done(behind, ends),
            )

        self._look_on(group, rows, list(newest.items()), behind, looked)

    def _look_on(
        self,
        group: str,
        rows: Mapping[QueueKey, int],
        wanted: list[tuple[Place, int]],
        behind: Found,
        done: Callable[[], None],
    ) -> None:
        """Keep in ``behind`` what is committed nowhere later; some at once, then the others."""
        some, others = wanted[:ASKED_MAX], wanted[ASKED_MAX:]
        if not some:
            done()
            return
        left = len(some)

        def answered(place: Place, queue_id: int, *, is_last: bool) -> None:
            nonlocal left
            left -= 1
            if is_last:
                behind[place] = rows[place[0], queue_id]
            if not left:
                self._look_on(group, rows, others, behind, done)

        for place, queue_id in some:
            later = list(self._view.queues.later(place[0], queue_id))
            self._look_later(group, place, later, partial(answered, place, queue_id))

    def _look_later(
        self, group: str, place: Place, segments: list[Segment], answered: Callable[..., None]
    ) -> None:
        """Whether none of these groups, the last one first, has an offset of a consumer group."""
        if not segments:
            answered(is_last=True)
            return
        *before, last = segments
        topic = place[0]
        header = QueryConsumerOffsetRequestHeader(group, topic, last.queue_id, False)

        def told(outcome: Outcome) -> None:
            is_missing = isinstance(outcome, RemotingCommand) and (
                outcome.code == ResponseCode.QUERY_NOT_FOUND
            )
            if is_missing:
                self._look_later(group, place, before, answered)
            else:
                answered(is_last=False)

        ext = {**to_ext(header), PHYSICAL: str(self._view.queues.epoch_of(topic))}
        command = request(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        self._view.queues.masters.ask(last.group, command, told, CALL_TIMEOUT_S)

    def left_out(self, place: Place, offset: int) -> int:
        """The number of offsets from ``offset`` on that nobody can read: their groups are gone."""
        queue = self._queue(place)
        if queue is None:
            return 0
        pairs = zip(queue.segments, queue.segments[1:], strict=False)
        return sum(
            max(0, following.start - max(offset, segment.start))
            for segment, following in pairs
            if self._view.queues.maps.is_gone(segment.group)
        )

    def _queue(self, place: Place) -> MappedQueue | None:
        topic, number = place
        queues = self._view.queues.of(topic)
        return None if queues is None or number >= len(queues.queues) else queues.queues[number]

    def _has_older(self, place: Place) -> bool:
        queue = self._queue(place)
        return queue is not None and len(queue.segments) > 1

    def _ask(
        self,
        connection: Connection,
        code: RequestCode,
        group: str,
        places: list[Place],
        found: Found,
        done: Callable[[Found], None],
    ) -> None:
        """Some at once; then those that are left, unless somebody did not answer."""
        some, others = places[:ASKED_MAX], places[ASKED_MAX:]
        if not some:
            done(found)
            return
        left, is_silent = len(some), False

        def answered(place: Place, answer: RemotingCommand) -> None:
            nonlocal left, is_silent
            left -= 1
            if answer.code == ResponseCode.SUCCESS:
                found[place] = int((answer.ext or {})["offset"])
            is_silent |= answer.code == ResponseCode.SYSTEM_BUSY
            if not left:
                self._ask(connection, code, group, [] if is_silent else others, found, done)

        for place in some:
            self._ask_one(connection, code, group, place, answered)

    def _ask_one(
        self,
        connection: Connection,
        code: RequestCode,
        group: str,
        place: Place,
        answered: Callable[[Place, RemotingCommand], None],
    ) -> None:
        ext = {
            "topic": place[0],
            "queueId": str(place[1]),
            "consumerGroup": group,
            "setZeroIfNotFound": "false",
        }
        command = replace(request(code, ext), language="JAVA", version=STATIC_SINCE)
        self._requests.ask(
            connection, command, self._handlers[code], lambda answer: answered(place, answer)
        )
