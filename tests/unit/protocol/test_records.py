"""Message records: Java's bytes, what decodes, and what recovery must tell apart."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from gantry_protocol.errors import RecordError
from gantry_protocol.records import (
    MAGIC_V1,
    MAGIC_V2,
    MAX_BODY_BYTES,
    MAX_PROPERTIES_BYTES,
    MessageRecord,
    ScanKind,
    blank,
    decode_record,
    decode_records,
    encode_record,
    masked_crc,
    peek,
    scan,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

VECTORS = json.loads((Path(__file__).parent / "vectors" / "records.json").read_text("utf-8"))
GOLDEN = bytes.fromhex(VECTORS[0]["hex"])


def _fields(vector: dict[str, Any]) -> dict[str, Any]:
    fields = dict(vector["fields"])
    fields["body"] = fields["body"].encode()
    fields["born_host"] = tuple(fields["born_host"])
    fields["store_host"] = tuple(fields["store_host"])
    return fields


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_java_records_decode_to_what_they_say(vector: dict[str, Any]) -> None:
    record = decode_record(bytes.fromhex(vector["hex"]))
    fields = _fields(vector)
    assert {name: getattr(record, name) for name in fields} == fields
    assert record.size == vector["size"]
    assert record.magic == MAGIC_V1


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_we_write_the_bytes_java_writes(vector: dict[str, Any]) -> None:
    fields = _fields(vector)
    assert encode_record(MessageRecord(**fields)).hex() == vector["hex"]
    fields["sys_flag"] = 0  # host families follow from the hosts
    assert encode_record(MessageRecord(**fields)).hex() == vector["hex"]


def test_a_long_topic_makes_a_version_2_record() -> None:
    properties = VECTORS[0]["fields"]["properties"]
    encoded = encode_record(MessageRecord("t" * 130, body=b"x", properties=properties))
    assert len(encoded) == 251
    assert encoded[4:12].hex() == "daa320ab0cdc1683"
    assert encoded[88 : 88 + 4].hex() == "78008274"
    assert decode_record(encoded).magic == MAGIC_V2
    assert encode_record(MessageRecord("t" * 127, body=b"x"))[4:8].hex() == "daa320a7"


def test_crc_has_31_bits() -> None:
    assert masked_crc(b"123456789") == 0x4BF43926  # zlib says cbf43926


HOSTS = st.tuples(
    st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str), st.integers(0, 65535)
)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
RECORDS = st.builds(
    MessageRecord,
    topic=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
    | st.sampled_from(["t" * 127, "t" * 128, "t" * 255]),
    queue_id=INT32,
    body=st.binary(max_size=100),
    properties=TEXT,
    flag=INT32,
    sys_flag=INT32,
    queue_offset=INT64,
    physical_offset=INT64,
    born_timestamp=INT64,
    born_host=HOSTS,
    store_timestamp=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)


@given(record=RECORDS, before=st.binary(max_size=9), after=st.binary(max_size=9))
def test_records_survive_encoding(record: MessageRecord, before: bytes, after: bytes) -> None:
    encoded = encode_record(record)
    buffer = before + encoded + after
    got = decode_record(memoryview(buffer), len(before))
    record.size, record.magic = len(encoded), got.magic
    families = (0x10 if ":" in record.born_host[0] else 0) | (
        0x20 if ":" in record.store_host[0] else 0
    )
    record.sys_flag = (record.sys_flag & ~0x30) | families
    assert got == record
    assert encode_record(got) == encoded


@given(record=RECORDS)
def test_peek_sees_what_decoding_sees(record: MessageRecord) -> None:
    encoded = encode_record(record)
    seen, whole = peek(encoded), decode_record(encoded)
    for name in ("size", "topic", "queue_id", "queue_offset", "physical_offset", "sys_flag"):
        assert getattr(seen, name) == getattr(whole, name)
    assert (seen.born_timestamp, seen.store_timestamp) == (
        whole.born_timestamp,
        whole.store_timestamp,
    )
    assert encoded[seen.body_start : seen.body_start + seen.body_size] == whole.body
    assert seen.properties.decode() == whole.properties


@pytest.mark.parametrize("size", range(len(GOLDEN)))
def test_a_cut_record_is_short_wherever_it_is_cut(size: int) -> None:
    found = scan(GOLDEN[:size])
    assert found.kind is ScanKind.SHORT
    assert found.size == (len(GOLDEN) if size >= 8 else 0)


def test_what_a_scan_finds() -> None:
    assert scan(GOLDEN, physical_offset=4096).kind is ScanKind.RECORD
    assert scan(GOLDEN).size == 142
    assert scan(bytes(8)).kind is ScanKind.ZERO
    filler = scan(blank(100))
    assert (filler.kind, filler.size) == (ScanKind.BLANK, 100)
    assert len(blank(8)) == 8
    assert scan(blank(100)[:8]).kind is ScanKind.BLANK


def _damaged(offset: int, layout: str, *values: int) -> bytes:
    damaged = bytearray(GOLDEN + bytes(200))
    struct.pack_into(layout, damaged, offset, *values)
    return bytes(damaged)


DAMAGE = {
    "magic": (_damaged(4, ">I", 0xDAA320A8), "magic is daa320a8"),
    "size too small": (_damaged(0, ">i", 90), "size is 90"),
    "size negative": (_damaged(0, ">i", -142), "size is -142"),
    "size too large": (_damaged(0, ">i", 2**31 - 1), "a record has 91 to"),
    "size one more": (_damaged(0, ">i", 143), "its parts have 142"),
    "size one less": (_damaged(0, ">i", 141), "its parts have 142"),
    "hosts beyond": (_damaged(0, ">iI28xi", 95, MAGIC_V1, 0x30), "its hosts alone need 112"),
    "body size": (_damaged(84, ">i", 2**31 - 1), "the body claims 2147483647"),
    "body size negative": (_damaged(84, ">i", -1), "the body claims -1"),
    "body up to the end": (_damaged(84, ">i", 54), "the body claims 54"),
    "body size one more": (_damaged(84, ">i", 15), "the topic claims"),
    "body": (_damaged(90, ">B", 0), "the body's CRC is"),
    "crc": (_damaged(8, ">i", 0), "the record says 00000000"),
    "topic size": (_damaged(102, ">B", 200), "version 1 allows 127"),
    "topic size beyond": (_damaged(102, ">B", 100), "the topic claims 100"),
    "properties size": (_damaged(112, ">h", 29), "its parts have 143"),
    "properties negative": (_damaged(112, ">h", -1), "its parts have 113"),
    "blank too small": (struct.pack(">iI", 7, 0xCBD43194), "a blank of 7 bytes"),
    "zero magic": (struct.pack(">iI", 142, 0), "magic is 00000000"),
}


@pytest.mark.parametrize(("data", "words"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named(data: bytes, words: str) -> None:
    found = scan(data)
    assert found.kind is ScanKind.BAD
    assert words in found.reason
    with pytest.raises(RecordError):
        decode_record(data)


def test_a_record_at_the_wrong_place_is_bad() -> None:
    found = scan(GOLDEN, physical_offset=8192)
    assert found.kind is ScanKind.BAD
    assert "stands at 4096, not 8192" in found.reason


def test_crc_may_be_skipped() -> None:
    data = DAMAGE["body"][0]
    assert scan(data, check_crc=False).kind is ScanKind.RECORD
    assert decode_record(data, check_crc=False).body != b"Hello RocketMQ"


@settings(max_examples=300)
@given(st.binary(max_size=250))
@example(GOLDEN)
def test_arbitrary_bytes_are_judged_never_believed(data: bytes) -> None:
    found = scan(data)
    if found.kind is ScanKind.RECORD:
        assert found.size <= len(data)
    else:
        with pytest.raises(RecordError):
            decode_record(data)


@settings(max_examples=400)
@given(record=RECORDS, position=st.integers(0, 300), value=st.integers(0, 255))
def test_one_wrong_byte_never_raises_anything_but_a_record_error(
    record: MessageRecord, position: int, value: int
) -> None:
    encoded = bytearray(encode_record(record))
    encoded[position % len(encoded)] = value
    if scan(encoded).kind is ScanKind.RECORD:
        peek(encoded)
        try:
            decode_record(encoded)
        except RecordError as error:
            assert "UTF-8" in str(error)  # noqa: PT017 - most damage of this kind decodes


def test_a_pull_answer_is_records_without_anything_between() -> None:
    second = encode_record(MessageRecord("other"))
    assert [record.topic for record in decode_records(GOLDEN + second)] == ["TopicTest", "other"]
    with pytest.raises(RecordError):
        decode_records(GOLDEN + second[:-1])


TOO_MUCH = {
    "no topic": MessageRecord(""),
    "topic": MessageRecord("t" * 256),
    "properties": MessageRecord("t", properties="p" * (MAX_PROPERTIES_BYTES + 1)),
    "host name": MessageRecord("t", born_host=("localhost", 1)),
    "port": MessageRecord("t", store_host=("127.0.0.1", 2**31)),
    "queue id": MessageRecord("t", queue_id=2**31),
    "offset": MessageRecord("t", queue_offset=2**63),
}


@pytest.mark.parametrize("record", TOO_MUCH.values(), ids=TOO_MUCH)
def test_what_no_record_can_hold_is_refused(record: MessageRecord) -> None:
    with pytest.raises(RecordError):
        encode_record(record)


def test_the_largest_record_is_sound() -> None:
    record = MessageRecord(
        "t" * 255, body=bytes(MAX_BODY_BYTES), properties="p" * MAX_PROPERTIES_BYTES
    )
    assert scan(encode_record(record)).kind is ScanKind.RECORD
