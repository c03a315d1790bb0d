"""Sends: SendMessage (10), SendMessageV2 (310) and SendBatchMessage (320).

The order of checks and the codes are upstream's (``AbstractSendMessageProcessor.msgCheck``,
``SendMessageProcessor``), because producers act on the code alone. A send is one pass: header to
record to log; no task, no copy of the body but the one into the log. The answer is 0 only when the
record is confirmed; a client's wish not to wait for that (``WAIT=false``) is not granted.

A message with a delay level is parked (``core.delay.parked``); its answer names the queue that was
asked for, and the place where it waits. A consumer that sends a failed message to its retry topic
itself asks for a delay, too; after the last try the message goes to the dead letters instead, and
so does every message that a group resends while it holds queue locks, since a group that consumes
in order resends only what it gives up. A half message (``TRAN_MSG``) goes to the half topic and is
answered in the same way: its producer ends the transaction by that place and no other.

What is not offered is refused in words and never stored as something else: messages timed to the
second (5.x).
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.bodies.route import PERM_WRITE
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import FLAG_ONEWAY, RemotingCommand, reply
from gantry_protocol.errors import RecordError
from gantry_protocol.headers.client import SendMessageRequestHeader, SendMessageRequestHeaderV2
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.hosts import split_address
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
    PRODUCER_GROUP,
    PROPERTY_SEPARATOR,
    TRACE_ON,
    UNIQ_KEY,
)
from gantry_protocol.records.properties import TRANSACTION_PREPARED as TRAN_MSG
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.send_answer import MAY_BE_STORED, OFFSETS_MAX, SendAnswers
from msgspec.structs import replace

from gantry_broker.clients import topic_rules
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.delay.parked import park, wanted_level
from gantry_broker.clients.core.delay.retries import (
    DEAD_LETTER_LEVEL,
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    is_spent,
)
from gantry_broker.clients.core.transactions.records import half_record
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.locks import QueueLocks
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.transactions import Transactions
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import Appended, Records, Refusal, SendOutcome, StoredAt
from gantry_broker.store.stored import offsets_of

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

REGION = "DefaultRegion"  # upstream's default regionId
HOST = "host"  # in a connection's attrs: the address of its client, which has sent something
_ANSWER_EXT = {MSG_REGION: REGION, TRACE_ON: "true"}
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_TIMER_PROPERTIES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY")
_TIMER_START = "TIMER_DEL"  # of each of them
_TIMER_NAMES = frozenset(_TIMER_PROPERTIES)
_DELAYED_BATCH = "a batch cannot be delayed."
# What each message of a batch is refused for, as far as a glance at all of them tells.
_SPECIAL = tuple(name.encode() for name in (_TIMER_START, DELAY_TIME_LEVEL, TRAN_MSG))
_NOT_STORED = tuple(  # each with the separator that follows it
    name + NAME_VALUE_SEPARATOR for name in (POP_CK, MSG_REGION, TRACE_ON, CLUSTER)
)
MAX_BATCH_MESSAGES = 16_384  # 1 MiB, upstream's advice, holds 14,000 of the smallest from Java
# What a message of a batch costs later: 2 µs to dispatch it here, 4 µs in each of two replicas.
_LATER_S = 10e-6
_FEW = 64  # messages of a batch; later work like that of as many sends is within what sends may do
_LONG_NAMES = RequestCode.SEND_MESSAGE  # to look a member up costs a tenth of a microsecond
_CONFIRMED = ResponseCode.SUCCESS


class Sender:
    """Serves sends on one group."""

    def __init__(
        self,
        view: GroupView,
        creation: TopicCreation,
        locks: QueueLocks,
        levels: DelayLevels,
        transactions: Transactions,
        traffic: Traffic,
        clock: Callable[[], float],
        max_batch_messages: int = MAX_BATCH_MESSAGES,
    ) -> None:
        self._view = view
        self._max_batch_messages = max_batch_messages
        self._traffic = traffic
        self._creation = creation
        self._locks = locks
        self._levels = levels
        self._transactions = transactions
        self._clock = clock
        self._unique_keys = UniqueKeys(view.store_host[0])
        self._turn = itertools.count()
        self._store_host = view.store_host
        self._answers = SendAnswers(*view.store_host, _ANSWER_EXT)
        self._added = encode_properties({**_ANSWER_EXT, CLUSTER: view.cluster})

    def send(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve a send."""
        header = _header(request)
        refusal = self._view.accepting_writes() or topic_rules.check_target(header.topic)
        if refusal is not None:
            return _refuse(request, refusal)
        name = self._target_topic(header)
        topic = self._view.store.topics.lookup(name)
        if topic is not None:
            return self._store(conn, request, header, topic)
        wanted = _wanted_topic(name, header)
        if wanted is None:
            return _refuse(request, topic_rules.unknown_topic(name))
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
            conn.reply(request, _refuse(request, refusal))
            return
        answer = self._store(conn, request, header, topic)
        if answer is not None:
            conn.reply(request, answer)

    def _store(
        self, conn: Connection, request: RemotingCommand, header: SendHeader, topic: TopicConfig
    ) -> RemotingCommand | None:
        """Append what was sent; the topic exists."""
        properties = header.properties or ""
        asked = decode_properties(properties)
        is_half = _is_half(header, asked)
        refusal = (
            _check_topic(conn, header, topic)
            or _check_message(request.body, header, asked, is_half)
            or (self._transactions.refuse_half() if is_half else None)
        )
        if refusal is not None:
            return _refuse(request, refusal)
        queue_id = header.queue_id
        if topic.topic_name != header.topic:
            queue_id = 0  # a dead-letter topic
        elif queue_id < 0:
            queue_id = next(self._turn) % topic.write_queue_nums
        unique_key = asked.get(UNIQ_KEY)
        if unique_key is None and not header.batch:
            unique_key = self._unique_keys.next(int(self._clock() * 1000))
            properties = append_properties(properties, {UNIQ_KEY: unique_key})
        try:
            if header.batch:
                records = self._batch(conn, request, header, queue_id, asked)
            else:
                record = self._record(conn, header, topic, queue_id, request.body, properties)
                if is_half or DELAY_TIME_LEVEL in asked:
                    record = self._waiting(record, asked, unique_key if is_half else None)
                records = [record]
            done = partial(self._ended, conn, request, topic.topic_name, queue_id, unique_key)
            if len(records) > _FEW:
                self._append_batch(conn, records, done)
            else:
                self._view.store.append(records, done)
        except RecordError as error:
            return _refuse(request, _illegal(str(error)))
        return None

    def _append_batch(self, conn: Connection, records: Records, done: Appended) -> None:
        """Append many records; until they are confirmed their later cost is owed."""
        later_s = _LATER_S * len(records)

        def stored(outcome: SendOutcome) -> None:
            conn.turns.settle(later_s)
            done(outcome)

        self._view.store.append(records, stored)
        conn.turns.owe(later_s)

    def sought(self, conn: Connection, request: RemotingCommand) -> list[MessageRecord]:
        """The records that a send would store; none if it would be refused.

        Their queue is -1 where the sender leaves it to the broker, and the broker gives no key.
        """
        header = _header(request)
        topic = self._view.store.topics.lookup(self._target_topic(header))
        if topic is None or self._view.accepting_writes() is not None:
            return []
        properties = header.properties or ""
        asked = decode_properties(properties)
        queue_id = header.queue_id if topic.topic_name == header.topic else 0
        try:
            if header.batch:
                return list(self._batch(conn, request, header, queue_id, asked))
            record = self._record(conn, header, topic, queue_id, request.body, properties)
            is_half = _is_half(header, asked)
            if is_half or DELAY_TIME_LEVEL in asked:
                record = self._waiting(record, asked, asked.get(UNIQ_KEY, "") if is_half else None)
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

        A message without a unique key was given one by the broker that stored it.
        """
        header = _header(request)
        queue_id = stored[0].queue_id if header.queue_id < 0 else header.queue_id
        unique_key = decode_properties(header.properties or "").get(UNIQ_KEY, given_key)
        outcome = SendOutcome(_CONFIRMED, None, stored)
        self._ended(conn, request, self._target_topic(header), queue_id, unique_key, outcome)

    def _waiting(
        self, record: MessageRecord, asked: Mapping[str, str], half_of: str | None
    ) -> MessageRecord:
        """A message that asks for a delay, or the half message ``half_of``, as it waits."""
        is_dead = record.topic.startswith(DEAD_LETTER_PREFIX)
        level = 0 if is_dead else wanted_level(asked)
        if half_of is not None:
            if level > 0:
                raise RecordError("a half message cannot be delayed")
            return half_record(record, half_of)
        return park(record, level, self._levels) if level > 0 else record

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
        most = self._max_batch_messages
        run = scan_run(request.body, common, _SPECIAL, most)
        return self._batch_one_by_one(request.body, common) if run is None else run

    def _batch_one_by_one(self, body: bytes, common: MessageRecord) -> Records:
        """The long way, which says what is wrong with a batch."""
        messages = split_batch(body, self._max_batch_messages)
        if not messages:
            raise RecordError("The batch holds no message.")
        for message in messages:
            _check_body_and_properties(message.body, message.properties)
            asked = decode_properties(message.properties)
            unsupported = _unsupported(asked)
            if unsupported is not None:
                raise RecordError(unsupported)
            if wanted_level(asked) > 0:
                raise RecordError(_DELAYED_BATCH)
            if _says_half(asked):
                raise RecordError("half messages cannot be sent in a batch")
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
        _check_body_and_properties(body, properties)
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
        if properties and properties[-1] != PROPERTY_SEPARATOR:
            properties += PROPERTY_SEPARATOR
        properties += self._added
        if topic.topic_name.startswith(DEAD_LETTER_PREFIX):
            properties = without_property(properties, DELAY_TIME_LEVEL)
            properties = append_properties(properties, {DELAY_TIME_LEVEL: DEAD_LETTER_LEVEL})
        return properties

    def _target_topic(self, header: SendHeader) -> str:
        """Where the message goes: what a consumer gives up goes to the dead letters."""
        topic = header.topic
        if not topic_rules.is_retry(topic):
            return topic
        group = topic.removeprefix(RETRY_PREFIX)
        limit = header.max_reconsume_times
        if limit is None:
            limit = self._view.consumers.config(group).retry_max_times
        if is_spent(header.reconsume_times or 0, limit) or self._locks.is_held(group):
            return DEAD_LETTER_PREFIX + group
        return topic

    def _ended(
        self,
        conn: Connection,
        request: RemotingCommand,
        topic: str,
        queue_id: int,
        unique_key: str | None,
        outcome: SendOutcome,
    ) -> None:
        """What was sent is confirmed, or will not be: count and answer it.

        The answer names the queue that was asked for, where a parked or half message does not wait.
        """
        stored = outcome.stored
        is_confirmed = outcome.code == _CONFIRMED and len(stored) > 0
        if is_confirmed:
            self._traffic.put(topic, len(stored))
        if request.flag & FLAG_ONEWAY:
            return
        if is_confirmed and len(stored) <= OFFSETS_MAX:
            offsets = offsets_of(stored)
            first = stored[0].queue_offset
            frame = self._answers.frame(request.opaque, offsets, queue_id, first, unique_key)
            conn.reply_frame(request, frame)
        else:
            conn.reply(request, self._answer(request, outcome, queue_id, unique_key))

    def _answer(
        self,
        request: RemotingCommand,
        outcome: SendOutcome,
        queue_id: int,
        unique_key: str | None,
    ) -> RemotingCommand:
        if outcome.code not in _STORED or not outcome.stored:
            # The codes that mean "stored" without positions would break Java clients. And Java's
            # and Go's take them for a result, where they should ask the next master.
            is_unknown = outcome.code in _STORED
            code = ResponseCode.SERVICE_NOT_AVAILABLE if is_unknown else outcome.code
            refusal = Refusal(code, outcome.remark or "the message was not stored")
            answer = _refuse(request, refusal)
            if is_unknown and answer.ext is not None:
                answer.ext[MAY_BE_STORED] = "true"
            return answer
        ext = {
            "msgId": offset_msg_ids(*self._store_host, offsets_of(outcome.stored)),
            "queueId": str(queue_id),
            "queueOffset": str(outcome.stored[0].queue_offset),
            **_ANSWER_EXT,
        }
        if unique_key is not None:
            ext["transactionId"] = unique_key
        return reply(request, outcome.code, outcome.remark, ext)


def _header(request: RemotingCommand) -> SendHeader:
    if request.code == _LONG_NAMES:
        return from_ext(SendMessageRequestHeader, request.ext)
    return from_ext(SendMessageRequestHeaderV2, request.ext)


def _refuse(request: RemotingCommand, refusal: Refusal) -> RemotingCommand:
    return reply(request, refusal.code, refusal.remark, dict(_ANSWER_EXT))


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal, {remark}")


def _host(conn: Connection) -> Host:
    """The sender's address as records hold it."""
    host: Host | None = conn.attrs.get(HOST)
    if host is None:
        host = conn.attrs[HOST] = split_address(conn.peer)
    return host


def _wanted_topic(name: str, header: SendHeader) -> TopicConfig | None:
    if name != header.topic:
        return topic_rules.internal_topic(name)
    return topic_rules.topic_on_demand(name, header.default_topic, header.default_topic_queue_nums)


def _check_topic(conn: Connection, header: SendHeader, topic: TopicConfig) -> Refusal | None:
    queue_id = header.queue_id
    if queue_id >= topic.write_queue_nums and queue_id >= topic.read_queue_nums:
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
    unsupported = _unsupported(asked)
    return None if unsupported is None else _illegal(unsupported)


def _is_half(header: SendHeader, asked: Mapping[str, str]) -> bool:
    """Whether it begins a transaction; a retried copy of a committed message does not."""
    return _says_half(asked) and not header.batch and not topic_rules.is_retry(header.topic)


def _says_half(asked: Mapping[str, str]) -> bool:
    return asked.get(TRAN_MSG, "").lower() == "true"


def _unsupported(asked: Mapping[str, str]) -> str | None:
    """What properties ask for that this broker does not offer."""
    if _TIMER_NAMES.isdisjoint(asked):
        return None
    name = next(name for name in _TIMER_PROPERTIES if name in asked)
    return f"timer messages ({name}) are not supported by this broker"


def _check_body_and_properties(body: bytes, properties: str) -> None:
    """Refuse what no record can hold.

    Raises:
        RecordError: says which part.
    """
    if not body:
        raise RecordError("its body is empty.")
    size = len(properties) if properties.isascii() else len(properties.encode())
    if size > MAX_PROPERTIES_BYTES:
        raise RecordError(f"its properties have {size} bytes of at most {MAX_PROPERTIES_BYTES}.")
