"""The body of a batch send (code 320): several messages of one topic and queue.

Upstream: ``MessageDecoder.encodeMessage``. Each is total size, magic 0, CRC 0, flag, body size,
body, properties size, properties; topic, queue and born time come from the request's header. Magic,
CRC and total size are not read, as upstream does not; the parts must fill the body exactly.
"""

import struct
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


def split_batch(body: bytes) -> list[BatchMessage]:
    """The messages in the body of a batch.

    Raises:
        RecordError: a length leads out of the body, or properties are not UTF-8.
    """
    messages = []
    position = 0
    try:
        while position < len(body):
            _total, _magic, _crc, flag, body_size = _HEAD.unpack_from(body, position)
            start = position + _HEAD.size
            end = _checked_end(start, body_size, len(body))
            (properties_size,) = _INT16.unpack_from(body, end)
            properties_start = end + _INT16.size
            position = _checked_end(properties_start, properties_size, len(body))
            properties = body[properties_start:position].decode()
            messages.append(BatchMessage(body[start:end], properties, flag))
    except (struct.error, UnicodeDecodeError) as error:
        raise RecordError(
            f"The batch is malformed after {len(messages)} messages: {error}."
        ) from error
    return messages


def _checked_end(start: int, size: int, limit: int) -> int:
    if size < 0 or start + size > limit:
        raise RecordError(
            f"A part of the batch claims {size} bytes where {limit - start} are left."
        )
    return start + size
