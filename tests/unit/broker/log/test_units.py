"""What a replica checks of a received range is what recovery checks of a unit, only in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gantry_broker.log.units import blank_head, check_units, parse_units
from gantry_protocol.errors import RecordError
from gantry_protocol.records import MessageRecord, encode_record
from support.logs import record

if TYPE_CHECKING:
    from collections.abc import Callable

AT = 1000
USUAL = record(AT, 1, topic="Orders")
ADDRESS = ("2001:db8::1", 4000)


def unusual(offset: int, **changes: object) -> bytes:
    """A record that is none of the usual kind."""
    fields = {
        "topic": "T",
        "body": b"payload",
        "properties": "TAGS\x01TagA\x02",
        "queue_offset": 1,
        "physical_offset": offset,
        "born_host": ("10.0.0.1", 4000),
        "store_host": ("10.0.0.2", 10911),
    }
    return encode_record(MessageRecord(**(fields | changes)))  # type: ignore[arg-type]


def verdict_of(check: Callable[[bytes, int], object], data: bytes) -> str:
    """What `check` says of `data`; empty when nothing is wrong."""
    try:
        check(data, AT)
    except RecordError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "second",
    [
        record(AT + len(USUAL), 2),
        record(AT + len(USUAL), 2, body=b""),
        unusual(AT + len(USUAL), born_host=ADDRESS, store_host=ADDRESS),
        unusual(AT + len(USUAL), topic="T" * 200),
        unusual(AT + len(USUAL), properties=""),
    ],
    ids=["usual", "empty", "ipv6", "version-2", "without-properties"],
)
def test_whole_records_pass_and_only_a_blank_ends_a_file(second: bytes) -> None:
    data = USUAL + second
    blank = blank_head(24) + bytes(16)
    assert not check_units(data, AT)
    assert check_units(data + blank, AT)
    assert not check_units(b"", AT)
    for wrong in (blank + data, data + blank + b"\0", data + blank[:-1], data[:-1]):
        with pytest.raises(RecordError):
            check_units(wrong, AT)


def test_every_flipped_bit_is_judged_as_recovery_judges_it() -> None:
    """Also by whom: a bit that turns a record into another kind must not slip between the two."""
    data = USUAL + record(AT + len(USUAL), 2)
    sound = 0
    for position in range(len(USUAL)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            verdict = verdict_of(parse_units, bytes(damaged))
            assert verdict_of(check_units, bytes(damaged)) == verdict
            sound += not verdict
    assert sound, "no checksum covers the queue's number, for one"


@pytest.mark.parametrize(
    "part", [b"Orders", b"TAGS", b"payload"], ids=["topic", "properties", "body"]
)
def test_a_part_that_a_lost_page_made_zero_is_refused(part: bytes) -> None:
    at = USUAL.rindex(part)
    with pytest.raises(RecordError):
        check_units(USUAL[:at] + bytes(len(part)) + USUAL[at + len(part) :], AT)


def test_a_record_that_stood_elsewhere_is_refused() -> None:
    with pytest.raises(RecordError, match=f"stands at {AT}, not {AT + 1}"):
        check_units(USUAL, AT + 1)
