"""Records as a store takes them: the bytes, or why no store can hold them."""

from gantry_protocol.errors import RecordError
from gantry_protocol.records import MAX_RECORD_BYTES, MessageRecord, encode_record


def encode(record: MessageRecord) -> bytes:
    """The bytes of ``record`` in a log.

    Raises:
        RecordError: it cannot be stored.
    """
    if "\0" in record.properties or "\0" in record.topic:
        raise RecordError("A topic or property holds a zero byte, which the log does not allow.")
    data = encode_record(record)
    if len(data) > MAX_RECORD_BYTES:
        raise RecordError(f"The record takes {len(data)} bytes; {MAX_RECORD_BYTES} are allowed.")
    return data
