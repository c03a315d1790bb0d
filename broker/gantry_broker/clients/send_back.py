"""Messages that consumers send back: ConsumerSendMsgBack (36).

Upstream: ``AbstractSendMessageProcessor.consumerSendMsgBack``. The message is looked up in the log
by its offset, and a copy goes to the group's retry topic after a delay, or to its dead letters
(``core.delay.retries``). What is in the tier only is not looked up: the consumer gets "look message
by offset failed" (1), as for any offset without a message, and then sends the message itself to its
retry topic, body and all; so it is tried again in any case.

The answer is 0 once the copy is confirmed; anything else makes the consumer send it once more.
"""

import itertools

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.client import ConsumerSendMsgBackRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.records import MessageRecord, decode_record
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.types import Offset

from gantry_broker.clients import topic_rules
from gantry_broker.clients.access import MayTouch, taken_judgement
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.delay.parked import park
from gantry_broker.clients.core.delay.retries import RETRY_PREFIX, Fate, fate, returned
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import GetResult, Refusal, SendOutcome


class SendBack:
    """Serves ConsumerSendMsgBack on one group."""

    def __init__(self, view: GroupView, creation: TopicCreation, levels: DelayLevels) -> None:
        self._view = view
        self._creation = creation
        self._levels = levels
        self._turn = itertools.count()

    def send_back(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve 36."""
        may_read = taken_judgement(conn)
        header = from_ext(ConsumerSendMsgBackRequestHeader, request.ext)
        refusal = self._view.accepting_writes() or topic_rules.check_name(
            RETRY_PREFIX + header.group
        )
        if refusal is not None:
            return reply(request, *refusal)
        if self._view.consumers.config(header.group).retry_queue_nums <= 0:
            return reply(request)  # such a group wants no message a second time

        def was_read(result: GetResult | Refusal) -> None:
            self._was_read(conn, request, header, result, may_read)

        self._view.store.read(Offset(header.offset), was_read)
        return None

    def _was_read(
        self,
        conn: Connection,
        request: RemotingCommand,
        header: ConsumerSendMsgBackRequestHeader,
        result: GetResult | Refusal,
        may_read: MayTouch,
    ) -> None:
        """Go on with what stands at the offset that was named."""
        record = None if isinstance(result, Refusal) else _message(result)
        if record is not None and not may_read(record.topic):  # the client could name any offset
            record = None
        if record is None:
            remark = f"look message by offset failed, {header.offset}"
            if isinstance(result, Refusal):
                remark = f"{remark}: {result.remark}"
            _answer(conn, request, ResponseCode.SYSTEM_ERROR, remark)
            return
        config = self._view.consumers.config(header.group)
        limit = header.max_reconsume_times
        if limit is None or limit < 0:
            limit = config.retry_max_times
        to = fate(header.group, record.reconsume_times, limit, header.delay_level)
        queues = 1 if to.is_dead else min(config.retry_queue_nums, topic_rules.MAX_QUEUES)

        def ready(refusal: Refusal | None) -> None:
            refusal = refusal or self._view.accepting_writes()
            if refusal is None:
                self._append(conn, request, record, to)
            else:
                _answer(conn, request, *refusal)

        if self._view.store.topics.lookup(to.topic) is not None:
            ready(None)
        else:
            self._creation.ensure(topic_rules.internal_topic(to.topic, queues), ready, conn)

    def _append(
        self, conn: Connection, request: RemotingCommand, record: MessageRecord, to: Fate
    ) -> None:
        """Park the copy, or store it among the dead letters; the topic exists."""
        topic = self._view.store.topics.lookup(to.topic)
        queue_id = 0 if topic is None else next(self._turn) % topic.write_queue_nums

        def done(outcome: SendOutcome) -> None:
            _answer(conn, request, outcome.code, outcome.remark)

        try:
            copy = returned(record, to, queue_id, self._view.store_host)
            self._view.store.append(
                [copy if to.is_dead else park(copy, to.level, self._levels)], done
            )
        except GantryError as error:
            done(SendOutcome(ResponseCode.SYSTEM_ERROR, str(error)))


def _message(result: GetResult) -> MessageRecord | None:
    """The message that was found; None also for what clients never got from there."""
    if not result.count:
        return None
    record = decode_record(result.body)
    return record if topic_rules.is_for_clients(record.topic) else None


def _answer(
    conn: Connection, request: RemotingCommand, code: ResponseCode, remark: str | None
) -> None:
    if not request.is_oneway:
        conn.reply(request, reply(request, code, remark))
