"""Offset resets: 222.

The answer is given once the new offsets are confirmed in the log. A group that is being served
follows with its next pull, pulls that wait are answered at once (see ``store.tables.resets``);
nobody has to be stopped. Broadcasting consumers keep their offsets to themselves, so they are told
(220), and nothing is written.

A reset that is a request with a number is carried out once in each queue, however often it comes
(``store.tables.resets``); it is answered alike each time.

Of a group that pops, everything from the new offset on comes again, whatever was acknowledged: the
ledger of POP says so (``PopBook.reset``) before the reset is answered.

What is refused: resets of what does not exist, and offsets outside a queue (see ``reset_plan``).
Queues of mapped topics go back into segments of other broker groups (``mapped.resets``).
"""

from collections.abc import Callable, Mapping

from gantry_protocol.bodies import MessageQueue, TopicConfig, encode_reset_offsets
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.command import request as make_request
from gantry_protocol.headers.brokeradmin import RESET_QUEUES, ResetOffsetRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.queue_map import MAPPED, Segment
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.core.pop.ledger import Back
from gantry_broker.clients.core.pop.records import QueueId
from gantry_broker.clients.mapped.resets import UNSETTLED, MappedResets, Reset
from gantry_broker.clients.offsets import OffsetWriter
from gantry_broker.clients.pop.book import PopBook
from gantry_broker.clients.pop.parts import Parts
from gantry_broker.clients.pull import Puller
from gantry_broker.clients.reset_plan import (
    END,
    QueueNow,
    ResetMove,
    Wish,
    check,
    plan,
    unknown_group,
)
from gantry_broker.clients.sessions import ConsumerGroup, Sessions
from gantry_broker.clients.topic_rules import unknown_topic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueOffsets, QueueQuestion, Refusal, SendOutcome
from gantry_broker.store.tables.resets import last_request, put_request, put_reset

_NO_REQUESTS = Refusal(
    ResponseCode.INVALID_PARAMETER,
    "offsets of a topic with a map of its queues are reset by a person: gantry offsets reset",
)

_POPS_BUSY = Refusal(
    ResponseCode.SYSTEM_BUSY, "no offset is reset: too much waits for the log, or is not read yet"
)

_THEIR_OWN = Refusal(
    ResponseCode.INVALID_PARAMETER,
    "the members of this group get every message and keep their offsets themselves: gantry offsets "
    "reset tells those that are there",
)


class OffsetResets:
    """Serves resets on one group.

    Args:
        view: the group.
        sessions: who is connected.
        writer: writes offsets to the log.
        puller: has pulls that wait, and knows how far groups have pulled.
        mapped: knows where resets of mapped topics are kept.
        parts: those that consumer groups pop from.
        book: of what is in flight.

    Attributes:
        queues: in which an offset was reset.
    """

    def __init__(
        self,
        view: GroupView,
        sessions: Sessions,
        writer: OffsetWriter,
        puller: Puller,
        mapped: MappedResets,
        parts: Parts,
        book: PopBook,
    ) -> None:
        self.queues = 0
        self._view = view
        self._sessions = sessions
        self._writer = writer
        self._puller = puller
        self._mapped = mapped
        self._parts = parts
        self._book = book

    def reset(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """InvokeBrokerToResetOffset (222)."""
        header = from_ext(ResetOffsetRequestHeader, request.ext)
        topic = self._view.store.topics.lookup(header.topic)
        if topic is None:
            return reply(request, *unknown_topic(header.topic))
        wish = Wish(
            queue_id=None if header.queue_id == -1 else header.queue_id,
            timestamp=header.timestamp,
            offset=None if header.offset == -1 else header.offset,
            is_force=header.is_force,
        )
        refusal = self._view.accepting_writes() or check(wish, topic.read_queue_nums)
        places = (
            refusal or _refused_request(header, topic) or self._places(topic, wish, header.group)
        )
        if isinstance(places, Refusal):
            return reply(request, *places)
        queue_ids = {number: segment.queue_id for number, segment in places.items()}
        since = None if wish.timestamp == END else wish.timestamp

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                conn.reply(request, reply(request, *answers))
                return
            own = {
                number: (segment, queue)
                for (number, segment), queue in zip(places.items(), answers, strict=True)
            }
            if MAPPED in topic.attributes:
                asked = Reset(header.group, header.topic, wish, self._is_known(header.group))
                self._mapped.complete(conn, asked, own, known)
            else:
                known({number: _now(queue) for number, (_, queue) in own.items()})

        def known(found: dict[int, QueueNow] | Refusal) -> None:
            if isinstance(found, Refusal):
                conn.reply(request, reply(request, *found))
                return
            if self._view.store.topics.lookup(header.topic) is None:  # it ended meanwhile
                conn.reply(request, reply(request, *unknown_topic(header.topic)))
                return
            if MAPPED in topic.attributes and self._places(topic, wish, header.group) != places:
                conn.reply(request, reply(request, *UNSETTLED))
                return
            queues = {
                number: self._with_committed(header, queue_ids[number], queue)
                for number, queue in found.items()
            }
            moves = self._pops_busy() or plan(wish, queues)
            if not isinstance(moves, Refusal):
                moves = self._not_done(header, moves)
            if isinstance(moves, Refusal):
                conn.reply(request, reply(request, *moves))
            else:
                self._move(
                    header, moves, queue_ids, lambda answer: conn.reply(request, answer), request
                )

        questions = [QueueQuestion(header.topic, at, since=since) for at in queue_ids.values()]
        self._view.store.offsets(questions, learned)
        return None

    def _pops_busy(self) -> Refusal | None:
        """The reason why nobody can say now what of a group is in flight, or that it is over."""
        if self._book.failure:
            return Refusal(ResponseCode.SYSTEM_ERROR, self._book.failure)
        is_known = self._book.ready and not self._book.is_behind
        return None if is_known else _POPS_BUSY

    def _places(self, topic: TopicConfig, wish: Wish, group: str) -> dict[int, Segment] | Refusal:
        """The queues of this group that are to keep the reset, by the numbers of the wish's."""
        one = wish.queue_id
        numbers = list(range(topic.read_queue_nums)) if one is None else [one]
        if MAPPED in topic.attributes:
            return self._mapped.places(topic.topic_name, numbers)
        if not self._is_known(group):
            return unknown_group(group)
        return {number: Segment(self._view.broker_name, 0, number) for number in numbers}

    def _is_known(self, group: str) -> bool:
        """Whether a consumer group has been heard of here."""
        return bool(
            self._sessions.client_ids(group)
            or group in self._view.consumers.configs.subscription_group_table
            or self._view.store.committed.of_group(group)
        )

    def _with_committed(
        self, header: ResetOffsetRequestHeader, queue_id: int, queue: QueueNow
    ) -> QueueNow:
        """A queue with what was committed here, which counts first."""
        here = self._view.store.committed.query(header.group, header.topic, queue_id)
        return queue if here is None else queue._replace(committed=here)

    def _keep_request(
        self, header: ResetOffsetRequestHeader, number: int, queue_ids: Mapping[int, int]
    ) -> bool:
        """Behind the offsets, also for queues in which it was carried out before."""
        committed, place = self._view.store.committed, (header.group, header.topic)
        return all(
            put_request(committed, *place, queue_id, number) for queue_id in queue_ids.values()
        )

    def _not_done(
        self, header: ResetOffsetRequestHeader, moves: dict[int, ResetMove]
    ) -> dict[int, ResetMove] | Refusal:
        """What a request has yet to move; refused if a later one was carried out."""
        if header.request is None:
            return moves
        group = self._sessions.group(header.group)
        if group is not None and group.is_broadcasting:
            return _THEIR_OWN
        left = {}
        for queue_id, move in moves.items():
            last = last_request(self._view.store.committed, header.group, header.topic, queue_id)
            if last is not None and last > header.request:
                remark = (
                    f"request {header.request} comes too late: {last} was carried out, so the next "
                    f"one has a number above it"
                )
                return Refusal(ResponseCode.INVALID_PARAMETER, remark)
            if last != header.request:
                left[queue_id] = move
        return left

    def _move(
        self,
        header: ResetOffsetRequestHeader,
        moves: Mapping[int, ResetMove],
        queue_ids: Mapping[int, int],
        answer: Callable[[RemotingCommand], None],
        request: RemotingCommand,
    ) -> None:
        body = encode_reset_offsets(
            {
                MessageQueue(self._view.broker_name, queue_id, header.topic): move.offset
                for queue_id, move in moves.items()
            }
        )
        group = self._sessions.group(header.group)
        if group is not None and group.is_broadcasting:
            _tell(group, header, body)
            answer(reply(request, body=body))
            return
        is_online = (
            bool(self._sessions.client_ids(header.group)) or self._view.consumers.may_be_served
        )
        popped: list[Back] = []
        for queue_id, move in moves.items():
            place = QueueId(header.group, header.topic, queue_ids[queue_id])
            is_served = is_online or self._puller.pulled.offset(*place) is not None
            is_served = is_served and self._mapped.leads(group, header.topic, queue_id)
            put_reset(self._view.store.committed, *place, move.offset, due=is_served)
            number = (header.group, header.topic, queue_id)
            popped.append(Back(place, move.again, move.again == move.offset))
            popped += self._parts.reset(*number, move.again, is_force=header.is_force)
            self._puller.moved(*place)
        self.queues += len(moves)

        def recorded(outcome: SendOutcome) -> None:
            if outcome.code != ResponseCode.SUCCESS:
                written(outcome)
            elif header.request is not None and not self._keep_request(
                header, header.request, queue_ids
            ):
                remark = "the offsets of groups are too many"
                answer(reply(request, ResponseCode.SYSTEM_BUSY, remark))
            else:
                self._writer.now(written)

        def written(outcome: SendOutcome) -> None:
            if outcome.code == ResponseCode.SUCCESS:
                done = {} if header.request is None else {RESET_QUEUES: str(len(queue_ids))}
                answer(reply(request, ext=done, body=body))
            else:
                remark = f"the reset may not last: {outcome.remark}"
                answer(reply(request, ResponseCode.SYSTEM_BUSY, remark))

        self._book.reset(popped, recorded)


def _refused_request(header: ResetOffsetRequestHeader, topic: TopicConfig) -> Refusal | None:
    """Its queues move, and what was carried out in them would not."""
    is_request = header.request is not None
    return _NO_REQUESTS if is_request and MAPPED in topic.attributes else None


def _now(queue: QueueOffsets) -> QueueNow:
    return QueueNow(
        minimum=queue.min_offset,
        maximum=queue.max_offset,
        at_time=queue.found or 0,
        committed=None,
    )


def _tell(group: ConsumerGroup, header: ResetOffsetRequestHeader, body: bytes) -> None:
    """ResetConsumerClientOffset (220) to every member."""
    ext = {
        "topic": header.topic,
        "group": header.group,
        "timestamp": str(header.timestamp),
        "isForce": str(header.is_force).lower(),
    }
    for member in group.members.values():
        code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        member.connection.send(make_request(code, ext, body, oneway=True))
