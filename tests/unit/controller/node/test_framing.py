"""Frames and hellos between peers: bounded, cut anywhere, and strangers are told why."""

from __future__ import annotations

import pytest
from gantry_controller.node.framing import (
    PING,
    VERSION,
    FrameReader,
    Hello,
    decode_hello,
    encode_hello,
    frame,
    refusal_of,
)
from gantry_protocol.errors import FrameError
from gantry_protocol.types import NodeId
from hypothesis import given
from hypothesis import strategies as st

ME, PEER = NodeId(1), NodeId(2)
HELLO = Hello(VERSION, PEER, ME, "uid-ü", "[::1]:9879")


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 7), min_size=1))
def test_frames_come_out_whole_however_the_stream_is_cut(
    bodies: list[bytes], sizes: list[int]
) -> None:
    stream = b"".join(map(frame, bodies))
    reader = FrameReader()
    found: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        found += reader.feed(stream[position : position + size])
        position += size
        turn += 1
    assert found == bodies


def test_a_frame_beyond_the_bound_is_refused_by_its_length() -> None:
    with pytest.raises(FrameError, match="a frame of 101 bytes, more than 100"):
        FrameReader(100).feed(frame(b"x" * 101)[:4])


def test_a_ping_is_an_empty_frame() -> None:
    assert FrameReader().feed(PING) == [b""]


def test_a_hello_comes_back_as_it_was() -> None:
    (body,) = FrameReader().feed(encode_hello(HELLO))
    assert decode_hello(body) == HELLO


@pytest.mark.parametrize(
    "body",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"GANTRAFT", encode_hello(HELLO)[4:] + b"\xff"],
    ids=["nothing", "another protocol", "too short", "no text"],
)
def test_what_is_no_hello_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode_hello(body)


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (Hello(VERSION, PEER, ME, "uid"), ""),
        (Hello(1, PEER, ME, "uid"), "it speaks version 1 of the peer protocol, this node 2"),
        (Hello(VERSION, PEER, ME, "x"), "it belongs to the cluster 'x', this node to 'uid'"),
        (Hello(VERSION, PEER, NodeId(3), "uid"), "it looks for node 3, this is node 1"),
        (Hello(VERSION, ME, ME, "uid"), "it says that it is node 1, this is node 1"),
        (Hello(VERSION, NodeId(0), ME, "uid"), "it says that it is node 0, this is node 1"),
    ],
)
def test_strangers_are_told_why(hello: Hello, words: str) -> None:
    assert refusal_of(hello, ME, "uid") == words
