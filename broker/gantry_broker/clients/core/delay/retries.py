"""The fate of a message that a consumer could not consume: another try later, or the end.

Upstream: ``AbstractSendMessageProcessor.consumerSendMsgBack`` (36) and ``handleRetryAndDLQ`` (a
consumer that sends the message to its retry topic itself). The two compare with the limit in
different ways, and so do clients count; both are kept, as 5.x does.
"""

from typing import NamedTuple

from gantry_protocol.records import (
    Host,
    MessageRecord,
    decode_properties,
    encode_properties,
    offset_msg_id,
)
from gantry_protocol.records.properties import (
    DELAY_TIME_LEVEL,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT_STORE_MSG_OK,
)
from msgspec.structs import replace

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
FIRST_RETRY_LEVEL = 3  # of the first retry, where the client names none: 10 s at the defaults
DEAD_LETTER_LEVEL = "-1"  # as the DELAY of dead letters


class Fate(NamedTuple):
    """The destination of a failed message.

    Attributes:
        topic: a retry or dead-letter topic.
        level: delay level, from 1; 0 for none.
    """

    topic: str
    level: int

    @property
    def is_dead(self) -> bool:
        """Whether this was the last try."""
        return self.level == 0


def fate(group: str, reconsumed: int, limit: int, delay_level: int) -> Fate:
    """The fate of a message that ``group`` sends back.

    Args:
        group: the consumer group.
        reconsumed: how often the message had been tried again when it failed.
        limit: how often that may be.
        delay_level: as the client named it; 0 leaves it to the broker, below 0 gives up.
    """
    if reconsumed >= limit or delay_level < 0:
        return Fate(DEAD_LETTER_PREFIX + group, 0)
    return Fate(RETRY_PREFIX + group, delay_level or FIRST_RETRY_LEVEL + reconsumed)


def is_spent(reconsumed: int, limit: int) -> bool:
    """Whether a message that a consumer resends itself has had its last try; below 0: no limit."""
    return 0 <= limit < reconsumed


def returned(record: MessageRecord, to: Fate, queue_id: int, store_host: Host) -> MessageRecord:
    """The next copy of a failed ``record``; not parked yet.

    Raises:
        RecordError: its properties hold what none may hold.
    """
    properties = decode_properties(record.properties)
    properties.setdefault(RETRY_TOPIC, record.topic)
    if ORIGIN_MESSAGE_ID not in properties:
        host, port = record.store_host
        properties[ORIGIN_MESSAGE_ID] = offset_msg_id(host, port, record.physical_offset)
    properties[WAIT_STORE_MSG_OK] = "false"
    properties.pop(DELAY_TIME_LEVEL, None)
    if to.is_dead:
        properties[DELAY_TIME_LEVEL] = DEAD_LETTER_LEVEL
    return replace(
        record,
        topic=to.topic,
        queue_id=queue_id,
        properties=encode_properties(properties),
        store_host=store_host,
        reconsume_times=record.reconsume_times + 1,
    )
