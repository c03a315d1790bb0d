"""Stored messages, as consumers get them. Upstream: ``GrpcConverter``."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from gantry_protocol.lite import LITE_TOPIC
from gantry_protocol.records.ids import offset_msg_id
from gantry_protocol.records.properties import (
    BORN_HOST,
    DELAY_TIME_LEVEL,
    KEYS,
    PRIORITY,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    decode_properties,
)

from gantry_proxy.core.outgoing import (
    COMPRESSED,
    SYSTEM,
    TRACE_CONTEXT,
)
from gantry_proxy.core.resources import fill
from gantry_proxy.core.times import write_ms
from gantry_proxy.messages import ENCODINGS, MESSAGE_TYPES, Message

if TYPE_CHECKING:
    from gantry_protocol.records.record import MessageRecord

DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
MD5 = 2
INT32_MAX = 2**31 - 1


def message_of(record: MessageRecord, handle: str | None, attempt: int | None = None) -> Any:
    """A ``Message``.

    Args:
        record: as it is stored.
        handle: the receipt handle; None for a message that was pulled.
        attempt: which delivery this is, from 1; None: what the record says.
    """
    properties = decode_properties(record.properties)
    made = Message(body=record.body)
    fill(made.topic, record.topic)
    for name, value in properties.items():
        if name not in SYSTEM:
            made.user_properties[name] = value
    _describe(made.system_properties, record, properties)
    system = made.system_properties
    system.delivery_attempt = record.reconsume_times + 1 if attempt is None else attempt
    if handle is not None:
        system.receipt_handle = handle
    return made


def _describe(system: Any, record: MessageRecord, properties: dict[str, str]) -> None:
    if TAGS in properties:
        system.tag = properties[TAGS]
    system.keys.extend(properties.get(KEYS, "").split())
    host, port = record.store_host
    own_id = offset_msg_id(host, port, record.physical_offset)
    system.message_id = properties.get(UNIQ_KEY, own_id)
    system.body_digest.type = MD5
    system.body_digest.checksum = (
        hashlib.md5(record.body, usedforsecurity=False).hexdigest().upper()
    )
    is_compressed = record.sys_flag & COMPRESSED
    system.body_encoding = ENCODINGS["GZIP" if is_compressed else "IDENTITY"]
    system.message_type = MESSAGE_TYPES[_type_of(properties)]
    write_ms(system.born_timestamp, record.born_timestamp)
    system.born_host = properties.get(BORN_HOST) or f"{record.born_host[0]}:{record.born_host[1]}"
    write_ms(system.store_timestamp, record.store_timestamp)
    system.store_host = f"{host}:{port}"
    system.queue_id, system.queue_offset = record.queue_id, record.queue_offset
    due_ms = properties.get(TIMER_DELIVER_MS, "")
    if due_ms.isascii() and due_ms.isdecimal() and len(due_ms) < 16:
        write_ms(system.delivery_timestamp, int(due_ms))
    if SHARDING_KEY in properties:
        system.message_group = properties[SHARDING_KEY]
    if LITE_TOPIC in properties:
        system.lite_topic = properties[LITE_TOPIC]
    level = properties.get(PRIORITY, "")
    if level.isascii() and level.isdecimal() and len(level) <= 10 and int(level) <= INT32_MAX:
        system.priority = int(level)
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    if DLQ_ORIGIN_TOPIC in properties and DLQ_ORIGIN_MESSAGE_ID in properties:
        system.dead_letter_queue.topic = properties[DLQ_ORIGIN_TOPIC]
        system.dead_letter_queue.message_id = properties[DLQ_ORIGIN_MESSAGE_ID]


def _type_of(properties: dict[str, str]) -> str:
    if properties.get(TRANSACTION_PREPARED) == "true":
        return "TRANSACTION"
    if DELAY_TIME_LEVEL in properties or TIMER_DELIVER_MS in properties:
        return "DELAY"
    if LITE_TOPIC in properties:
        return "LITE"
    if SHARDING_KEY in properties:
        return "FIFO"
    return "PRIORITY" if PRIORITY in properties else "NORMAL"
