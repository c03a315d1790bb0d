"""Frames byte for byte as Java writes them, and the rules for those that are none."""

import json
import struct
from pathlib import Path

import pytest
from gantry_protocol.errors import FrameError
from gantry_protocol.frame import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    TOO_LARGE,
    FrameDecoder,
    RemotingCommand,
    SerializeType,
    encode,
    reply,
    request,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "frames.json").read_text("utf-8"))


def _frame(vector: dict) -> bytes:
    header = (
        bytes.fromhex(vector["header_hex"]) if "header_hex" in vector else vector["header"].encode()
    )
    body = vector.get("body", "").encode()
    kind = vector["command"].get("serialize_type", 0)
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def _command(vector: dict) -> RemotingCommand:
    fields = dict(vector["command"])
    kind = SerializeType(fields.pop("serialize_type", 0))
    return RemotingCommand(**fields, body=vector.get("body", "").encode(), serialize_type=kind)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_java_frames_decode_to_what_they_say(vector: dict) -> None:
    frame = _frame(vector)
    if "prefix" in vector:
        assert frame[:8].hex() == vector["prefix"]
    assert FrameDecoder().feed(frame) == [_command(vector)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_we_write_the_bytes_java_writes(vector: dict) -> None:
    assert encode(_command(vector)) == _frame(vector)


def test_a_reply_is_json_and_carries_the_opaque_of_its_request() -> None:
    asked = RemotingCommand(code=1012, opaque=-5, serialize_type=SerializeType.ROCKETMQ)
    answer = reply(asked, 2014, "taken", {"a": "b"}, b"x")
    assert answer == RemotingCommand(
        code=2014, opaque=-5, flag=1, remark="taken", ext={"a": "b"}, body=b"x"
    )
    assert answer.is_response
    assert not answer.is_oneway


def test_a_oneway_request_says_so() -> None:
    assert request(904, oneway=True).flag == 2
    assert request(904, oneway=True).is_oneway
    assert not request(904).is_oneway


def test_byte_by_byte_is_as_good_as_at_once() -> None:
    stream = b"".join(_frame(vector) for vector in VECTORS)
    decoder = FrameDecoder()
    commands = [command for byte in stream for command in decoder.feed(bytes([byte]))]
    assert commands == [_command(vector) for vector in VECTORS]
    assert decoder.pending_bytes == 0


GOOD = encode(request(105, {"topic": "T"}))
HEADER_SIZE = len(GOOD) - 8


def _malformed(length: int, kind: int, header_size: int, rest: bytes = b"") -> bytes:
    return struct.pack(">iI", length, kind << 24 | header_size) + rest


MALFORMED = {
    "negative length": _malformed(-1, 0, 0),
    "length below 4": _malformed(3, 0, 0),
    "header beyond the frame": _malformed(10, 0, 7),
    "frame too large": _malformed(MAX_FRAME_BYTES - 3, 0, 10),
    "unknown codec": _malformed(HEADER_SIZE + 4, 2, HEADER_SIZE, GOOD[8:]),
    "empty JSON header": _malformed(4, 0, 0),
    "header is a list": _malformed(6, 0, 2, b"[]"),
    "header is no JSON": _malformed(8, 0, 4, b"\x00abc"),
    "header is not UTF-8": _malformed(16, 0, 12, b'{"remark":"\xff'),
    "code beyond int32": _malformed(25, 0, 21, b'{"code":2147483648   }'),
    "code is an object": _malformed(15, 0, 11, b'{"code":{}}'),
    "ext is a list": _malformed(20, 0, 16, b'{"extFields":[]}'),
    "nesting": _malformed(5004, 0, 5000, b"[" * 5000),
    "binary too short": _malformed(9, 1, 5, b"\x00" * 5),
    "binary remark beyond": _malformed(25, 1, 21, struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 9, 0)),
    "binary remark negative": _malformed(25, 1, 21, struct.pack(">hbhiiii", 1, 0, 0, 0, 0, -1, 0)),
    "binary ext beyond": _malformed(25, 1, 21, struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 4)),
    "binary ext negative": _malformed(25, 1, 21, struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, -1)),
    "binary key negative": _malformed(
        29, 1, 25, struct.pack(">hbhiiiihh", 1, 0, 0, 0, 0, 0, 4, -1, 0)
    ),
    "TLS": b"\x16\x03\x01",
    "HTTP": b"GET / HTTP/1.1\r\n",
    "almost PROXY": b"PROXIES",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(FrameError) as refusal:
        FrameDecoder().feed(data)
    assert refusal.value.before == []


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_stood_before_malformed_bytes_is_still_served(data: bytes) -> None:
    with pytest.raises(FrameError) as refusal:
        FrameDecoder().feed(GOOD + GOOD + data.ljust(8, b"?"))
    assert [command.code for command in refusal.value.before] == [105, 105]


@pytest.mark.parametrize("name", ["binary remark negative", "binary key negative"])
def test_a_negative_length_is_never_walked_back_along(name: str) -> None:
    with pytest.raises(FrameError, match="text of -1 bytes"):
        FrameDecoder().feed(MALFORMED[name])


def test_empty_texts_of_a_binary_header_are_absent() -> None:
    command = RemotingCommand(
        code=1, remark="", ext={"": "x", "a": "", "b": "y"}, serialize_type=SerializeType.ROCKETMQ
    )
    (got,) = FrameDecoder().feed(encode(command))
    assert (got.remark, got.ext) == (None, {"b": "y"})


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    command = RemotingCommand(code=10)
    room = MAX_FRAME_BYTES - len(encode(command))
    command.body = bytes(room)
    frame = encode(command)
    assert len(frame) == MAX_FRAME_BYTES
    decoder = FrameDecoder()
    assert decoder.feed(frame[:1000]) == []
    assert decoder.feed(frame[1000:]) == [command]
    command.body += b"x"
    with pytest.raises(FrameError, match="a frame holds"):
        encode(command)


@pytest.mark.parametrize(
    "command",
    [
        RemotingCommand(code=200_050, serialize_type=SerializeType.ROCKETMQ),
        RemotingCommand(version=40_000, serialize_type=SerializeType.ROCKETMQ),
        RemotingCommand(ext={"k" * 40_000: "v"}, serialize_type=SerializeType.ROCKETMQ),
    ],
    ids=["code", "version", "key"],
)
def test_what_does_not_fit_a_binary_header_is_never_sent(command: RemotingCommand) -> None:
    with pytest.raises(FrameError, match="does not fit"):
        encode(command)


def test_taking_back_returns_the_very_bytes_from_a_command_on() -> None:
    frames = [encode(request(code, {"n": str(code)})) for code in (10, 11, 12)]
    decoder = FrameDecoder(remember=True)
    decoder.feed(frames[0][:9])
    commands = decoder.feed(frames[0][9:] + frames[1] + frames[2] + frames[0][:20])
    assert [command.code for command in commands] == [10, 11, 12]
    assert decoder.take_back(1) == frames[1] + frames[2] + frames[0][:20]
    assert decoder.pending_bytes == 0
    assert decoder.feed(frames[2]) == [commands[2]]


def _started(header: bytes, body_bytes: int, kind: int = 0) -> bytes:
    """A frame without its body."""
    length = 4 + len(header) + body_bytes
    return struct.pack(">iI", length, kind << 24 | len(header)) + header


@pytest.mark.parametrize("kind", [0, 1])
def test_a_header_is_bounded_before_a_byte_of_it_is_there(kind: int) -> None:
    claims = struct.pack(">iI", MAX_HEADER_BYTES + 5, kind << 24 | MAX_HEADER_BYTES + 1)
    with pytest.raises(FrameError, match=f"{MAX_HEADER_BYTES + 1} of header"):
        FrameDecoder(max_header_bytes=MAX_HEADER_BYTES).feed(claims)


def test_the_largest_header_of_a_send_is_taken() -> None:
    """32,767 bytes of properties, half of them separators, which JSON writes with six bytes."""
    properties = "k\1v\2" * 8191
    frame = encode(request(310, {"b": "t" * 255, "i": properties}, b"body"))
    assert len(frame) < MAX_HEADER_BYTES
    (command,) = FrameDecoder(max_header_bytes=MAX_HEADER_BYTES).feed(frame)
    assert (command.ext or {})["i"] == properties


def test_an_answer_to_a_batch_names_every_message_in_its_header() -> None:
    answer = reply(request(320), ext={"msgId": ",".join(["A" * 32] * 40_000)})
    (command,) = FrameDecoder().feed(encode(answer))
    assert command.ext == answer.ext


def _limit(command: RemotingCommand) -> int:
    return 100_000 if command.code == 34 else 200_000


@pytest.mark.parametrize("cut", [8, 20, 60, 30_000, 99_999, 150_060])
def test_a_body_too_large_for_its_code_is_known_by_the_header(cut: int) -> None:
    decoder = FrameDecoder(body_limit=_limit)
    header = b'{"code":34,"opaque":7}'.ljust(50)
    frame = _started(header, 150_000) + b"x" * 150_000
    found = decoder.feed(frame[:cut])
    assert bool(found) is (cut >= 58), "neither before the header is there nor long after"
    assert decoder.pending_bytes <= 58, "nothing of the body is kept"
    found += decoder.feed(frame[cut:] + encode(request(35, {"a": "b"})))
    assert [(one.code, one.opaque) for one in found] == [(34, 7), (35, 0)]
    assert found[0].body is TOO_LARGE


def test_the_same_body_is_taken_where_its_code_may_have_it() -> None:
    decoder = FrameDecoder(body_limit=_limit)
    frame = _started(b'{"code":310}', 150_000) + b"x" * 150_000
    found = [
        command for at in range(0, len(frame), 7000) for command in decoder.feed(frame[at:][:7000])
    ]
    assert [one.body for one in found] == [b"x" * 150_000]


def test_frames_are_decoded_as_many_as_wanted() -> None:
    decoder = FrameDecoder()
    frames = b"".join(encode(request(n)) for n in range(5))
    found = [[one.code for one in decoder.feed(frames + frames[:9], 2)]]
    while decoder.has_more:
        found.append([one.code for one in decoder.feed(b"", 2)])
    assert found == [[0, 1], [2, 3], [4]]
    assert decoder.pending_bytes == 9
    assert [one.code for one in decoder.feed(frames[9:])] == [0, 1, 2, 3, 4]


def test_what_was_put_off_is_taken_back_with_the_rest() -> None:
    decoder = FrameDecoder(remember=True, body_limit=_limit)
    frames = [encode(request(n)) for n in range(4)]
    large = _started(b'{"code":34}', 150_000) + b"x" * 90_000
    assert len(decoder.feed(b"".join(frames) + large, 3)) == 3
    assert decoder.take_back(1) == b"".join(frames[1:]) + large
    assert (decoder.pending_bytes, decoder.has_more) == (0, False)
