"""What is fuzzed: one function per reader of bytes that others wrote.

Each takes arbitrary bytes and returns if the reader kept its word: it refused them with its own
error, or took them, and what it took is written and read again unchanged. Anything else that is
raised, an ``AssertionError`` of these functions included, is a finding.

``make fuzz`` drives them by coverage; ``tests/unit/fuzz`` drives them with hypothesis, and replays
what was found (``tests/fuzz/corpus``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from gantry_controller.metadata import snapshot
from gantry_controller.metadata.events import UnknownEventError, decode_event, encode_event
from gantry_controller.metadata.state import MetadataState
from gantry_controller.node.framing import FrameReader, decode_hello, encode_hello
from gantry_controller.raft import shipment
from gantry_controller.raft.codec import decode, encode
from gantry_controller.raft.errors import MessageError
from gantry_controller.wal.recovery import recover
from gantry_controller.wal.replay import Replay, SegmentUse
from gantry_controller.wal.snapshot_file import Encoder, checksum_of
from gantry_controller.wal.snapshots import parse_snapshot
from gantry_protocol import frame as frames_module
from gantry_protocol.bodies import (
    BrokerReplicasInfo,
    ElectMasterBody,
    HeartbeatData,
    SyncStateSetBody,
    decode_body,
    encode_body,
)
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import (
    BodyError,
    CorruptionError,
    DataDirError,
    FrameError,
    HeaderError,
    WireError,
)
from gantry_protocol.frame import MAX_HEADER_BYTES, FrameDecoder
from gantry_protocol.headers import (
    brokeradmin,
    client,
    controller,
    from_ext,
    nameserver,
    to_ext,
)

Target = Callable[[bytes], None]

LENGTH = struct.Struct(">H")
BODIES: list[type[Any]] = [
    SyncStateSetBody,
    ElectMasterBody,
    BrokerReplicasInfo,
    HeartbeatData,
    list[str],
]


def _headers(modules: tuple[ModuleType, ...]) -> list[type[msgspec.Struct]]:
    found = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_fields__
    }
    return sorted(found, key=lambda kind: kind.__name__)


HEADERS = _headers((brokeradmin, client, controller, nameserver))


def frames(data: bytes) -> None:
    """The remoting server's first reader; the first byte says where the stream is cut."""
    cut = data[0] if data else 0
    stream = data[1:]
    whole, broken = _commands([stream])
    pieces, broken_in_pieces = _commands([stream[:cut], stream[cut:]])
    assert whole == pieces, "where packets end changes what is read"
    assert broken == broken_in_pieces
    for command in whole:
        try:
            again, _ = _commands([frames_module.encode(command)])
        except FrameError:
            continue  # a binary header holds less than the text it may come from
        assert [one.opaque for one in again] == [command.opaque]


def _commands(chunks: list[bytes]) -> tuple[list[RemotingCommand], bool]:
    decoder = FrameDecoder(max_header_bytes=MAX_HEADER_BYTES, body_limit=lambda _: 64)
    found: list[RemotingCommand] = []
    for chunk in chunks:
        try:
            found += decoder.feed(chunk)
        except FrameError as error:
            return found + list(error.before), True
    return found, False


def headers(data: bytes) -> None:
    """Custom headers: the first byte says which; then keys and values by turns, each cut at NUL."""
    if not data:
        return
    kind = HEADERS[data[0] % len(HEADERS)]
    words = [part.decode("utf-8", "replace") for part in data[1:].split(b"\0")]
    ext = dict(zip(words[::2], words[1::2], strict=False))
    try:
        header = from_ext(kind, ext)
    except HeaderError:
        return
    assert from_ext(kind, to_ext(header)) == header


def bodies(data: bytes) -> None:
    """JSON bodies, Java's kind of JSON included; the first byte says which."""
    if not data:
        return
    kind = BODIES[data[0] % len(BODIES)]
    try:
        body = decode_body(kind, data[1:])
    except BodyError:
        return
    assert decode_body(kind, encode_body(body)) == body


def peers(data: bytes) -> None:
    """What a Raft peer sends behind its hello."""
    try:
        message = decode(data)
    except MessageError:
        return
    assert decode(encode(message)) == message


def hellos(data: bytes) -> None:
    """The peers' framing, and the hello in the first frame."""
    reader = FrameReader(1024)
    try:
        found = reader.feed(data)
        for body in found:
            hello = decode_hello(body)
            assert decode_hello(encode_hello(hello)[4:]) == hello
    except WireError:
        return
    assert len(reader._buffer) <= 1024 + 4


def events(data: bytes) -> None:
    """A command in the log."""
    try:
        event = decode_event(data)
    except UnknownEventError:
        return
    assert decode_event(encode_event(event)) == event


def segments(data: bytes) -> None:
    """One segment of a write-ahead log, as it lies on the disk."""
    try:
        found = recover([(Path("wal-1"), data)])
    except (CorruptionError, DataDirError):
        return
    assert [entry.index for entry in found.entries] == list(
        range(found.base.index + 1, found.base.index + 1 + len(found.entries))
    )


def records(data: bytes) -> None:
    """The records of a log whose checksums hold: each is a length and a body."""
    replay = Replay(whole=True)
    replay.segments.append(SegmentUse(Path("wal-1"), 0))
    try:
        for body in _pieces(data):
            replay.record(body)
            indexes = [entry.index for entry in replay.entries]
            assert not indexes or indexes == list(range(indexes[0], indexes[0] + len(indexes)))
            assert not indexes or replay.last_index == indexes[-1]
    except MessageError:
        return


def snapshots(data: bytes) -> None:
    """The slices of a snapshot, each a length and its bytes."""
    try:
        parts = [snapshot.decode(piece) for piece in _pieces(data)]
    except DataDirError:
        return
    names = {part.field for part in parts}
    if set(snapshot.FIELDS) <= names:
        state = MetadataState()
        snapshot.restore(state, parts)
        again = MetadataState()
        snapshot.restore(again, [snapshot.decode(one) for one in snapshot.take(state)])
        assert list(snapshot.take(again)) == list(snapshot.take(state))


def snapshot_files(data: bytes) -> None:
    """A snapshot as it lies on the disk, or came from a peer: whole and verified, or refused."""
    try:
        info, slices = parse_snapshot(Path("snapshot-1"), data)
        found = list(slices)
    except (CorruptionError, DataDirError):
        return
    again = Encoder(info.meta)
    written = again.header() + b"".join(map(again.slice, found)) + again.end()
    assert parse_snapshot(Path("snapshot-1"), written)[0].meta == info.meta
    assert info.checksum == checksum_of(data)


def chunks(data: bytes) -> None:
    """A snapshot's bytes on their way to a follower, and its answers."""
    try:
        chunk = shipment.decode_chunk(data)
    except MessageError:
        pass
    else:
        assert shipment.decode_chunk(shipment.encode(chunk)) == chunk
    try:
        answer = shipment.decode_reply(data)
    except MessageError:
        return
    assert shipment.decode_reply(shipment.encode(answer)) == answer


def _pieces(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + LENGTH.size <= len(data):
        (length,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        piece = data[at : at + length]
        if not piece:
            return
        yield piece
        at += length


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        frames,
        headers,
        bodies,
        peers,
        hellos,
        events,
        segments,
        records,
        snapshots,
        snapshot_files,
        chunks,
    )
}
