"""The bulk decoder against the protocol's: the same records, and the same words for any damage."""

from __future__ import annotations

from collections.abc import Callable

import google_crc32c
import msgspec
import pyarrow as pa
import pytest
from gantry_pipeline.decode import packs as bulk
from gantry_pipeline.decode.columns import schema_of
from gantry_pipeline.decode.tags import tag_hashes
from gantry_protocol.errors import GantryError
from gantry_protocol.records import find_property, tags_code
from gantry_protocol.tier.damage import DamagedObject
from gantry_protocol.tier.footer import (
    TRAILER,
    UNIT,
    Footer,
    Run,
    decode_footer,
    encode_footer,
)
from gantry_protocol.tier.packs import BuiltPack, run_records, verify_pack
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tier_logs import PLACE, Sent, build_log, build_pack

ORIGIN = bulk.Origin("demo", PLACE.uid, 7, "pack/x")
LONG_TOPIC = "t" * 200  # version 2 of the record layout

sent = st.builds(
    Sent,
    topic=st.sampled_from(["orders", "orders-2", "%RETRY%billing", LONG_TOPIC, "größe"]),
    queue_id=st.integers(0, 3),
    body=st.binary(max_size=40),
    tags=st.sampled_from(["", "red", "blau", "größe"]),
    queue_offset=st.none() | st.integers(0, 50),  # a queue that begins anew has another run
    ipv6=st.booleans(),
    keys=st.sampled_from(["", "order-7", "order-7 größe"]),
)
logs = st.lists(st.none() | sent, min_size=1, max_size=40)


def small_pack() -> BuiltPack:
    messages = [
        Sent("orders", 0, b"first", "red"),
        Sent("orders", 1, b"second"),
        Sent(LONG_TOPIC, 0, b"", ipv6=True),
        None,
        Sent("orders", 0, b"third", "blue"),
    ]
    return build_pack(1200, build_log(1200, messages, first=7))


def rows(pack: BuiltPack, *columns: str) -> list[dict[str, object]]:
    schema = schema_of("messages", columns)
    batches = bulk.message_batches(pack.data, PLACE, pack.key, ORIGIN, schema)
    return [row for batch in batches for row in batch.to_pylist()]


def expected(pack: BuiltPack) -> list[dict[str, object]]:
    """The same rows, from the protocol's decoder, one record at a time."""
    footer = decode_footer(pack.data, len(pack.data), PLACE, pack.key)
    found = []
    for run in footer.runs:
        tags = [tag for _, _, tag in UNIT.iter_unpack(run.units)]
        data = pack.data[run.pos : run.end]
        for record, tag in zip(run_records(data, footer, run, PLACE), tags, strict=True):
            found.append(
                {
                    "topic": record.topic,
                    "queue_id": record.queue_id,
                    "queue_offset": record.queue_offset,
                    "physical_offset": record.physical_offset,
                    "size": record.size,
                    "stored_ms": record.store_timestamp,
                    "born_ms": record.born_timestamp,
                    "flag": record.flag,
                    "sys_flag": record.sys_flag,
                    "reconsume_times": record.reconsume_times,
                    "prepared_offset": record.prepared_transaction_offset,
                    "tag_hash": tag,
                    "properties": record.properties.encode(),
                    "body": record.body,
                }
            )
    return found


def without_times(row: dict[str, object]) -> dict[str, object]:
    """The row with its times as milliseconds, and without the constant columns."""
    kept = {
        name: value
        for name, value in row.items()
        if name not in ("cluster", "shard", "version", "pack")
    }
    for name in ("stored", "born"):
        kept[f"{name}_ms"] = round(kept.pop(f"{name}_at").timestamp() * 1000)  # type: ignore[attr-defined]
    return kept


def verdict(judge: Callable[[], object]) -> tuple[str, str]:
    """How it ended: the class and the sentence of what was raised."""
    try:
        judge()
    except GantryError as error:
        return type(error).__name__, str(error)
    return "sound", ""


@settings(max_examples=80, deadline=None)
@given(logs, st.integers(1, 7))
def test_the_rows_are_those_of_the_protocols_decoder(
    messages: list[Sent | None], batch_records: int
) -> None:
    pack = build_pack(5000, build_log(5000, messages))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "BATCH_RECORDS", batch_records)
        found = rows(pack)
        bulk.check_pack(pack.data, PLACE, pack.key)
    assert [without_times(row) for row in found] == expected(pack)
    assert all((row["cluster"], row["version"]) == ("demo", 7) for row in found)


def test_batches_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = build_pack(0, build_log(0, [Sent("orders", 0, bytes(300))] * 20))
    monkeypatch.setattr(bulk, "BATCH_BYTES", 1000)
    batches = bulk.message_batches(pack.data, PLACE, pack.key, ORIGIN, schema_of("messages"))
    assert [batch.num_rows for batch in batches] == [3] * 6 + [2]


def test_only_the_columns_that_are_wanted() -> None:
    first = rows(small_pack(), "queue_offset", "topic")[0]
    assert first == {"queue_offset": 7, "topic": "orders"}


def test_rows_of_runs() -> None:
    pack = small_pack()
    footer = decode_footer(pack.data, len(pack.data), PLACE, pack.key)
    batch = bulk.run_batch(
        footer, ORIGIN, schema_of("runs", ["topic", "queue_id", "first_queue_offset", "records"])
    )
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        ("orders", 0, 7, 2),
        ("orders", 1, 7, 1),
        (LONG_TOPIC, 0, 7, 1),
    ]


def test_every_flipped_byte_is_named_as_the_protocol_names_it() -> None:
    pack = small_pack()
    sound = ("sound", "")
    for at in range(len(pack.data)):
        for bit in (0x01, 0x80):
            data = bytearray(pack.data)
            data[at] ^= bit
            changed = bytes(data)
            found = verdict(lambda: bulk.check_pack(changed, PLACE, pack.key))  # noqa: B023
            assert found != sound, at
            assert found == verdict(lambda: verify_pack(changed, PLACE, pack.key)), at  # noqa: B023


@pytest.mark.parametrize("kept", [0, 3, 11, 12, 15, 16, 100, -1])
def test_a_pack_that_is_cut_short_is_named_as_the_protocol_names_it(kept: int) -> None:
    pack = small_pack()
    found = verdict(lambda: bulk.check_pack(pack.data[:kept], PLACE, pack.key))
    assert found == verdict(lambda: verify_pack(pack.data[:kept], PLACE, pack.key))
    assert found[0] in ("TruncatedObject", "NewerObject")


def altered(pack: BuiltPack, record: int, offset: int, data: bytes) -> bytes:
    """The pack with bytes of a record replaced, and with sums that fit: a writer's mistake."""
    footer = decode_footer(pack.data, len(pack.data), PLACE, pack.key)
    whole = bytearray(pack.data)
    at = [run.pos + unit[0] for run in footer.runs for unit in UNIT.iter_unpack(run.units)][record]
    whole[at + offset : at + offset + len(data)] = data
    return sealed(bytes(whole), footer, lambda run: run)


def sealed(data: bytes, footer: Footer, change: Callable[[Run], Run]) -> bytes:
    """The runs in ``data`` under a footer with changed runs and sums that fit."""
    end = len(data) - TRAILER.size - TRAILER.unpack_from(data, len(data) - TRAILER.size)[0]
    runs = [
        change(msgspec.structs.replace(run, crc32c=google_crc32c.value(data[run.pos : run.end])))
        for run in footer.runs
    ]
    return data[:end] + encode_footer(msgspec.structs.replace(footer, runs=runs))


RECORD_CHANGES = {
    "size": (0, b"\x00\x00\x00\x10"),
    "size that fits no record": (0, b"\x7f\xff\xff\xff"),
    "magic": (4, b"\xda\xa3\x20\xa8"),
    "version 2": (4, b"\xda\xa3\x20\xab"),
    "sum of the body": (8, b"\x00\x00\x00\x01"),
    "sum of the body with its sign": (8, b"\xff"),
    "queue": (12, b"\x00\x00\x00\x09"),
    "queue offset": (20, b"\x00\x00\x00\x00\x00\x00\x00\x63"),
    "physical offset outside": (28, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
    "physical offset of another": (28, (1201).to_bytes(8, "big")),
    "hosts": (36, b"\x00\x00\x00\x30"),
    "stored too early": (58, b"\x00"),
    "stored too late": (56, b"\x7f"),
    "body size": (84, b"\x00\x00\x7f\xff"),
    "negative body size": (84, b"\xff\xff\xff\xff"),
    "body size one less": (87, b"\x04"),
    "body": (88, b"F"),
    "topic size": (93, b"\x00"),
    "topic size of no version 1": (93, b"\xff"),
    "topic": (94, b"X"),
    "properties size": (100, b"\x7f\xff"),
    "negative properties size": (100, b"\xff"),
    "tag": (107, b"X"),
}


def test_the_sum_of_every_run_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a batch ends within a run or with it; no body's sum covers a host."""
    monkeypatch.setattr(bulk, "BATCH_RECORDS", 1)
    pack = small_pack()
    footer = decode_footer(pack.data, len(pack.data), PLACE, pack.key)
    for run in footer.runs:
        data = bytearray(pack.data)
        data[run.pos + 50] ^= 1
        changed = bytes(data)
        found = verdict(lambda: bulk.check_pack(changed, PLACE, pack.key))  # noqa: B023
        assert found[1].startswith(f"{PLACE.key(pack.key)} is damaged at byte {run.pos}: the sum ")


@pytest.mark.parametrize("record", [0, 1])
@pytest.mark.parametrize("change", RECORD_CHANGES, ids=lambda change: change.replace(" ", "-"))
def test_a_record_that_its_footer_contradicts_is_named_by_its_byte(
    change: str, record: int
) -> None:
    pack = small_pack()
    data = altered(pack, record, *RECORD_CHANGES[change])
    found = verdict(lambda: bulk.check_pack(data, PLACE, pack.key))
    assert found == verdict(lambda: verify_pack(data, PLACE, pack.key))
    assert found[0] == "DamagedObject"
    if change != "physical offset of another":  # one record alone does not show that
        read = BuiltPack(pack.key, data, pack.entry, pack.tail)
        with pytest.raises(DamagedObject) as refused:
            rows(read)
        assert str(refused.value) == found[1]


def test_a_unit_with_another_tag_is_named() -> None:
    pack = small_pack()
    footer = decode_footer(pack.data, len(pack.data), PLACE, pack.key)

    def change(run: Run) -> Run:
        return msgspec.structs.replace(run, units=run.units[:-1] + b"\x01")

    data = sealed(pack.data, footer, change)
    found = verdict(lambda: bulk.check_pack(data, PLACE, pack.key))
    assert found == verdict(lambda: verify_pack(data, PLACE, pack.key))
    assert "tag hash" in found[1]


pieces = st.lists(
    st.sampled_from(
        [b"TAGS", b"\x01", b"\x02", b"TAGS\x01", b"red", b"KEYS\x01k\x02", b"\xff", b"S"]
    )
).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(pieces, max_size=8), st.integers(0, 3))
def test_tags_are_found_where_the_protocol_finds_them(found: list[bytes], skipped: int) -> None:
    """Also in properties that no client would write, and across what lies next to each other."""
    tags = [find_property(encoded, "TAGS") for encoded in found[skipped:]]
    expected = [0 if tag is None else tags_code(tag) for tag in tags]
    assert tag_hashes(pa.array(found, pa.binary())[skipped:]).tolist() == expected


def test_a_sound_pack_that_is_not_the_committed_one_is_named() -> None:
    pack = small_pack()
    bulk.check_against(pack.data, PLACE, pack.entry, 3)
    other = msgspec.structs.replace(pack.entry, crc="00000000")
    with pytest.raises(DamagedObject, match=r"manifest version 3 says \d+ with 00000000"):
        bulk.check_against(pack.data, PLACE, other, 3)
