"""The body of a batch send (code 320): several messages of one topic and queue.

Upstream: ``MessageDecoder.encodeMessage``. Each is total size, magic 0, CRC 0, flag, body size,
body, properties size, properties; topic, queue and born time come from the request's header. Magic,
CRC and total size are not read, as upstream does not; the parts must fill the body exactly.
"""

import struct
import sys
from collections.abc import Iterable

import msgspec

from gantry_protocol.errors import RecordError
from gantry_protocol.records.layout import MAX_PROPERTIES_BYTES

_HEAD = struct.Struct(">iiiii")  # total size, magic, CRC, flag, body size
_INT16 = struct.Struct(">h")


class BatchMessage(msgspec.Struct, frozen=True):
    """One message of a batch."""

    body: bytes
    properties: str = ""
    flag: int = 0


def encode_batch(messages: Iterable[BatchMessage]) -> bytes:
    """The body of a batch.

    Raises:
        RecordError: a message's properties are too long.
    """
    parts = []
    for message in messages:
        properties = message.properties.encode()
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise RecordError(
                f"The properties take {len(properties)} bytes; {MAX_PROPERTIES_BYTES} are allowed."
            )
        total = _HEAD.size + len(message.body) + _INT16.size + len(properties)
        parts.append(_HEAD.pack(total, 0, 0, message.flag, len(message.body)))
        parts.append(message.body)
        parts.append(_INT16.pack(len(properties)))
        parts.append(properties)
    return b"".join(parts)


def split_batch(body: bytes, messages_max: int = sys.maxsize) -> list[BatchMessage]:
    """The messages in the body of a batch.

    Raises:
        RecordError: a length leads out of the body, properties are not UTF-8, or there are more
            than ``messages_max``.
    """
    messages: list[BatchMessage] = []
    position, limit = 0, len(body)
    unpack_head, unpack_size = _HEAD.unpack_from, _INT16.unpack_from
    head_size, number_size = _HEAD.size, _INT16.size
    try:
        while position < limit:
            if len(messages) == messages_max:
                raise too_many(messages_max)
            _total, _magic, _crc, flag, body_size = unpack_head(body, position)
            start = position + head_size
            end = start + body_size
            if body_size < 0 or end > limit:
                raise _beyond(body_size, limit - start)
            (properties_size,) = unpack_size(body, end)
            at = end + number_size
            position = at + properties_size
            if properties_size < 0 or position > limit:
                raise _beyond(properties_size, limit - at)
            properties = str(body[at:position], "utf-8")
            messages.append(BatchMessage(body[start:end], properties, flag))
    except (struct.error, UnicodeDecodeError) as error:
        raise RecordError(
            f"The batch is malformed after {len(messages)} messages: {error}."
        ) from error
    return messages


def too_many(messages_max: int) -> RecordError:
    """The error of a batch with more messages than that."""
    return RecordError(
        f"The batch holds more than {messages_max} messages: send smaller ones, or raise the"
        " broker's max_batch_messages."
    )


def _beyond(size: int, left: int) -> RecordError:
    return RecordError(f"A part of the batch claims {size} bytes where {left} are left.")
