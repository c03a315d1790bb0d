"""PROXY preambles in front of frames."""

import struct

import pytest
from gantry_protocol.errors import FrameError
from gantry_protocol.frame import FrameDecoder, encode, request
from gantry_protocol.proxy_preamble import UNKNOWN_V1, build_v1

FRAME = encode(request(34))
V2 = b"\r\n\r\n\x00\r\nQUIT\n"


def _v2(command: int, family: int, payload: bytes) -> bytes:
    return V2 + struct.pack(">BBH", command, family, len(payload)) + payload


TCP4 = bytes([10, 0, 0, 1, 10, 0, 0, 2]) + struct.pack(">HH", 40000, 10911)
TCP6 = bytes(15) + b"\x01" + bytes(16) + struct.pack(">HH", 40000, 10911)

PREAMBLES = {
    "v1 IPv4": (b"PROXY TCP4 10.0.0.1 10.0.0.2 40000 10911\r\n", "10.0.0.1:40000"),
    "v1 IPv6": (b"PROXY TCP6 ::1 ::2 40000 10911\r\n", "[::1]:40000"),
    "v1 unknown": (UNKNOWN_V1, None),
    "v1 unknown with rest": (b"PROXY UNKNOWN a b c\r\n", None),
    "v2 IPv4": (_v2(0x21, 0x11, TCP4), "10.0.0.1:40000"),
    "v2 IPv4 and TLV": (_v2(0x21, 0x11, TCP4 + b"\x04\x00\x01x"), "10.0.0.1:40000"),
    "v2 IPv6": (_v2(0x21, 0x21, TCP6), "[::1]:40000"),
    "v2 local": (_v2(0x20, 0x00, b""), None),
    "v2 unix": (_v2(0x21, 0x31, bytes(216)), None),
}


@pytest.mark.parametrize(("preamble", "source"), PREAMBLES.values(), ids=PREAMBLES)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_preamble_is_stripped_however_it_arrives(
    preamble: bytes, source: str | None, step: int
) -> None:
    decoder = FrameDecoder()
    stream = preamble + FRAME + FRAME
    codes = []
    for start in range(0, len(stream), step):
        codes += [command.code for command in decoder.feed(stream[start : start + step])]
    assert codes == [34, 34]
    assert decoder.proxied
    assert decoder.proxied_from == source


MALFORMED = {
    "endless": b"PROXY TCP4 " + b"1" * 100,
    "few words": b"PROXY TCP4 10.0.0.1\r\n",
    "no address": b"PROXY TCP4 nobody 10.0.0.2 1 2\r\n",
    "wrong family": b"PROXY TCP6 10.0.0.1 10.0.0.2 1 2\r\n",
    "no port": b"PROXY TCP4 10.0.0.1 10.0.0.2 x 2\r\n",
    "port too large": b"PROXY TCP4 10.0.0.1 10.0.0.2 70000 2\r\n",
    "v2 signature": V2[:-1] + b"X",
    "v2 version": _v2(0x31, 0x11, TCP4),
    "v2 too long": V2 + b"\x21\x11\xff\xff",
    "v2 too short for its addresses": _v2(0x21, 0x11, TCP4[:8]),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_preamble_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        FrameDecoder().feed(data)


def test_a_preamble_counts_only_at_the_very_start() -> None:
    decoder = FrameDecoder()
    decoder.feed(FRAME)
    with pytest.raises(FrameError):
        decoder.feed(PREAMBLES["v1 IPv4"][0])
    assert not decoder.proxied


def test_a_preamble_twice_is_refused() -> None:
    preamble = PREAMBLES["v1 IPv4"][0]
    with pytest.raises(FrameError):
        FrameDecoder().feed(preamble * 2)
    decoder = FrameDecoder()
    decoder.feed(preamble)
    with pytest.raises(FrameError):
        decoder.feed(preamble)


def test_connections_we_opened_expect_none() -> None:
    with pytest.raises(FrameError):
        FrameDecoder(expect_preamble=False).feed(PREAMBLES["v1 IPv4"][0])


@pytest.mark.parametrize(
    ("source", "destination", "line"),
    [
        (("10.0.0.1", 1), ("10.0.0.2", 2), b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n"),
        (("::1", 1), ("::2", 2), b"PROXY TCP6 ::1 ::2 1 2\r\n"),
        (("::1", 1), ("10.0.0.2", 2), UNKNOWN_V1),
    ],
)
def test_the_line_we_write(source: tuple, destination: tuple, line: bytes) -> None:
    assert build_v1(source, destination) == line
