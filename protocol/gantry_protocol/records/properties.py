"""Message properties: ``name 0x01 value 0x02``, repeated, as one text.

Upstream: ``MessageDecoder.messageProperties2String`` and ``string2messageProperties``. Two oddities
of upstream are kept, because clients live with them: an empty value vanishes on reading, and 4.9
clients leave out the last separator, so whoever appends must put it in.

Two properties decide what the entry of a record's queue says (``entry_code``): its tags, or, of a
parked message, when it is due. Upstream: ``TopicValidator.RMQ_SYS_SCHEDULE_TOPIC``,
``ScheduleMessageService``. One queue per delay level; the tags code of an entry is the delivery
time in ms.

Rule protected: the entry follows from the record alone (H12). Upstream computes it from the
broker's table of levels, so that a replica with another table, or a later start, has other entries.
Here the record says its own delay in a property that is taken off again at delivery.
"""

from collections.abc import Mapping
from functools import lru_cache

from gantry_protocol.errors import RecordError

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"

# org.apache.rocketmq.common.message.MessageConst
KEYS = "KEYS"
TAGS = "TAGS"
WAIT_STORE_MSG_OK = "WAIT"
UNIQ_KEY = "UNIQ_KEY"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
CLUSTER = "CLUSTER"
DELAY_TIME_LEVEL = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
TRANSACTION_PREPARED = "TRAN_MSG"
TRANSACTION_ID = "__transactionId__"
PRODUCER_GROUP = "PGROUP"
POP_CK = "POP_CK"
PRIORITY = "_SYS_MSG_PRIORITY_"
SHARDING_KEY = "__SHARDINGKEY"  # messages of one go to one queue
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"  # the client that waits for a reply, in both of the messages
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
BORN_HOST = "__BORNHOST"  # set by a proxy: whence a message came there,
BORN_TIMESTAMP = "BORN_TIMESTAMP"  # and when its client sent it, this time
TIMER_DELAY_S = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"  # set by the broker: when the message is due, or was

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # this very name
DELAY_MS = "__GANTRY_DELAY_MS"  # of a parked record: how long after its store time it is due
LEFT_MS = "__GANTRY_LEFT_MS"  # of a timer's: for how much longer it is to be parked then
_SCHEDULE = SCHEDULE_TOPIC.encode()
_TAGS = TAGS.encode() + b"\x01"


def encode_properties(properties: Mapping[str, str]) -> str:
    """The text of ``properties``, with the last separator.

    Raises:
        RecordError: a name or value holds a separator, so that it would be read as something else.
    """
    parts = []
    for name, value in properties.items():
        if NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name + value:
            raise RecordError(f"The property {name!r} holds a separator (byte 1 or 2).")
        parts.append(f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}")
    return "".join(parts)


def decode_properties(text: str) -> dict[str, str]:
    """The properties in ``text``; malformed pieces are left out, later duplicates win."""
    properties: dict[str, str] = {}
    for piece in text.split(PROPERTY_SEPARATOR):
        name, _, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def append_properties(text: str, additions: Mapping[str, str]) -> str:
    """``text`` with ``additions`` after it, and between them the separator 4.9 clients omit."""
    if text and not text.endswith(PROPERTY_SEPARATOR):
        text += PROPERTY_SEPARATOR
    return text + encode_properties(additions)


def without_property(text: str, name: str) -> str:
    """``text`` without any property called ``name``; the rest is kept as it is."""
    start = name + NAME_VALUE_SEPARATOR
    if start not in text:
        return text
    pieces = text.split(PROPERTY_SEPARATOR)
    return PROPERTY_SEPARATOR.join(piece for piece in pieces if not piece.startswith(start))


def find_property(encoded: bytes, name: str) -> str | None:
    """The value :func:`decode_properties` would give ``name``, without building the others."""
    needle = name.encode() + b"\x01"
    at = len(encoded)
    while (at := encoded.rfind(needle, 0, at + len(needle) - 1)) >= 0:
        if at == 0 or encoded[at - 1] == 2:
            start = at + len(needle)
            end = encoded.find(b"\x02", start)
            value = encoded[start:] if end < 0 else encoded[start:end]
            if value:
                return value.decode("utf-8", "replace")
    return None


@lru_cache(maxsize=4096)
def tags_code(tags: str) -> int:
    """Java's ``String.hashCode`` of the tag text, a signed int32; 0 without a tag.

    Consume queues hold it as an int64. Consumers compare it with what Java computed, so it runs
    over UTF-16 units.
    """
    units = tags.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8) + units[at + 1]) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code


def delay_of(properties: bytes) -> int:
    """The delay of a parked record after its store time, ms; 0 if it does not say."""
    found = find_property(properties, DELAY_MS)
    return int(found) if found is not None and found.isascii() and found.isdigit() else 0


def entry_code(topic: bytes, properties: bytes, store_timestamp: int) -> int:
    """The tags code of a record's queue entry: a delivery time (ms) for a parked record."""
    if topic == _SCHEDULE:
        return store_timestamp + delay_of(properties)
    at = properties.rfind(_TAGS)
    if at < 0:
        return 0
    stop = properties.find(b"\x02", at)
    if stop > at + len(_TAGS) and (at == 0 or properties[at - 1] == 2):
        return _code(properties[at + len(_TAGS) : stop])
    tags = find_property(properties, TAGS)  # not what a client writes; the long way
    return 0 if tags is None else tags_code(tags)


@lru_cache(maxsize=4096)
def _code(tags: bytes) -> int:
    return tags_code(tags.decode("utf-8", "replace"))
