"""Sends that are stored as they come: one pass from a header to records in the log.

The order of checks and the codes are upstream's (``AbstractSendMessageProcessor.msgCheck``,
``SendMessageProcessor``), because producers act on the code alone. There is no task, and no copy of
the body but the one into the log. The answer is 0 only when the record is confirmed; a client's
wish not to wait for that (``WAIT=false``) is not granted.

A master's ``Sender`` adds what waits (delays, transactions) and what may go elsewhere (retries); a
front has plain sends only (``is_plain``), and leaves the rest to the master.
"""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.bodies.route import PERM_WRITE
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import FLAG_ONEWAY, RemotingCommand, reply
from gantry_protocol.errors import RecordError
from gantry_protocol.headers.client import SendMessageRequestHeader, SendMessageRequestHeaderV2
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.hosts import split_address
from gantry_protocol.lite import LITE_TOPIC, LITE_TYPE, lite_problem
from gantry_protocol.queue_map import MAPPED, MAPPED_QUEUES_MAX
from gantry_protocol.records import (
    MAX_BODY_BYTES,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_V1_BYTES,
    Host,
    MessageRecord,
    UniqueKeys,
    append_properties,
    decode_properties,
    encode_properties,
    offset_msg_ids,
    scan_run,
    split_batch,
    without_property,
)
from gantry_protocol.records.layout import TRANSACTION_MASK, TRANSACTION_PREPARED
from gantry_protocol.records.properties import (
    CLUSTER,
    DELAY_TIME_LEVEL,
    MSG_REGION,
    NAME_VALUE_SEPARATOR,
    POP_CK,
    PRIORITY,
    PRODUCER_GROUP,
    PROPERTY_SEPARATOR,
    REPLY_TO_CLIENT,
    SHARDING_KEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DELIVER_MS,
    TRACE_ON,
    UNIQ_KEY,
)
from gantry_protocol.records.properties import TRANSACTION_PREPARED as TRAN_MSG
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.send_answer import MAY_BE_STORED, OFFSETS_MAX, SendAnswers
from gantry_protocol.settings.priority import MESSAGE_TYPE
from msgspec.structs import replace

from gantry_broker.clients import topic_rules
from gantry_broker.clients.core.delay.parked import wanted_level
from gantry_broker.clients.core.delay.retries import (
    DEAD_LETTER_LEVEL,
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
)
from gantry_broker.clients.mapped.places import PHYSICAL
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import SendView
from gantry_broker.store.contract import Appended, Records, Refusal, SendOutcome
from gantry_broker.store.stored import offsets_of

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

REGION = "DefaultRegion"  # upstream's default regionId
HOST = "host"  # in a connection's attrs: the address of its client, which has sent something
ANSWER_EXT = {MSG_REGION: REGION, TRACE_ON: "true"}
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_RECALL = "TIMER_DEL_UNIQKEY"  # upstream's brokers write it into records of their own
_TIMER_START = "TIMER_DEL"  # of this one, and of all that ask for a moment
_TIMER_NAMES = frozenset((TIMER_DELAY_S, TIMER_DELAY_MS, TIMER_DELIVER_MS, _RECALL))
_DELAYED_BATCH = "a batch cannot be delayed."
_FOR_THE_MASTER = (_TIMER_START, DELAY_TIME_LEVEL, TRAN_MSG, REPLY_TO_CLIENT, LITE_TOPIC)
# What each message of a batch is refused for, as far as a glance at all of them tells.
_SPECIAL = tuple(name.encode() for name in (_TIMER_START, DELAY_TIME_LEVEL, TRAN_MSG, LITE_TOPIC))
_NOT_STORED = tuple(  # each with the separator that follows it
    name + NAME_VALUE_SEPARATOR for name in (POP_CK, MSG_REGION, TRACE_ON, CLUSTER)
)
MAX_BATCH_MESSAGES = 16_384  # 1 MiB, upstream's advice, holds 14,000 of the smallest from Java
# What a message of a batch costs later: 2 µs to dispatch it here, 4 µs in each of two replicas.
_LATER_S = 10e-6
_FEW = 64  # messages of a batch; later work like that of as many sends is within what sends may do
# To look a member up costs a tenth of a microsecond.
_LONG_NAMES = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE))
CONFIRMED = ResponseCode.SUCCESS
_PRIORITY_DIGITS = 10  # of an int32
_MOVING = Refusal(
    ResponseCode.SYSTEM_BUSY, "another broker group takes messages for this queue, try again"
)


class Draining(Protocol):
    """The drain of a group.

    Attributes:
        began_s: when it was heard of; None while there is none.
    """

    began_s: float | None

    def refuse(self, topic: str) -> Refusal | None:
        """The reason to refuse a new message, if there is one."""


class PlainSender:
    """Stores sends on one group.

    Args:
        view: the group.
        traffic: counts what comes in.
        clock: seconds since 1970.
        max_batch_messages: how many messages one batch may hold.
    """

    def __init__(
        self,
        view: SendView,
        traffic: Traffic,
        clock: Callable[[], float],
        max_batch_messages: int = MAX_BATCH_MESSAGES,
    ) -> None:
        self._view: SendView = view
        self.max_batch_messages = max_batch_messages
        self._drain: Draining | None = None
        self._traffic = traffic
        self._clock = clock
        self._unique_keys = UniqueKeys(view.store_host[0])
        self._turn = itertools.count()
        self._store_host = view.store_host
        self._answers = SendAnswers(*view.store_host, ANSWER_EXT)
        self._added = encode_properties({**ANSWER_EXT, CLUSTER: view.cluster})

    def send(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve a send."""
        header = send_header(request)
        drain = self._drain
        refusal = (
            self._view.accepting_writes()
            or topic_rules.check_target(header.topic)
            or (None if drain is None or drain.began_s is None else drain.refuse(header.topic))
        )
        if refusal is not None:
            return refuse_send(request, refusal)
        name = self._target_topic(header)
        topic = self._view.store.topics.lookup(name)
        if topic is None:
            return self._without_topic(conn, request, header, name)
        return self.store(conn, request, header, topic)

    def _target_topic(self, header: SendHeader) -> str:
        """Where the message goes."""
        return self._retried_in(header) if topic_rules.is_retry(header.topic) else header.topic

    def _retried_in(self, header: SendHeader) -> str:
        """The topic of a retried message."""
        return header.topic

    def _without_topic(
        self, conn: Connection, request: RemotingCommand, header: SendHeader, name: str
    ) -> RemotingCommand | None:
        """Answer a send to a topic that is not there, now or later."""
        return refuse_send(request, topic_rules.unknown_topic(name))

    def store(
        self, conn: Connection, request: RemotingCommand, header: SendHeader, topic: TopicConfig
    ) -> RemotingCommand | None:
        """Append what was sent; the topic exists. A refusal, or None: it is answered later."""
        properties = header.properties or ""
        asked = decode_properties(properties)
        is_half = is_half_message(header, asked)
        refusal = (
            _check_topic(conn, header, topic)
            or _check_message(request.body, header, asked, is_half)
            or (self._refuse_half() if is_half else None)
            or (self._refuse_lite(topic, asked, is_half) if LITE_TOPIC in asked else None)
        )
        if refusal is not None:
            return refuse_send(request, refusal)
        queue_id = header.queue_id
        if PRIORITY in asked or topic.topic_name != header.topic:  # else that is it
            queue_id = self._queue_of(header, topic, asked)
        if queue_id < 0:
            queue_id = next(self._turn) % topic.write_queue_nums
        if MAPPED in topic.attributes and not self._takes(topic.topic_name, queue_id):
            return refuse_send(request, _MOVING)
        unique_key = asked.get(UNIQ_KEY)
        if unique_key is None and not header.batch:
            unique_key = self._unique_keys.next(int(self._clock() * 1000))
            properties = append_properties(properties, {UNIQ_KEY: unique_key})
        handle = asked_queue = None
        try:
            if header.batch:
                records = self._batch(conn, request, header, queue_id, asked)
            else:
                record = self._record(conn, header, topic, queue_id, request.body, properties)
                if REPLY_TO_CLIENT in asked:
                    record = self._as_request(conn, record, asked[REPLY_TO_CLIENT])
                if is_half or asks_for_delay(asked):
                    record = self._as_stored(record, asked, unique_key if is_half else None)
                    handle = self.recall_handle(record)
                    asked_queue = None if record.topic == topic.topic_name else queue_id
                records = [record]
            # Who consumes may fail again and again; each time it sends the message anew.
            # Another group's master passes on what many clients say.
            once: int | None = 0 if PHYSICAL in (request.ext or ()) else conn.id
            if header.topic.startswith(RETRY_PREFIX):
                once = None
            name = topic.topic_name
            done = partial(self._ended, conn, request, name, asked_queue, unique_key, handle)
            if len(records) > _FEW:
                self._append_batch(conn, records, done, once)
            else:
                self._view.store.append(records, done, once=once)
        except RecordError as error:
            return refuse_send(request, _illegal(str(error)))
        return None

    @staticmethod
    def _queue_of(header: SendHeader, topic: TopicConfig, asked: Mapping[str, str]) -> int:
        """The queue that a message is for: that of its priority, or the one named; -1 for any."""
        if topic.topic_name != header.topic:
            return 0  # a dead-letter topic
        level = _priority(asked) if PRIORITY in asked and not header.batch else None
        if level is None or MAPPED in topic.attributes:
            return header.queue_id
        return min(level, topic.write_queue_nums - 1)

    def _takes(self, topic: str, queue_id: int) -> bool:
        """Whether this is where messages for a queue of a mapped topic go now."""
        return False

    def _refuse_half(self) -> Refusal | None:
        """The reason why no half message is taken now."""
        return None

    def _refuse_lite(
        self, topic: TopicConfig, asked: Mapping[str, str], is_half: bool
    ) -> Refusal | None:
        """The reason why a message of a lite topic is not taken."""
        problem = lite_problem(asked[LITE_TOPIC])
        if problem is not None:
            return _illegal(problem)
        if topic.attributes.get(MESSAGE_TYPE) != LITE_TYPE:
            return _illegal(
                f"it is for a lite topic, and topic[{topic.topic_name}] has none: make it with"
                f" {MESSAGE_TYPE}={LITE_TYPE}"
            )
        if is_half or asks_for_delay(asked):
            return _illegal("a message of a lite topic is neither delayed nor half a transaction")
        return None

    def _as_request(self, conn: Connection, record: MessageRecord, client_id: str) -> MessageRecord:
        """The record of a message for whose reply the client of that id waits."""
        return record

    def _as_stored(
        self, record: MessageRecord, asked: Mapping[str, str], half_of: str | None
    ) -> MessageRecord:
        """The record of a message that asks for a delay, or of the half message ``half_of``."""
        return record

    def recall_handle(self, record: MessageRecord) -> str | None:
        """The text by which a record that waits for its moment can be taken back."""
        return None

    def _append_batch(
        self, conn: Connection, records: Records, done: Appended, once: int | None
    ) -> None:
        """Append many records; until they are confirmed their later cost is owed."""
        later_s = _LATER_S * len(records)

        def stored(outcome: SendOutcome) -> None:
            conn.turns.settle(later_s)
            done(outcome)

        self._view.store.append(records, stored, once=once)
        conn.turns.owe(later_s)

    def _batch(
        self,
        conn: Connection,
        request: RemotingCommand,
        header: SendHeader,
        queue_id: int,
        asked: Mapping[str, str],
    ) -> Records:
        """The records of a batch; the header's properties belong to none of them."""
        common = MessageRecord(
            topic=header.topic,
            queue_id=queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=_host(conn),
            store_host=self._store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if wanted_level(asked) > 0:
            raise RecordError(_DELAYED_BATCH)
        most = self.max_batch_messages
        run = scan_run(request.body, common, _SPECIAL, most)
        return self._batch_one_by_one(request.body, common) if run is None else run

    def _batch_one_by_one(self, body: bytes, common: MessageRecord) -> Records:
        """The long way, which says what is wrong with a batch."""
        messages = split_batch(body, self.max_batch_messages)
        if not messages:
            raise RecordError("The batch holds no message.")
        for message in messages:
            check_body_and_properties(message.body, message.properties)
            asked = decode_properties(message.properties)
            if wanted_level(asked) > 0 or not _TIMER_NAMES.isdisjoint(asked):
                raise RecordError(_DELAYED_BATCH)
            if _says_half(asked):
                raise RecordError("half messages cannot be sent in a batch")
            if LITE_TOPIC in asked:
                raise RecordError("messages of lite topics cannot be sent in a batch")
        return scan_run(body, common) or [
            replace(common, body=message.body, properties=message.properties, flag=message.flag)
            for message in messages
        ]

    def _record(
        self,
        conn: Connection,
        header: SendHeader,
        topic: TopicConfig,
        queue_id: int,
        body: bytes,
        properties: str,
    ) -> MessageRecord:
        properties = self._complete(properties, topic)
        check_body_and_properties(body, properties)
        return MessageRecord(
            topic=topic.topic_name,
            queue_id=queue_id,
            body=body,
            properties=properties,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=_host(conn),
            store_host=self._store_host,
            reconsume_times=header.reconsume_times or 0,
        )

    def _complete(self, properties: str, topic: TopicConfig) -> str:
        """Properties with the broker's own, and without what must not be stored."""
        for start in _NOT_STORED:
            if start in properties:
                properties = without_property(properties, start[:-1])
        if PRIORITY in properties and _priority(decode_properties(properties)) is None:
            properties = without_property(properties, PRIORITY)
        if properties and properties[-1] != PROPERTY_SEPARATOR:
            properties += PROPERTY_SEPARATOR
        properties += self._added
        if topic.topic_name.startswith(DEAD_LETTER_PREFIX):
            properties = without_property(properties, DELAY_TIME_LEVEL)
            properties = append_properties(properties, {DELAY_TIME_LEVEL: DEAD_LETTER_LEVEL})
        return properties

    def _ended(
        self,
        conn: Connection,
        request: RemotingCommand,
        topic: str,
        asked_queue: int | None,
        unique_key: str | None,
        recall_handle: str | None,
        outcome: SendOutcome,
    ) -> None:
        """What was sent is confirmed, or will not be: count and answer it.

        The answer names the queue where the message is: one that came before may be in another one
        than is asked for now. Where a parked or half message does not wait, it is ``asked_queue``.
        """
        stored = outcome.stored
        if outcome.found and recall_handle is not None:
            recall_handle = self.recall_handle(outcome.found[0])
        queue_id = asked_queue if asked_queue is not None or not stored else stored[0].queue_id
        queue_id = (queue_id or 0) % MAPPED_QUEUES_MAX  # of a mapped topic, its number
        is_confirmed = outcome.code == CONFIRMED and len(stored) > 0
        if is_confirmed:
            self._traffic.put(topic, len(stored) - len(outcome.found))
        if request.flag & FLAG_ONEWAY:
            return
        if is_confirmed and recall_handle is None and len(stored) <= OFFSETS_MAX:
            offsets = offsets_of(stored)
            first = stored[0].queue_offset
            frame = self._answers.frame(request.opaque, offsets, queue_id, first, unique_key)
            conn.reply_frame(request, frame)
        else:
            answer = self._answer(request, outcome, queue_id, unique_key, recall_handle)
            conn.reply(request, answer)

    def _answer(
        self,
        request: RemotingCommand,
        outcome: SendOutcome,
        queue_id: int,
        unique_key: str | None,
        recall_handle: str | None,
    ) -> RemotingCommand:
        if outcome.code not in _STORED or not outcome.stored:
            # The codes that mean "stored" without positions would break Java clients. And Java's
            # and Go's take them for a result, where they should ask the next master.
            is_unknown = outcome.code in _STORED
            code = ResponseCode.SERVICE_NOT_AVAILABLE if is_unknown else outcome.code
            refusal = Refusal(code, outcome.remark or "the message was not stored")
            answer = refuse_send(request, refusal)
            if is_unknown and answer.ext is not None:
                answer.ext[MAY_BE_STORED] = "true"
            return answer
        ext = {
            "msgId": offset_msg_ids(*self._store_host, offsets_of(outcome.stored)),
            "queueId": str(queue_id),
            "queueOffset": str(outcome.stored[0].queue_offset),
            **ANSWER_EXT,
        }
        if unique_key is not None:
            ext["transactionId"] = unique_key
        if recall_handle is not None:
            ext["recallHandle"] = recall_handle
        return reply(request, outcome.code, outcome.remark, ext)


def send_header(request: RemotingCommand) -> SendHeader:
    """The header of a send, whichever way its names are written."""
    if request.code in _LONG_NAMES:
        return from_ext(SendMessageRequestHeader, request.ext)
    return from_ext(SendMessageRequestHeaderV2, request.ext)


def refuse_send(request: RemotingCommand, refusal: Refusal) -> RemotingCommand:
    """The answer to a send that is not stored."""
    return reply(request, refusal.code, refusal.remark, dict(ANSWER_EXT))


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal, {remark}")


def _host(conn: Connection) -> Host:
    """The sender's address as records hold it."""
    host: Host | None = conn.attrs.get(HOST)
    if host is None:
        host = conn.attrs[HOST] = split_address(conn.peer)
    return host


def is_plain(header: SendHeader) -> bool:
    """Whether a send is one message, stored as it comes and in the topic that it names.

    How many messages a batch may hold is a setting that its master alone knows.
    """
    properties = header.properties or ""
    return (
        not header.batch
        and topic_rules.check_target(header.topic) is None
        and not header.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        and not any(name in properties for name in _FOR_THE_MASTER)
    )


def _check_topic(conn: Connection, header: SendHeader, topic: TopicConfig) -> Refusal | None:
    queues = max(topic.write_queue_nums, topic.read_queue_nums)
    if header.queue_id >= queues and not topic_rules.has_queue(topic, header.queue_id, queues):
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{header.queue_id}] is illegal, topic[{topic.topic_name}] has"
            f" {topic.write_queue_nums} write queues, Producer: {conn.peer}",
        )
    if not topic.perm & PERM_WRITE:
        return Refusal(
            ResponseCode.NO_PERMISSION,
            f"the topic[{topic.topic_name}] sending message is forbidden",
        )
    return None


def _check_message(
    body: bytes, header: SendHeader, asked: Mapping[str, str], is_half: bool
) -> Refusal | None:
    """Refuse what this broker would have to treat in a way it does not offer."""
    if not body:
        return _illegal("its body is empty")
    if len(body) > MAX_BODY_BYTES:
        return _illegal(f"its body has {len(body)} bytes of at most {MAX_BODY_BYTES}")
    transaction = header.sys_flag & TRANSACTION_MASK
    if transaction and not (is_half and transaction == TRANSACTION_PREPARED):
        return _illegal(
            f"its system flag {header.sys_flag} is that of another step of a transaction"
        )
    if header.batch and topic_rules.is_retry(header.topic):
        return _illegal("a retry topic takes no batches")
    if header.batch and len(header.topic) > MAX_TOPIC_V1_BYTES:
        return _illegal(f"the topic of a batch has at most {MAX_TOPIC_V1_BYTES} characters")
    if is_half and PRODUCER_GROUP not in asked:
        return _illegal("a half message has to name its producer group (PGROUP)")
    if _RECALL in asked:
        return _illegal(f"to take a message back is another request than a send with {_RECALL}")
    return None


def is_half_message(header: SendHeader, asked: Mapping[str, str]) -> bool:
    """Whether it begins a transaction; a retried copy of a committed message does not."""
    return _says_half(asked) and not header.batch and not topic_rules.is_retry(header.topic)


def _says_half(asked: Mapping[str, str]) -> bool:
    return asked.get(TRAN_MSG, "").lower() == "true"


def asks_for_delay(asked: Mapping[str, str]) -> bool:
    """Whether it names a delay level or a moment, maybe one that is no delay."""
    return DELAY_TIME_LEVEL in asked or not _TIMER_NAMES.isdisjoint(asked)


def _priority(asked: Mapping[str, str]) -> int | None:
    """The priority of a message, from 0; None without one, and where something else places it.

    A message has one kind: one that waits, is half or belongs to a message group has no priority.
    """
    text = asked.get(PRIORITY, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= _PRIORITY_DIGITS):
        return None
    if _says_half(asked) or asks_for_delay(asked) or SHARDING_KEY in asked:
        return None
    return int(text)


def check_body_and_properties(body: bytes, properties: str) -> None:
    """Refuse what no record can hold.

    Raises:
        RecordError: says which part.
    """
    if not body:
        raise RecordError("its body is empty.")
    size = len(properties) if properties.isascii() else len(properties.encode())
    if size > MAX_PROPERTIES_BYTES:
        raise RecordError(f"its properties have {size} bytes of at most {MAX_PROPERTIES_BYTES}.")
