from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import google_crc32c
import msgspec
import pytest
from gantry_protocol.errors import RecordError
from gantry_protocol.records import decode_record, scan, tags_code
from gantry_protocol.tier.damage import (
    DamagedObject,
    ForeignObject,
    NewerObject,
    TierObjectError,
    TruncatedObject,
)
from gantry_protocol.tier.footer import (
    MAGIC,
    MAX_PACK_BYTES,
    TAIL_BYTES,
    TRAILER,
    UNIT,
    Footer,
    decode_footer,
    read_trailer,
)
from gantry_protocol.tier.keys import PackKey, Pair, Shard
from gantry_protocol.tier.packs import (
    SUM_BYTES,
    encode_pack,
    raw_records,
    rebuild_log,
    run_records,
    verify_pack,
)
from gantry_protocol.types import Epoch, EpochEntry, Offset
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tier_logs import LINEAGE, NONCE, PLACE, Sent, build_log, build_pack, key_of

VECTORS = Path(__file__).parents[1] / "vectors" / "tier"
SPECIFICATION = Path(__file__).parents[4] / "docs" / "tier-format.md"
KEY = PackKey(Pair(12, 3), 1000, 1340, 9, NONCE)
PACK = (VECTORS / "pack.bin").read_bytes()
LOG = (VECTORS / "log.bin").read_bytes()

names = st.sampled_from(["a", "b", "orders", "%RETRY%g", "t" * 127, "%RETRY%" + "r" * 150])
messages = st.one_of(
    st.none(),
    st.builds(
        Sent,
        names,
        st.integers(0, 3),
        st.binary(max_size=60),
        st.sampled_from(["", "red", "ä"]),
        st.none() | st.integers(0, 5),
        st.booleans(),
        st.sampled_from(["", "order-7", "order-7 ä"]),
    ),
)


def resealed(change: dict[str, object]) -> bytes:
    """The golden pack with another footer under a right sum."""
    start, end, _ = read_trailer(PACK, len(PACK), "x")
    fields = msgspec.msgpack.decode(PACK[start:end])
    fields.update(change)
    body = msgspec.msgpack.encode({key: value for key, value in fields.items() if value != "gone"})
    return PACK[:start] + body + TRAILER.pack(len(body), google_crc32c.value(body), MAGIC)


def golden_run(**change: object) -> list[object]:
    footer = decode_footer(PACK, len(PACK), PLACE, KEY)
    run = msgspec.structs.asdict(footer.runs[0]) | change
    rest = [list(msgspec.structs.asdict(other).values()) for other in footer.runs[1:]]
    return [list(run.values()), *rest]


def test_encoder_makes_the_golden_pack() -> None:
    built = encode_pack(LOG, PLACE, KEY, LINEAGE)
    assert built.data == PACK
    assert built.entry.crc == f"{google_crc32c.value(PACK):08x}"
    assert built.entry.key == str(KEY)
    assert (built.entry.epoch_first, built.entry.epoch_last, built.entry.count) == (11, 12, 3)
    assert built.tail is not None
    assert (built.tail.at, built.tail.size) == (1214, 102)
    assert built.tail.crc == f"{google_crc32c.value(LOG[214:316]):08x}"


def test_the_specification_shows_the_golden_pack() -> None:
    lines = re.findall(
        r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)$", SPECIFICATION.read_text(), re.MULTILINE
    )
    assert bytes.fromhex("".join(lines)) == PACK
    assert str(KEY) in SPECIFICATION.read_text()


def test_golden_pack_is_read() -> None:
    footer = verify_pack(PACK, PLACE, KEY)
    assert footer.lineage == [(11, 0), (12, 1111)]
    assert footer.blanks == [(1316, 24)]
    red, plain = footer.runs
    assert (red.queue_id, red.first_qoff, red.count) == (0, 7, 2)
    assert [unit[2] for unit in UNIT.iter_unpack(red.units)] == [tags_code("red"), 0]
    bodies = [record.body for record in run_records(PACK[red.pos : red.end], footer, red, PLACE)]
    assert bodies == [b"first", b"third"]
    raws = list(raw_records(PACK[plain.pos : plain.end], footer, plain, PLACE))
    assert [(raw.queue_offset, raw.physical_offset) for raw in raws] == [(0, 1111)]
    assert rebuild_log(PACK, PLACE, KEY) == LOG


@settings(deadline=None)
@given(st.integers(0, 2**50), st.lists(messages, min_size=1, max_size=12), st.integers(0, 2**40))
def test_log_is_rebuilt_from_its_pack(lo: int, sent: list[Sent | None], first: int) -> None:
    log = build_log(lo, sent, first)
    lineage = (EpochEntry(Epoch(3), Offset(lo)),)
    built = build_pack(lo, log, lineage=lineage)
    assert rebuild_log(built.data, PLACE, built.key) == log
    footer = verify_pack(built.data, PLACE, built.key)
    assert sum(run.count for run in footer.runs) == sum(one is not None for one in sent)
    for run in footer.runs:
        run_bytes = built.data[run.pos : run.end]
        for record in run_records(run_bytes, footer, run, PLACE):
            assert record.topic == footer.topics[run.topic]
            assert decode_record(log, record.physical_offset - lo) == record


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 255))
def test_every_changed_byte_is_found_and_named(bits: int) -> None:
    for at in range(len(PACK)):
        changed = bytearray(PACK)
        changed[at] ^= bits
        with pytest.raises(TierObjectError) as found:
            verify_pack(bytes(changed), PLACE, KEY)
        error = found.value
        assert error.key == PLACE.key(KEY)
        assert error.key in str(error)
        assert str(error.offset) in str(error)
        if 4 <= at < 320:  # in a run: the sentence leads to the run, or nearer
            assert isinstance(error, DamagedObject)
            assert (4 if at < 217 else 217) <= error.offset <= at


def test_every_cut_is_found() -> None:
    for size in range(len(PACK)):
        with pytest.raises(TruncatedObject, match=f"is cut short at byte {size}"):
            verify_pack(PACK[:size], PLACE, KEY)


@pytest.mark.parametrize("extra", [b"\0", b"TPK1", PACK])
def test_bytes_after_a_pack_are_found(extra: bytes) -> None:
    with pytest.raises(TierObjectError):
        verify_pack(PACK + extra, PLACE, KEY)


def test_body_that_changed_is_named_by_its_record() -> None:
    at = PACK.index(b"third")
    changed = bytearray(PACK)
    changed[at] ^= 1
    with pytest.raises(DamagedObject, match="body's CRC") as found:
        verify_pack(bytes(changed), PLACE, KEY)
    assert found.value.offset == 4 + 111  # where the second record of the first run begins


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"format": 2}, NewerObject, "format 2, this version reads format 1"),
        ({"format": 2, "shape": 1, "runs": "gone"}, NewerObject, "format 2"),
        ({"format": 0}, DamagedObject, "format"),
        ({"shard": "another"}, ForeignObject, "of shard another"),
        ({"lo": 999}, ForeignObject, "footer belongs to pack/"),
        ({"hi": 1341}, ForeignObject, "footer belongs to pack/"),
        ({"epoch": 13}, ForeignObject, "footer belongs to pack/"),
        ({"inc": 4}, ForeignObject, "footer belongs to pack/"),
        ({"cls": 3}, ForeignObject, "footer belongs to pack/"),
        ({"nonce": "f" * 32}, ForeignObject, "footer belongs to pack/"),
        ({"unknown": 1}, DamagedObject, "unknown"),
        ({"blanks": "gone"}, DamagedObject, "blanks"),
        ({"lo": "1000"}, DamagedObject, "lo"),
        ({"lineage": []}, DamagedObject, "lineage"),
        ({"lineage": [[11, 1001]]}, DamagedObject, "lineage spans"),
        ({"lineage": [[11, 0], [12, 1340]]}, DamagedObject, "lineage spans"),
        ({"lineage": [[12, 0], [12, 1111]]}, DamagedObject, "does not rise"),
        ({"lineage": [[11, 0], [12, 1000]]}, DamagedObject, "does not rise"),
        ({"lineage": [[11, 0], [13, 1111]]}, DamagedObject, "ahead of its epoch"),
        ({"blanks": []}, DamagedObject, "runs and blanks have 316 bytes"),
        ({"blanks": [[1316, 4]]}, DamagedObject, "blank 0"),
        ({"blanks": [[1316, 25]]}, DamagedObject, "blank 0"),
        ({"blanks": [[1316, 24], [1316, 24]]}, DamagedObject, "blank 1"),
        ({"blanks": [[1315, 24]]}, DamagedObject, "hole or overlap"),
        ({"topics": []}, DamagedObject, "do not match"),
        ({"topics": ["orders", "orders"]}, DamagedObject, "not sorted"),
        ({"topics": ["a", "orders"]}, DamagedObject, "do not match"),
        ({"topics": ["ordera"]}, DamagedObject, "the record is of orders"),
        ({"topics": [""]}, DamagedObject, "topics"),
        ({"runs": golden_run(pos=5)}, DamagedObject, "run 0"),
        ({"runs": golden_run(length=2**31)}, DamagedObject, "runs"),
        ({"runs": golden_run(length=1000)}, DamagedObject, "run 0"),
        ({"runs": golden_run(count=3)}, DamagedObject, "3 records and 40 bytes of units"),
        ({"runs": golden_run(units=bytes(40))}, DamagedObject, "do not cover"),
        (
            {"runs": golden_run(units=UNIT.pack(0, 102, 0) + UNIT.pack(111, 102, 0))},
            DamagedObject,
            "do not cover",
        ),
        (
            {"runs": golden_run(units=UNIT.pack(0, 213, 0) + UNIT.pack(213, 0, 0))},
            DamagedObject,
            "do not cover",
        ),
        ({"runs": golden_run(queue_id=2)}, DamagedObject, "run 1 is out of order"),
        ({"runs": golden_run(first_qoff=8)}, DamagedObject, "queue offset 7 stands where 8"),
        ({"runs": golden_run(first_qoff=2**63 - 2)}, DamagedObject, "cannot be"),
        ({"runs": golden_run(min_ts=1_700_000_000_001)}, DamagedObject, "store time"),
        ({"runs": golden_run(max_ts=5)}, DamagedObject, "cannot be"),
        ({"runs": golden_run()[:1]}, DamagedObject, "the runs end at 217"),
        ({"runs": []}, DamagedObject, "do not match"),
        ({"runs": golden_run(topic=7)}, DamagedObject, "do not match"),
    ],
)
def test_footer_under_a_right_sum_is_still_checked(
    change: dict[str, object], error: type[TierObjectError], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)) as found:
        verify_pack(resealed(change), PLACE, KEY)
    assert found.value.key == PLACE.key(KEY)


def test_unit_with_another_tag_is_found() -> None:
    run = decode_footer(PACK, len(PACK), PLACE, KEY).runs[0]
    units = b"".join(UNIT.pack(at, size, 5) for at, size, _ in UNIT.iter_unpack(run.units))
    with pytest.raises(DamagedObject, match="tag hash 5"):
        verify_pack(resealed({"runs": golden_run(units=units)}), PLACE, KEY)


def test_other_magics_are_newer() -> None:
    for changed, at in ((PACK[:-1] + b"2", len(PACK) - 4), (b"TPK2" + PACK[4:], 0)):
        with pytest.raises(NewerObject, match="TPK2") as found:
            verify_pack(changed, PLACE, KEY)
        assert found.value.offset == at


def test_footer_of_garbage_is_refused() -> None:
    for body in (b"\x91" * 5000, b"\xdd\xff\xff\xff\xff", b"\xc1", b"\x80", b"\xde\xff\xff" * 9):
        data = MAGIC + body + TRAILER.pack(len(body), google_crc32c.value(body), MAGIC)
        with pytest.raises(DamagedObject, match="does not read"):
            verify_pack(data, PLACE, KEY)


def test_pack_above_the_limit_is_refused_by_its_size() -> None:
    with pytest.raises(DamagedObject, match=f"at most {MAX_PACK_BYTES}"):
        read_trailer(PACK, MAX_PACK_BYTES + 1, "x")


def test_long_footer_takes_a_second_range() -> None:
    log = build_log(1000, [Sent("orders", 0, b"")] * 5000)
    built = build_pack(1000, log)
    size = len(built.data)
    tail = built.data[-TAIL_BYTES:]
    start = read_trailer(tail, size, "x").start
    assert start < size - TAIL_BYTES
    footer = decode_footer(built.data[start:], size, PLACE, built.key)
    assert footer == decode_footer(built.data, size, PLACE, built.key)
    assert footer.runs[0].count == 5000


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("MAX_PACK_BYTES", len(PACK)),
        ("MAX_FOOTER_BYTES", len(PACK) - 320 - TRAILER.size),
        ("MAX_RUNS", 2),
        ("MAX_BLANKS", 1),
    ],
)
def test_log_that_a_reader_would_refuse_is_not_packed(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(f"gantry_protocol.tier.packs.{limit}", value)
    assert encode_pack(LOG, PLACE, KEY, LINEAGE).data == PACK
    monkeypatch.setattr(f"gantry_protocol.tier.packs.{limit}", value - 1)
    with pytest.raises(RecordError, match="take a shorter range"):
        encode_pack(LOG, PLACE, KEY, LINEAGE)


def test_pack_of_another_group_is_foreign() -> None:
    with pytest.raises(ForeignObject, match="of shard 7c9e"):
        verify_pack(PACK, Shard("demo", "another"), KEY)


def test_queue_that_begins_anew_gets_another_run() -> None:
    sent = [Sent("a", 0, b"1", "", 5), Sent("a", 0, b"2", "", 6), Sent("a", 0, b"3", "", 0)]
    log = build_log(1000, sent)
    built = build_pack(1000, log)
    footer = verify_pack(built.data, PLACE, built.key)
    assert [(run.first_qoff, run.count) for run in footer.runs] == [(5, 2), (0, 1)]
    assert rebuild_log(built.data, PLACE, built.key) == log


@pytest.mark.parametrize(
    ("starts", "covering"),
    [
        ([0, 900, 1000], [(13, 1000)]),
        ([0, 1000, 1001], [(12, 1000), (13, 1001)]),
        ([0, 999, 1100], [(12, 999), (13, 1100)]),
        ([0, 1339, 1340], [(11, 0), (12, 1339)]),
        ([1000, 1340, 2000], [(11, 1000)]),
    ],
)
def test_lineage_of_a_pack_covers_it_and_no_more(
    starts: list[int], covering: list[tuple[int, int]]
) -> None:
    lineage = [EpochEntry(Epoch(11 + n), Offset(start)) for n, start in enumerate(starts)]
    key = KEY._replace(pair=Pair(14, 1))
    built = encode_pack(LOG, PLACE, key, lineage)
    assert verify_pack(built.data, PLACE, key).lineage == covering
    assert (built.entry.epoch_first, built.entry.epoch_last) == (covering[0][0], covering[-1][0])


def test_pack_of_a_blank_alone() -> None:
    built = build_pack(2000, build_log(2000, [None]))
    assert (built.tail, built.entry.count, built.entry.min_ts) == (None, 0, 0)
    assert verify_pack(built.data, PLACE, built.key).runs == []


def test_run_that_is_summed_in_pieces_has_the_sum_of_all() -> None:
    log = build_log(0, [Sent("orders", 0, bytes([n]) * (SUM_BYTES // 2 + 1)) for n in range(5)])
    built = build_pack(0, log)
    (run,) = verify_pack(built.data, PLACE, built.key).runs
    assert run.length > 2 * SUM_BYTES
    assert run.crc32c == google_crc32c.value(log)
    assert built.entry.crc == f"{google_crc32c.value(built.data):08x}"


@settings(deadline=None)
@given(st.data())
def test_changed_log_is_never_packed(data: st.DataObject) -> None:
    """What the log's own checks see (sizes, bodies, offsets) never becomes a pack."""
    log = bytearray(LOG)
    at = data.draw(st.integers(0, len(LOG) - 25), label="at")
    log[at] ^= data.draw(st.integers(1, 255), label="bits")
    offset, sound = 1000, True
    while sound and offset < 1316:
        found = scan(log, offset - 1000, physical_offset=offset)
        sound = found.kind.name == "RECORD"
        offset += found.size
    if not sound:
        with pytest.raises(RecordError, match=r"\b1\d\d\d\b"):
            encode_pack(bytes(log), PLACE, key_of(1000, LOG), LINEAGE)
        return
    with suppress(RecordError):  # a negative number or a nameless topic is refused besides
        built = encode_pack(bytes(log), PLACE, key_of(1000, LOG), LINEAGE)
        assert rebuild_log(built.data, PLACE, built.key) == bytes(log)


def test_log_that_ends_inside_a_record_is_not_packed() -> None:
    for size in set(range(1, 316)) - {111, 214}:
        with pytest.raises(RecordError, match="no sound record at"):
            encode_pack(LOG[:size], PLACE, key_of(1000, LOG[:size]), LINEAGE)


def test_footer_is_a_value() -> None:
    footer = decode_footer(PACK, len(PACK), PLACE, KEY)
    assert isinstance(footer, Footer)
    assert footer.key == KEY
