"""Messages of producers, as a broker stores them.

Upstream: ``SendMessageActivity``. Bounds and codes are upstream's; so is the order of the checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from gantry_protocol.lite import LITE_TOPIC
from gantry_protocol.records.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    KEYS,
    PRIORITY,
    PRODUCER_GROUP,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    WAIT_STORE_MSG_OK,
    encode_properties,
)

from gantry_proxy.core.lites import lite_topic_of
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.core.resources import topic_of
from gantry_proxy.core.times import read_ms
from gantry_proxy.messages import ENCODINGS, MESSAGE_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

BODY_BYTES_MAX = 4 * 1024 * 1024
USER_PROPERTIES_MAX = 128
PROPERTY_BYTES_MAX = 16 * 1024
GROUP_BYTES_MAX = 64
DELAY_MAX_MS = 40 * 24 * 3_600_000  # as brokers take it
RECOVERY_MAX_S = 3_600
COMPRESSED, PREPARED = 0x1, 0x4
KEY_SEPARATOR = " "

TRACE_CONTEXT = "TRACE_CONTEXT"
CHECK_IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
RECONSUME_TIME = "RECONSUME_TIME"

SYSTEM = frozenset(
    {
        *(KEYS, TAGS, UNIQ_KEY, WAIT_STORE_MSG_OK, PRODUCER_GROUP, TRANSACTION_PREPARED),
        *(PRIORITY, SHARDING_KEY, BORN_HOST, BORN_TIMESTAMP, TRACE_CONTEXT, TIMER_DELIVER_MS),
        *(CHECK_IMMUNITY_S, RECONSUME_TIME, "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID"),
        *("MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG"),
        *("CORRECTION_FLAG", "MQ2_FLAG", "MSG_REGION", "TRACE_ON", "INSTANCE_ID", "POP_CK"),
        *("MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK_OFFSET", "1ST_POP_TIME"),
        *("EXTEND_UNIQ_INFO", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "PUSH_REPLY_TIME"),
        *("CLUSTER", "MSG_TYPE", "INNER_NUM", "INNER_BASE", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"),
        *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS"),
        *("TIMER_DEL_UNIQKEY", "DUP_INFO", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"),
        *(LITE_TOPIC, "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"),
        *("__transactionId__", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),
    }
)


class Outgoing(msgspec.Struct, frozen=True):
    """A message to be sent.

    Attributes:
        topic: where to.
        message_id: the client's own, its unique key.
        body: as it came.
        properties: of the record, as text.
        sys_flag: compressed, prepared.
        born_ms: by the client's clock; 0 if it does not say.
        message_group: messages of one go to one queue, as those of a lite topic do; empty for any.
        has_priority: its broker chooses its queue.
        is_transaction: it is a half message.
    """

    topic: str
    message_id: str
    body: bytes
    properties: str
    sys_flag: int
    born_ms: int
    message_group: str
    has_priority: bool
    is_transaction: bool


def outgoing(messages: Sequence[Any], peer: str, now_ms: int) -> list[Outgoing]:
    """The messages of a SendMessage.

    Args:
        messages: as they came.
        peer: who sent them, host and port.
        now_ms: the wall clock.

    Raises:
        CallRefused: none, of several topics, or with something in them that must not be.
    """
    if not messages:
        raise CallRefused("MESSAGE_CORRUPTED", "no message to send")
    made = [_outgoing(message, peer, now_ms) for message in messages]
    if len({item.topic for item in made}) > 1:
        raise CallRefused("MESSAGE_CORRUPTED", "topic in message is not same")
    if len(made) > 1 and any(
        item.is_transaction or item.message_group or item.has_priority for item in made
    ):
        text = "a batch holds no transactions, message groups, lite topics or priorities"
        raise CallRefused("MESSAGE_CORRUPTED", text)
    if len({item.sys_flag for item in made}) > 1:
        raise CallRefused("MESSAGE_CORRUPTED", "a batch is compressed as a whole, or not at all")
    return made


def _outgoing(message: Any, peer: str, now_ms: int) -> Outgoing:
    system = message.system_properties
    topic = topic_of(message.topic)
    if len(message.body) > BODY_BYTES_MAX:
        text = f"message body cannot exceed the max {BODY_BYTES_MAX}"
        raise CallRefused("MESSAGE_BODY_TOO_LARGE", text)
    if not message.body:
        raise CallRefused("MESSAGE_BODY_EMPTY", "message body cannot be empty")
    prepared = system.message_type == MESSAGE_TYPES["TRANSACTION"]
    properties = _user_properties(message) | _system_properties(system, topic, peer, now_ms)
    compressed = system.body_encoding == ENCODINGS["GZIP"]
    return Outgoing(
        topic=topic,
        message_id=system.message_id,
        body=message.body,
        properties=encode_properties(properties),
        sys_flag=(COMPRESSED if compressed else 0) | (PREPARED if prepared else 0),
        born_ms=read_ms(system.born_timestamp),
        message_group=system.message_group or system.lite_topic,
        has_priority=system.HasField("priority"),
        is_transaction=prepared,
    )


def _user_properties(message: Any) -> dict[str, str]:
    found = dict(message.user_properties)
    if len(found) > USER_PROPERTIES_MAX:
        text = f"too many user properties, max is {USER_PROPERTIES_MAX}"
        raise CallRefused("MESSAGE_PROPERTIES_TOO_LARGE", text)
    for name, value in found.items():
        if name in SYSTEM:
            raise CallRefused("ILLEGAL_MESSAGE_PROPERTY_KEY", f"property is used by system: {name}")
        if _has_control(name + value):
            text = "the key and the value of property cannot contain control character"
            raise CallRefused("ILLEGAL_MESSAGE_PROPERTY_KEY", text)
    system = message.system_properties
    texts = (*found, *found.values(), system.tag, *system.keys)
    if sum(len(text.encode()) for text in texts) > PROPERTY_BYTES_MAX:
        text = f"the total size of user property is too large, max is {PROPERTY_BYTES_MAX}"
        raise CallRefused("MESSAGE_PROPERTIES_TOO_LARGE", text)
    return found


def _system_properties(system: Any, topic: str, peer: str, now_ms: int) -> dict[str, str]:
    if not system.message_id.strip() or _has_control(system.message_id):
        raise CallRefused("ILLEGAL_MESSAGE_ID", "message id cannot be empty")
    born_ms = read_ms(system.born_timestamp) or now_ms
    found = _words(system) | {
        UNIQ_KEY: system.message_id,
        WAIT_STORE_MSG_OK: "true",
        PRODUCER_GROUP: topic,  # upstream's choice: whoever sends to a topic may be asked
        BORN_TIMESTAMP: str(born_ms),
    }
    if system.message_type == MESSAGE_TYPES["TRANSACTION"]:
        found[TRANSACTION_PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            found[CHECK_IMMUNITY_S] = str(_recovery_s(system))
    if system.HasField("delivery_timestamp"):
        due_ms = read_ms(system.delivery_timestamp, "ILLEGAL_DELIVERY_TIME")
        if due_ms - now_ms > DELAY_MAX_MS:
            text = f"the max delay time of message is too large, max is {DELAY_MAX_MS}"
            raise CallRefused("ILLEGAL_DELIVERY_TIME", text)
        found[TIMER_DELIVER_MS] = str(due_ms)
    origin = {TRACE_CONTEXT: system.trace_context, BORN_HOST: system.born_host or peer}
    return found | {name: text for name, text in origin.items() if text and not _has_control(text)}


def _words(system: Any) -> dict[str, str]:
    """Tag, keys, message group, lite topic and priority."""
    found = {}
    if system.tag:
        if "|" in system.tag or _has_control(system.tag) or not system.tag.strip():
            text = "tag is blank, or holds '|' or a control character"
            raise CallRefused("ILLEGAL_MESSAGE_TAG", text)
        found[TAGS] = system.tag
    if system.keys:
        if any(_has_control(key) or not key.strip() for key in system.keys):
            raise CallRefused("ILLEGAL_MESSAGE_KEY", "key is blank, or holds a control character")
        found[KEYS] = KEY_SEPARATOR.join(system.keys)
    if system.message_group:
        group = system.message_group
        if _has_control(group) or not group.strip() or len(group.encode()) >= GROUP_BYTES_MAX:
            text = (
                f"message group is blank, holds a control character, or exceeds {GROUP_BYTES_MAX}"
            )
            raise CallRefused("ILLEGAL_MESSAGE_GROUP", text)
        found[SHARDING_KEY] = group
    lite = lite_topic_of(system)
    if lite is not None:
        found[LITE_TOPIC] = lite
    if system.HasField("priority"):
        if system.priority < 0:
            raise CallRefused("BAD_REQUEST", f"priority {system.priority} is below 0")
        found[PRIORITY] = str(system.priority)
    return found


def _recovery_s(system: Any) -> int:
    seconds = int(system.orphaned_transaction_recovery_duration.seconds)
    if not 0 <= seconds <= RECOVERY_MAX_S:
        text = f"the max transaction recovery time of message is too large, max is {RECOVERY_MAX_S}"
        raise CallRefused("BAD_REQUEST", text)
    return seconds


def _has_control(text: str) -> bool:
    return any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in text)
