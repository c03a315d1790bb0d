"""Message records as they lie in the commit log and travel to consumers."""

from gantry_protocol.records.batch import BatchMessage, encode_batch, split_batch
from gantry_protocol.records.ids import (
    UniqueKeys,
    decode_offset_msg_id,
    offset_msg_id,
    offset_msg_ids,
)
from gantry_protocol.records.layout import (
    BLANK_HEADER_BYTES,
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MAX_BODY_BYTES,
    MAX_GROUP_CHARS,
    MAX_PROPERTIES_BYTES,
    MAX_RECORD_BYTES,
    MAX_TOPIC_BYTES,
    MAX_TOPIC_V1_BYTES,
    Host,
    blank,
)
from gantry_protocol.records.properties import (
    append_properties,
    decode_properties,
    encode_properties,
    find_property,
    tags_code,
    without_property,
)
from gantry_protocol.records.record import (
    MessageRecord,
    decode_record,
    decode_records,
    encode_record,
    masked_crc,
    patch_positions,
)
from gantry_protocol.records.run import RecordRun, scan_run
from gantry_protocol.records.scan import RecordPeek, Scan, ScanKind, peek, scan
from gantry_protocol.records.schedule import DELAY_MS, SCHEDULE_TOPIC, delay_of, entry_code

__all__ = [
    "BLANK_HEADER_BYTES",
    "BLANK_MAGIC",
    "DELAY_MS",
    "MAGIC_V1",
    "MAGIC_V2",
    "MAX_BODY_BYTES",
    "MAX_GROUP_CHARS",
    "MAX_PROPERTIES_BYTES",
    "MAX_RECORD_BYTES",
    "MAX_TOPIC_BYTES",
    "MAX_TOPIC_V1_BYTES",
    "SCHEDULE_TOPIC",
    "BatchMessage",
    "Host",
    "MessageRecord",
    "RecordPeek",
    "RecordRun",
    "Scan",
    "ScanKind",
    "UniqueKeys",
    "append_properties",
    "blank",
    "decode_offset_msg_id",
    "decode_properties",
    "decode_record",
    "decode_records",
    "delay_of",
    "encode_batch",
    "encode_properties",
    "encode_record",
    "entry_code",
    "find_property",
    "masked_crc",
    "offset_msg_id",
    "offset_msg_ids",
    "patch_positions",
    "peek",
    "scan",
    "scan_run",
    "split_batch",
    "tags_code",
    "without_property",
]
