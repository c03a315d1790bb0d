"""Offset resets: 222.

The answer is given once the new offsets are confirmed in the log. A group that is being served
follows with its next pull, pulls that wait are answered at once (see ``store.tables.resets``);
nobody has to be stopped. Broadcasting consumers keep their offsets to themselves, so they are told
(220), and nothing is written.

What is refused: resets of what does not exist, and offsets outside a queue (see ``reset_plan``).
"""

from collections.abc import Callable, Mapping

from gantry_protocol.bodies import MessageQueue, encode_reset_offsets
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.command import request as make_request
from gantry_protocol.headers.brokeradmin import ResetOffsetRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.offsets import OffsetWriter
from gantry_broker.clients.pull import Puller
from gantry_broker.clients.reset_plan import END, QueueNow, Wish, check, plan
from gantry_broker.clients.sessions import ConsumerGroup, Sessions
from gantry_broker.clients.topic_rules import unknown_topic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueOffsets, QueueQuestion, Refusal, SendOutcome
from gantry_broker.store.tables.resets import put_reset


class OffsetResets:
    """Serves resets on one group.

    Args:
        view: the group.
        sessions: who is connected.
        writer: writes offsets to the log.
        puller: has pulls that wait, and knows how far groups have pulled.

    Attributes:
        queues: in which an offset was reset.
    """

    def __init__(
        self, view: GroupView, sessions: Sessions, writer: OffsetWriter, puller: Puller
    ) -> None:
        self.queues = 0
        self._view = view
        self._sessions = sessions
        self._writer = writer
        self._puller = puller

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
        refusal = (
            self._view.accepting_writes()
            or check(wish, topic.read_queue_nums)
            or self._check_group(header.group)
        )
        if refusal is not None:
            return reply(request, *refusal)
        one = wish.queue_id
        queue_ids = list(range(topic.read_queue_nums)) if one is None else [one]
        since = None if wish.timestamp == END else wish.timestamp

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                conn.reply(request, reply(request, *answers))
                return
            if self._view.store.topics.lookup(header.topic) is None:  # it ended meanwhile
                conn.reply(request, reply(request, *unknown_topic(header.topic)))
                return
            queues = {
                queue_id: QueueNow(
                    minimum=queue.min_offset,
                    maximum=queue.max_offset,
                    at_time=queue.found or 0,
                    committed=self._committed(header, queue_id),
                )
                for queue_id, queue in zip(queue_ids, answers, strict=True)
            }
            moves = plan(wish, queues)
            if isinstance(moves, Refusal):
                conn.reply(request, reply(request, *moves))
            else:
                self._move(header, moves, lambda answer: conn.reply(request, answer), request)

        questions = [QueueQuestion(header.topic, queue_id, since=since) for queue_id in queue_ids]
        self._view.store.offsets(questions, learned)
        return None

    def _check_group(self, group: str) -> Refusal | None:
        """Refuse a group that nobody has ever heard of: it was mistyped."""
        if (
            self._sessions.client_ids(group)
            or group in self._view.consumers.configs.subscription_group_table
            or self._view.store.committed.of_group(group)
        ):
            return None
        return Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"the consumer group {group} has no members, no offsets and no setting here",
        )

    def _committed(self, header: ResetOffsetRequestHeader, queue_id: int) -> int | None:
        return self._view.store.committed.query(header.group, header.topic, queue_id)

    def _move(
        self,
        header: ResetOffsetRequestHeader,
        moves: Mapping[int, int],
        answer: Callable[[RemotingCommand], None],
        request: RemotingCommand,
    ) -> None:
        body = encode_reset_offsets(
            {
                MessageQueue(self._view.broker_name, queue_id, header.topic): offset
                for queue_id, offset in moves.items()
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
        for queue_id, offset in moves.items():
            place = (header.group, header.topic, queue_id)
            is_served = is_online or self._puller.pulled.offset(*place) is not None
            put_reset(self._view.store.committed, *place, offset, due=is_served)
            self._puller.moved(*place)
        self.queues += len(moves)

        def written(outcome: SendOutcome) -> None:
            if outcome.code == ResponseCode.SUCCESS:
                answer(reply(request, body=body))
            else:
                remark = f"the reset may not last: {outcome.remark}"
                answer(reply(request, ResponseCode.SYSTEM_BUSY, remark))

        self._writer.now(written)


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
