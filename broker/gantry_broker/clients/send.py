"""Sends: SendMessage (10), SendMessageV2 (310) and SendBatchMessage (320).

What is stored as it comes is ``plain_sends``; this is what it stands on besides: topics that are
made on demand, and messages that wait or go elsewhere.

A message with a delay level is parked (``core.delay.parked``); its answer names the queue that was
asked for, and the place where it waits. A consumer that sends a failed message to its retry topic
itself asks for a delay, too; after the last try the message goes to the dead letters instead, and
so does every message that a group resends while it holds queue locks, since a group that consumes
in order resends only what it gives up. A half message (``TRAN_MSG``) goes to the half topic and is
answered in the same way: its producer ends the transaction by that place and no other. A message
for a certain moment (5.x: ``TIMER_…``) is parked for the first of its steps; its answer has the
handle by which it can be taken back (``recall``). A message whose producer waits for a reply says
where that is to go (``replies``).
"""

from collections.abc import Callable, Mapping, Sequence

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import RecordError
from gantry_protocol.lite import LITE_TOPIC, lite_queue
from gantry_protocol.recall import RecallHandle
from gantry_protocol.records import MessageRecord, decode_properties
from gantry_protocol.records.properties import (
    REAL_TOPIC,
    REPLY_TO_CLIENT,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from gantry_protocol.remoting.connection import Connection
from msgspec.structs import replace

from gantry_broker.clients import topic_rules
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.delay.parked import (
    is_moment,
    is_timer,
    named_time,
    park,
    park_timer,
    wanted_level,
    wanted_time,
)
from gantry_broker.clients.core.delay.retries import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_spent
from gantry_broker.clients.core.transactions.records import half_record
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.drain import GroupDrain
from gantry_broker.clients.lite.rules import LITE_TOPICS_MAX
from gantry_broker.clients.lock_keeping import LockBook
from gantry_broker.clients.plain_sends import (
    CONFIRMED,
    MAX_BATCH_MESSAGES,
    PlainSender,
    SendHeader,
    asks_for_delay,
    check_body_and_properties,
    is_half_message,
    refuse_send,
    send_header,
)
from gantry_broker.clients.replies import Replies, request_properties
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.transactions import Transactions
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import Refusal, SendOutcome, StoredAt


class Sender(PlainSender):
    """Serves sends on one group."""

    def __init__(
        self,
        view: GroupView,
        creation: TopicCreation,
        locks: LockBook,
        levels: DelayLevels,
        transactions: Transactions,
        traffic: Traffic,
        clock: Callable[[], float],
        drain: GroupDrain,
        replies: Replies,
        max_batch_messages: int = MAX_BATCH_MESSAGES,
    ) -> None:
        super().__init__(view, traffic, clock, max_batch_messages)
        self._group = view
        self._creation = creation
        self._locks = locks
        self._levels = levels
        self._transactions = transactions
        self._drain = drain
        self._replies = replies

    def _without_topic(
        self, conn: Connection, request: RemotingCommand, header: SendHeader, name: str
    ) -> RemotingCommand | None:
        """Create the topic where that is allowed; the send waits for it."""
        wanted = _wanted_topic(name, header)
        if wanted is None:
            return refuse_send(request, topic_rules.unknown_topic(name))
        self._creation.ensure(
            wanted,
            lambda refusal: self._topic_ready(conn, request, header, name, refusal),
            conn,
        )
        return None

    def _topic_ready(
        self,
        conn: Connection,
        request: RemotingCommand,
        header: SendHeader,
        name: str,
        refusal: Refusal | None,
    ) -> None:
        """Go on with a send that had to wait for its topic, ``name``."""
        topic = self._view.store.topics.lookup(name)
        if refusal is None:
            refusal = self._view.accepting_writes()
        if refusal is None and topic is None:
            refusal = topic_rules.unknown_topic(name)
        if refusal is not None or topic is None:
            assert refusal is not None
            conn.reply(request, refuse_send(request, refusal))
            return
        answer = self.store(conn, request, header, topic)
        if answer is not None:
            conn.reply(request, answer)

    def _refuse_lite(
        self, topic: TopicConfig, asked: Mapping[str, str], is_half: bool
    ) -> Refusal | None:
        store = self._group.store
        refusal = super()._refuse_lite(topic, asked, is_half)
        if refusal is not None or store.lite_count("") < LITE_TOPICS_MAX:
            return refusal
        if store.lite_end(lite_queue(topic.topic_name, asked[LITE_TOPIC])) is not None:
            return None
        remark = f"[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]{LITE_TOPICS_MAX} lite topics are there"
        return Refusal(ResponseCode.LMQ_QUOTA_EXCEEDED, remark)

    def sought(self, conn: Connection, request: RemotingCommand) -> list[MessageRecord]:
        """The records that a send would store; none if it would be refused.

        Their queue is -1 where the sender leaves it to the broker, and of a timer, since its steps
        follow from the time at which it comes. The broker gives no key.
        """
        header = send_header(request)
        topic = self._view.store.topics.lookup(self._target_topic(header))
        if topic is None or self._view.accepting_writes() is not None:
            return []
        properties = header.properties or ""
        asked = decode_properties(properties)
        queue_id = self._queue_of(header, topic, asked)
        try:
            if header.batch:
                return list(self._batch(conn, request, header, queue_id, asked))
            record = self._record(conn, header, topic, queue_id, request.body, properties)
            if REPLY_TO_CLIENT in asked:
                record = self._as_request(conn, record, asked[REPLY_TO_CLIENT])
            is_half = is_half_message(header, asked)
            now_ms = int(self._clock() * 1000)
            due_ms = None if is_half else named_time(asked, now_ms)
            if due_ms is not None and not record.topic.startswith(DEAD_LETTER_PREFIX):
                # It may have come when there was more time left, so at any step.
                return [replace(park_timer(record, due_ms, now_ms), queue_id=-1)]
            if is_half or asks_for_delay(asked):
                record = self._as_stored(
                    record, asked, asked.get(UNIQ_KEY, "") if is_half else None
                )
        except RecordError:
            return []
        return [record]

    def answer_found(
        self,
        conn: Connection,
        request: RemotingCommand,
        stored: Sequence[StoredAt],
        given_key: str | None,
    ) -> None:
        """Answer a send whose records were in the log before it came.

        A message without a unique key was given one by the broker that stored it. One for a certain
        moment can be taken back if it says which; after a delay the moment is not known any more.
        """
        header = send_header(request)
        name = self._target_topic(header)
        asked = decode_properties(header.properties or "")
        topic = self._view.store.topics.lookup(name)
        queue_id = -1 if topic is None else self._queue_of(header, topic, asked)
        if queue_id < 0:
            queue_id = stored[0].queue_id
        handle, unique_key = None, asked.get(UNIQ_KEY, given_key)
        due_ms = wanted_time(asked, int(self._clock() * 1000)) if is_moment(asked) else None
        if due_ms is not None and unique_key is not None:
            handle = RecallHandle(name, self._group.broker_name, due_ms, unique_key).pack()
        outcome = SendOutcome(CONFIRMED, None, stored)
        self._ended(conn, request, name, queue_id, unique_key, handle, outcome)

    def _as_request(self, conn: Connection, record: MessageRecord, client_id: str) -> MessageRecord:
        self._replies.expected(conn, client_id)
        properties = request_properties(record.properties, self._group.broker_name)
        check_body_and_properties(record.body, properties)
        return replace(record, properties=properties)

    def _takes(self, topic: str, queue_id: int) -> bool:
        return self._group.queues.takes(topic, queue_id)

    def _refuse_half(self) -> Refusal | None:
        return self._transactions.refuse_half()

    def _as_stored(
        self, record: MessageRecord, asked: Mapping[str, str], half_of: str | None
    ) -> MessageRecord:
        """A message that asks for a delay, or the half message ``half_of``, as it waits."""
        is_dead = record.topic.startswith(DEAD_LETTER_PREFIX)
        level = 0 if is_dead else wanted_level(asked)
        now_ms = int(self._clock() * 1000)
        due_ms = None if is_dead else wanted_time(asked, now_ms)
        if half_of is not None:
            if level > 0 or due_ms is not None:
                raise RecordError("a half message cannot be delayed")
            return half_record(record, half_of)
        if due_ms is not None:
            return park_timer(record, due_ms, now_ms)
        return park(record, level, self._levels) if level > 0 else record

    def recall_handle(self, record: MessageRecord) -> str | None:
        """See ``PlainSender.recall_handle``."""
        if not is_timer(record):
            return None
        properties = decode_properties(record.properties)
        return RecallHandle(
            properties[REAL_TOPIC],
            self._group.broker_name,
            int(properties[TIMER_OUT_MS]),
            properties.get(UNIQ_KEY, ""),
        ).pack()

    def _retried_in(self, header: SendHeader) -> str:
        """Where a retried message goes: what a consumer gives up goes to the dead letters."""
        group = header.topic.removeprefix(RETRY_PREFIX)
        limit = header.max_reconsume_times
        if limit is None:
            limit = self._group.consumers.config(group).retry_max_times
        if is_spent(header.reconsume_times or 0, limit) or self._locks.is_held(group):
            return DEAD_LETTER_PREFIX + group
        return header.topic


def _wanted_topic(name: str, header: SendHeader) -> TopicConfig | None:
    if name != header.topic:
        return topic_rules.internal_topic(name)
    return topic_rules.topic_on_demand(name, header.default_topic, header.default_topic_queue_nums)
