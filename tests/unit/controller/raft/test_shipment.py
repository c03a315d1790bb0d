"""The way of a snapshot's bytes: what is sent when, and what is refused."""

from __future__ import annotations

import random

import pytest
from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.shipment import (
    InstallSnapshot,
    InstallSnapshotReply,
    Receiving,
    Sending,
    Shipment,
    decode_chunk,
    decode_reply,
    encode,
)
from gantry_protocol.types import Index, NodeId, Term
from hypothesis import given
from hypothesis import strategies as st

A, B = NodeId(1), NodeId(2)
SHIPMENT = Shipment(Index(9), Term(2), 100, 77)


def chunk(offset: int, data: bytes, shipment: Shipment = SHIPMENT) -> InstallSnapshot:
    return InstallSnapshot(A, B, shipment, offset, data)


def wants(offset: int, *, holds: int = 0, index: int = 9) -> InstallSnapshotReply:
    return InstallSnapshotReply(B, A, Index(index), Index(holds), offset)


def test_bytes_and_back() -> None:
    assert decode_chunk(encode(chunk(3, b"abc"))) == chunk(3, b"abc")
    assert decode_chunk(encode(chunk(0, b""))) == chunk(0, b"")
    assert decode_reply(encode(wants(50, holds=9))) == wants(50, holds=9)


@given(body=st.binary(max_size=120))
def test_nonsense_is_refused(body: bytes) -> None:
    for decode in (decode_chunk, decode_reply):
        with pytest.raises(MessageError):
            decode(body)


def test_a_flipped_bit_is_refused() -> None:
    body = bytearray(encode(chunk(3, b"abc")))
    body[-1] ^= 1
    with pytest.raises(MessageError, match="damaged on the way"):
        decode_chunk(bytes(body))


def test_never_more_than_was_announced() -> None:
    with pytest.raises(MessageError, match="goes on at byte 103"):
        decode_chunk(encode(chunk(100, b"abc")))


def test_a_few_chunks_are_ahead_of_the_answers() -> None:
    sending = Sending(SHIPMENT, chunk_bytes=30)
    assert sending.take() is None, "the offer is not answered"
    sending.on_reply(wants(0))
    assert [sending.take(), sending.take(), sending.take()] == [(0, 30), (30, 30), None]
    sending.on_reply(wants(30))
    assert [sending.take(), sending.take()] == [(60, 30), None]


@pytest.mark.parametrize(("holds", "done"), [(8, False), (9, True), (10, True)])
def test_who_holds_the_snapshots_entries_needs_no_more_of_it(holds: int, done: bool) -> None:
    sending = Sending(SHIPMENT)
    sending.on_reply(wants(0, holds=holds))
    assert sending.done is done


@pytest.mark.parametrize("reply", [wants(31, index=8), wants(61), wants(0)])
def test_an_answer_about_what_was_not_sent_ends_it(reply: InstallSnapshotReply) -> None:
    sending = Sending(SHIPMENT, chunk_bytes=30)
    sending.on_reply(wants(30))
    sending.take()
    with pytest.raises(MessageError):
        sending.on_reply(reply)


@pytest.mark.parametrize(
    "wrong",
    [
        chunk(0, b"x"),
        chunk(6, b"x"),
        chunk(5, b""),
        chunk(5, b"x", Shipment(Index(9), Term(2), 100, 78)),
    ],
    ids=["again", "too-far", "empty", "of-another"],
)
def test_only_the_next_bytes_are_taken(wrong: InstallSnapshot) -> None:
    receiving = Receiving()
    assert receiving.offered(SHIPMENT)
    receiving.take(chunk(0, b"12345"))
    with pytest.raises(MessageError):
        receiving.take(wrong)
    assert receiving.offset == 5


@pytest.mark.parametrize("seed", range(50))
def test_whatever_breaks_every_byte_arrives_once_and_in_order(seed: int) -> None:
    """Connections end at random, with chunks and answers on the way."""
    rng = random.Random(seed)
    content = rng.randbytes(SHIPMENT.size)
    receiving, got = Receiving(), b""
    for _ in range(200):
        sending = Sending(SHIPMENT, chunk_bytes=rng.choice([1, 7, 30, 200]))
        receiving.offered(SHIPMENT)
        sending.on_reply(wants(receiving.offset))
        while (piece := sending.take()) is not None:
            offset, length = piece
            if rng.random() < 0.2:
                break
            receiving.take(chunk(offset, content[offset : offset + length]))
            got += content[offset : offset + length]
            if rng.random() < 0.2:
                break
            sending.on_reply(wants(receiving.offset))
        if receiving.complete:
            break
    assert got == content
