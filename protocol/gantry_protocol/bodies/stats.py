"""Bodies whose maps are keyed by ``MessageQueue``: topic and consume statistics, reset offsets.

Upstream: ``TopicStatsTable``, ``ConsumeStats``, ``ResetOffsetBody``. Java writes such keys as bare
objects, ``{{"brokerName":…}:{…}}``, and readers from 5.4 on accept nothing else, so these bodies
are put together by hand.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from gantry_protocol.bodies.client import MessageQueue
from gantry_protocol.bodies.codec import Body, decode_body, encode_body

ValueT = TypeVar("ValueT")


class TopicOffset(Body, frozen=True):
    """One queue in 202."""

    last_update_timestamp: int
    max_offset: int
    min_offset: int


class OffsetWrapper(Body, frozen=True):
    """One queue in 208."""

    broker_offset: int
    consumer_offset: int
    last_timestamp: int
    pull_offset: int = 0


def encode_queue_map(table: Mapping[MessageQueue, Any]) -> bytes:
    """A map keyed by queues, as Java writes it."""
    pairs = (encode_body(queue) + b":" + encode_body(table[queue]) for queue in table)
    return b"{" + b",".join(pairs) + b"}"


def encode_topic_stats(table: Mapping[MessageQueue, TopicOffset], put_tps: float = 0.0) -> bytes:
    """GetTopicStatsInfo (202)."""
    rate = msgspec.json.encode(float(put_tps))
    return b'{"offsetTable":' + encode_queue_map(table) + b',"topicPutTps":' + rate + b"}"


def encode_consume_stats(table: Mapping[MessageQueue, OffsetWrapper], tps: float = 0.0) -> bytes:
    """GetConsumeStats (208)."""
    rate = msgspec.json.encode(float(tps))
    return b'{"consumeTps":' + rate + b',"offsetTable":' + encode_queue_map(table) + b"}"


def encode_reset_offsets(table: Mapping[MessageQueue, int]) -> bytes:
    """The answer to InvokeBrokerToResetOffset, and the body of ResetConsumerClientOffset."""
    return b'{"offsetTable":' + encode_queue_map(table) + b"}"


def decode_queue_table(
    data: bytes, kind: type[ValueT], name: str = "offsetTable"
) -> dict[MessageQueue, ValueT]:
    """The table ``name`` of any of these bodies, written by us or by Java; empty without it.

    Raises:
        BodyError: it does not read.
    """
    found = decode_body(dict[str, Any], data).get(name, {})
    table = decode_body(dict[str, Any], encode_body(found))
    return {
        decode_body(MessageQueue, key.encode()): decode_body(kind, msgspec.json.encode(value))
        for key, value in table.items()
    }
