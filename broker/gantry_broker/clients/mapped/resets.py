"""Offset resets of mapped topics: where they are kept, and the offsets that other segments know.

A reset is kept where the group's clients commit: in this group's newest segment of a queue. Where
that segment takes messages, the offset for a time may be in an older one, at another group, and is
asked for there. Elsewhere only older clients commit, and they see this group's own segments.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.command import request as new_request
from gantry_protocol.queue_map import STATIC_SINCE, Segment
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import Handler
from msgspec.structs import replace

from gantry_broker.clients.mapped.places import segments_seen
from gantry_broker.clients.mapped.requests import MappedRequests
from gantry_broker.clients.reset_plan import QueueNow, Wish, unknown_group
from gantry_broker.clients.sessions import ConsumerGroup
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueOffsets, Refusal

ASKED_MAX = 64  # questions under way for one reset

_BY_TIME, _MINIMUM = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MIN_OFFSET
_COMMITTED = RequestCode.QUERY_CONSUMER_OFFSET
UNSETTLED = Refusal(
    ResponseCode.SYSTEM_BUSY, "no offset is reset: queues of the topic move, try again in a moment"
)

Found = dict[tuple[int, RequestCode], int]
"""Offsets by the number of a queue and the question; what was not found is not there."""


class Reset(NamedTuple):
    """A reset of one consumer group in a mapped topic.

    Attributes:
        group: the consumer group.
        topic: its name.
        wish: of the administrator.
        is_known: whether this broker group has heard of the consumer group.
    """

    group: str
    topic: str
    wish: Wish
    is_known: bool


class MappedResets:
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

    def places(self, topic: str, numbers: Sequence[int]) -> dict[int, Segment] | Refusal:
        """The segment that keeps a reset of each queue, by the queue's number."""
        queues, here = self._view.queues.of(topic), self._view.broker_name
        if queues is None or not self._view.queues.maps.is_known_to(here):
            return UNSETTLED
        found = {}
        for number in numbers:
            seen = segments_seen(queues, here, number, is_static=False, unused=True)
            if not seen or (queues.queues[number].target and queues.queues[number].open in seen):
                return UNSETTLED  # what its next master is told, and what is said here, may differ
            found[number] = seen[-1]
        return found

    def leads(self, group: ConsumerGroup | None, topic: str, number: int) -> bool:
        """Whether a reset that is kept here may lead those away who read here.

        Clients that know static topics read old segments on their way from a reset that is kept
        elsewhere. To be led on would have them pass messages over.
        """
        if self._view.queues.of(topic) is None or self._is_open(topic, number):
            return True
        members = () if group is None else group.members.values()
        return any(member.language != "JAVA" or member.version < STATIC_SINCE for member in members)

    def complete(
        self,
        connection: Connection,
        reset: Reset,
        own: dict[int, tuple[Segment, QueueOffsets]],
        done: Callable[[dict[int, QueueNow] | Refusal], None],
    ) -> None:
        """The queues as they are, all their segments counted; ``done`` comes once.

        Args:
            connection: of the administrator.
            reset: the wish.
            own: for each queue the segment that keeps the reset, and what this group knows of it.
            done: is told.
        """

        def learned(found: Found | Refusal) -> None:
            if isinstance(found, Refusal):
                done(found)
                return
            if not reset.is_known and all(code != _COMMITTED for _, code in found):
                done(unknown_group(reset.group))
                return
            done({number: self._now(reset, number, *own[number], found) for number in own})

        codes = [code for code, is_asked in _questions(reset).items() if is_asked]
        several = [number for number in own if self._has_more(reset.topic, number)]
        self._ask(connection, reset, list(product(several, codes)), {}, learned)

    def _has_more(self, topic: str, number: int) -> bool:
        """Whether a client that commits here reads older segments, too."""
        queues, here = self._view.queues.of(topic), self._view.broker_name
        is_open = self._is_open(topic, number)
        return queues is not None and (
            len(segments_seen(queues, here, number, is_static=is_open, unused=True)) > 1
        )

    def _is_open(self, topic: str, number: int) -> bool:
        queues = self._view.queues.of(topic)
        return queues is not None and queues.queues[number].open.group == self._view.broker_name

    def _now(
        self, reset: Reset, number: int, segment: Segment, queue: QueueOffsets, found: Found
    ) -> QueueNow:
        """A queue as it is; a segment without a message ends where it starts."""
        minimum = max(queue.min_offset, segment.start)
        maximum = max(queue.max_offset, segment.start)
        at_time = found.get((number, _BY_TIME), queue.found or 0)
        if (number, _BY_TIME) in found:
            minimum = min(minimum, at_time)
        queues, is_open = self._view.queues.of(reset.topic), self._is_open(reset.topic, number)
        begins_here = queues is not None and (
            queues.queues[number].segments[0].group == self._view.broker_name
        )
        return QueueNow(
            minimum=min(minimum, found.get((number, _MINIMUM), minimum)),
            maximum=maximum,
            at_time=at_time,
            committed=found.get((number, _COMMITTED)),
            has_before=not (is_open or begins_here),
            goes_on=not is_open,
        )

    def _ask(
        self,
        connection: Connection,
        reset: Reset,
        questions: list[tuple[int, RequestCode]],
        found: Found,
        done: Callable[[Found | Refusal], None],
    ) -> None:
        """Some at once; then those that are left, unless one was refused."""
        some, others = questions[:ASKED_MAX], questions[ASKED_MAX:]
        left = len(some)
        refusals: list[Refusal] = []

        def answered(place: tuple[int, RequestCode], answer: RemotingCommand) -> None:
            nonlocal left
            left -= 1
            if answer.code == ResponseCode.SUCCESS:
                found[place] = int((answer.ext or {})["offset"])
            elif answer.code != ResponseCode.QUERY_NOT_FOUND:
                remark = f"no offset is reset: queue {place[0]}: {answer.remark}"
                refusals.append(Refusal(ResponseCode.SYSTEM_BUSY, remark))
            if left:
                return
            if refusals or not others:
                done(refusals[0] if refusals else found)
            else:
                loop = asyncio.get_running_loop()
                loop.call_soon(self._ask, connection, reset, others, found, done)

        if not some:
            done(found)
        for place in some:
            self._ask_one(connection, reset, place, answered)

    def _ask_one(
        self,
        connection: Connection,
        reset: Reset,
        place: tuple[int, RequestCode],
        answered: Callable[[tuple[int, RequestCode], RemotingCommand], None],
    ) -> None:
        number, code = place
        ext = {
            "topic": reset.topic,
            "queueId": str(number),
            "consumerGroup": reset.group,
            "timestamp": str(reset.wish.timestamp),
            "setZeroIfNotFound": "false",
        }
        is_open = self._is_open(reset.topic, number)
        command = replace(
            new_request(code, ext), language="JAVA", version=STATIC_SINCE if is_open else 0
        )
        self._requests.ask(
            connection, command, self._handlers[code], lambda answer: answered(place, answer)
        )


def _questions(reset: Reset) -> dict[RequestCode, bool]:
    """The questions about all segments of a queue, and whether their answers are needed."""
    wish = reset.wish
    return {
        _BY_TIME: wish.offset is None and wish.timestamp >= 0,
        _MINIMUM: wish.offset is not None,
        _COMMITTED: not wish.is_force or not reset.is_known,
    }
