"""Frames under arbitrary bytes, arbitrary commands and arbitrary chunking."""

from itertools import pairwise

from gantry_protocol.errors import FrameError
from gantry_protocol.frame import LANGUAGES, FrameDecoder, RemotingCommand, SerializeType, encode
from hypothesis import given, settings
from hypothesis import strategies as st

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
WORD = TEXT.filter(bool)

JSON_COMMANDS = st.builds(
    RemotingCommand,
    code=INT32,
    opaque=INT32,
    flag=INT32,
    language=st.sampled_from(LANGUAGES),
    version=INT32,
    remark=st.none() | TEXT,
    ext=st.none() | st.dictionaries(TEXT, TEXT, max_size=6),
    body=st.binary(max_size=200),
)
BINARY_COMMANDS = st.builds(
    RemotingCommand,
    code=INT16,
    opaque=INT32,
    flag=INT32,
    language=st.sampled_from(LANGUAGES),
    version=INT16,
    remark=st.none() | WORD,
    ext=st.none() | st.dictionaries(WORD, WORD, min_size=1, max_size=6),
    body=st.binary(max_size=200),
    serialize_type=st.just(SerializeType.ROCKETMQ),
)
COMMANDS = st.lists(JSON_COMMANDS | BINARY_COMMANDS, max_size=6)


@st.composite
def chunked(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def _feed(chunks: list[bytes]) -> tuple[list[RemotingCommand], bool, FrameDecoder]:
    """All commands, whether the stream turned out malformed, and the decoder."""
    decoder = FrameDecoder()
    commands: list[RemotingCommand] = []
    for chunk in chunks:
        try:
            commands += decoder.feed(chunk)
        except FrameError as error:
            return commands + error.before, True, decoder
    return commands, False, decoder


@given(commands=COMMANDS, data=st.data())
def test_what_is_encoded_is_decoded_however_it_is_cut(
    commands: list[RemotingCommand], data: st.DataObject
) -> None:
    stream = b"".join(encode(command) for command in commands)
    got, malformed, decoder = _feed(data.draw(chunked(stream)))
    assert got == commands
    assert not malformed
    assert decoder.pending_bytes == 0


@settings(max_examples=300)
@given(commands=COMMANDS, noise=st.binary(max_size=300), data=st.data())
def test_chunking_never_changes_what_a_stream_means(
    commands: list[RemotingCommand], noise: bytes, data: st.DataObject
) -> None:
    stream = b"".join(encode(command) for command in commands) + noise
    whole = _feed([stream])[:2]
    assert _feed(data.draw(chunked(stream)))[:2] == whole


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=120), max_size=10))
def test_arbitrary_bytes_are_refused_or_kept_within_bounds(chunks: list[bytes]) -> None:
    _, malformed, decoder = _feed(chunks)
    assert malformed or decoder.pending_bytes <= sum(map(len, chunks))


@settings(max_examples=300)
@given(
    command=JSON_COMMANDS | BINARY_COMMANDS,
    position=st.integers(0, 400),
    value=st.integers(0, 255),
)
def test_one_wrong_byte_never_raises_anything_but_a_frame_error(
    command: RemotingCommand, position: int, value: int
) -> None:
    frame = bytearray(encode(command))
    frame[position % len(frame)] = value
    _feed([bytes(frame)])


@given(
    commands=st.lists(JSON_COMMANDS, min_size=1, max_size=5),
    cut=st.integers(0, 4),
    n=st.integers(0, 30),
)
def test_taken_back_bytes_decode_to_the_same_commands(
    commands: list[RemotingCommand], cut: int, n: int
) -> None:
    frames = [encode(command) for command in commands]
    decoder = FrameDecoder(remember=True)
    assert decoder.feed(b"".join(frames) + frames[0][:n]) == commands
    index = cut % len(commands)
    raw = decoder.take_back(index)
    assert decoder.feed(raw) == commands[index:]
