"""The replication wire: round trips, bounds, and that damage never passes."""

from __future__ import annotations

import struct

import google_crc32c
import pytest
from gantry_broker.ha.wire import MAX_PAYLOAD_BYTES, Caller, Decoder, LinkError, Received, encode
from gantry_broker.replica.messages import (
    Ack,
    Append,
    Farewell,
    Hello,
    Message,
    Range,
    RangeAsk,
    Truncate,
)
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset
from hypothesis import given
from hypothesis import strategies as st

CALLER = Caller("cluster", "group", "uid")
BIG = 2**63 - 1

MESSAGES: list[Message] = [
    Hello(
        epoch=Epoch(3),
        broker_id=BrokerId(2),
        incarnation="abc",
        log_start=Offset(0),
        end=Offset(BIG),
        lineage=(EpochEntry(Epoch(1), Offset(0)), EpochEntry(Epoch(3), Offset(77))),
        draining=True,
    ),
    Truncate(
        epoch=Epoch(3),
        incarnation="m",
        point=Offset(77),
        entry=EpochEntry(Epoch(3), Offset(77)),
        reset=True,
    ),
    Append(
        epoch=Epoch(3),
        entry=EpochEntry(Epoch(2), Offset(5)),
        offset=Offset(BIG),
        confirm=Offset(9),
        in_sync=True,
        data=b"records",
    ),
    Append(
        epoch=Epoch(1),
        entry=EpochEntry(Epoch(1), Offset(0)),
        offset=Offset(0),
        confirm=Offset(0),
        in_sync=False,
    ),
    Ack(epoch=Epoch(3), flushed_end=Offset(BIG), draining=True),
    Ack(epoch=Epoch(3), flushed_end=Offset(BIG), has_room=True),
    Farewell(epoch=Epoch(4), reason="so long"),
    RangeAsk(start=Offset(BIG), length=7),
    Range(start=Offset(BIG), data=b"records"),
    Range(start=Offset(0), data=b"", reason="not here"),
]
NAMES = [
    "hello", "truncate", "append", "heartbeat", "ack", "ack with room", "farewell",
    "ask", "range", "refusal",
]  # fmt: skip


def as_bytes(message: Message) -> bytes:
    return b"".join(encode(message, CALLER))


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_round_trip(message: Message) -> None:
    (received,) = Decoder().feed(as_bytes(message))
    caller = CALLER if isinstance(message, Hello | RangeAsk) else None
    assert received == Received(message, caller)


def test_golden_append() -> None:
    """The layout, byte by byte: another implementation must be able to read it."""
    data = as_bytes(MESSAGES[2])
    fixed = struct.pack(">QQQQQB", 3, 2, 5, BIG, 9, 1)
    head = b"GNHA" + bytes([1, 3]) + b"\0\0" + struct.pack(">I", len(fixed) + 7)
    crc = struct.pack(">I", google_crc32c.value(head + fixed + b"records"))
    assert data == head + crc + fixed + b"records"


@given(st.lists(st.sampled_from(MESSAGES), max_size=8), st.integers(1, 40))
def test_any_cutting_into_pieces_reads_the_same(messages: list[Message], size: int) -> None:
    stream = b"".join(map(as_bytes, messages))
    decoder = Decoder()
    found: list[Message] = []
    for at in range(0, len(stream), size):
        found += [one.message for one in decoder.feed(stream[at : at + size])]
    assert found == messages


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_a_flipped_bit_anywhere_is_noticed(message: Message) -> None:
    whole = as_bytes(message)
    for position in range(len(whole)):
        for bit in (0, 7):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            decoder = Decoder()
            try:
                found = decoder.feed(bytes(damaged))
            except LinkError:
                continue
            assert found == [], "a length that grew waits for more, and then fails"
            with pytest.raises(LinkError):
                decoder.feed(bytes(2 * MAX_PAYLOAD_BYTES))


def sealed(kind: int, payload: bytes, version: int = 1) -> bytes:
    head = b"GNHA" + bytes([version, kind]) + b"\0\0" + struct.pack(">I", len(payload))
    return head + struct.pack(">I", google_crc32c.value(head + payload)) + payload


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", "no replication message", id="http"),
        pytest.param(sealed(4, b"", version=2), "version 2", id="newer version"),
        pytest.param(sealed(9, b""), "unknown kind 9", id="unknown kind"),
        pytest.param(sealed(4, b"short"), "does not read", id="short ack"),
        pytest.param(sealed(3, b"short"), "does not read", id="short append"),
        pytest.param(sealed(1, b"{}"), "does not read", id="empty hello"),
        pytest.param(sealed(1, b"no json"), "does not read", id="no json"),
        pytest.param(
            sealed(2, b'{"epoch":1,"incarnation":"","point":-1,"entry":[1,0],"reset":false}'),
            "negative",
            id="negative point",
        ),
        pytest.param(
            sealed(6, b'{"cluster":"","group":"","group_uid":"","start":-1,"length":1}'),
            "no range",
            id="negative range",
        ),
        pytest.param(sealed(7, b"short"), "does not read", id="short range"),
        pytest.param(
            b"GNHA" + bytes([1, 3, 0, 0]) + struct.pack(">II", MAX_PAYLOAD_BYTES + 1, 0),
            "are allowed",
            id="too long",
        ),
    ],
)
def test_what_no_replica_sends_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(LinkError, match=words):
        Decoder().feed(data)


def test_a_reason_is_cut_to_its_bound() -> None:
    (received,) = Decoder().feed(as_bytes(Farewell(epoch=Epoch(1), reason="x" * 10_000)))
    assert isinstance(received.message, Farewell)
    assert len(received.message.reason) == 500
