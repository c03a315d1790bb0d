"""Queues, topics and consumer offsets, derived from the commit log; the message store."""

from gantry_broker.queues.message_store import MessageStore, StoredAt
from gantry_broker.queues.offsets import OFFSETS_TOPIC, ConsumerOffsets
from gantry_broker.queues.reads import GetResult, GetStatus, Limits
from gantry_broker.queues.state_records import STATE_TOPIC
from gantry_broker.queues.topics import (
    TOPICS_TOPIC,
    TopicChange,
    TopicTable,
    change_record,
)

__all__ = [
    "OFFSETS_TOPIC",
    "STATE_TOPIC",
    "TOPICS_TOPIC",
    "ConsumerOffsets",
    "GetResult",
    "GetStatus",
    "Limits",
    "MessageStore",
    "StoredAt",
    "TopicChange",
    "TopicTable",
    "change_record",
]
