"""Honest bytes for every fuzz target: what mutations start from."""

from __future__ import annotations

import struct

from gantry_controller.metadata import snapshot
from gantry_controller.metadata.events import (
    ApplyBrokerId,
    ElectMaster,
    Event,
    LiveMember,
    encode_event,
)
from gantry_controller.node.framing import VERSION, Hello, encode_hello
from gantry_controller.raft import shipment
from gantry_controller.raft.codec import _FIXED, encode
from gantry_controller.raft.members import Membership, encode_members
from gantry_controller.raft.messages import (
    Append,
    Entry,
    EntryKind,
    HardState,
    make_entry,
)
from gantry_controller.raft.snapshot import SnapshotMeta
from gantry_controller.wal.format import (
    HEADER_SIZE,
    Head,
    Header,
    Write,
    _hard_state_body,
    encode_batch,
)
from gantry_controller.wal.snapshot_file import Encoder
from gantry_protocol.command import request
from gantry_protocol.frame import SerializeType
from gantry_protocol.frame import encode as encode_frame
from gantry_protocol.types import BrokerId, Epoch, Index, NodeId, Term
from support.fuzz_targets import LENGTH
from support.metadata_world import three_in_sync

FIXED = sorted(_FIXED.items())  # messages of fixed size, by type
SEGMENT_BYTES = 512
HARD = HardState(Term(1), NodeId(2), Index(0), True)


def seeds() -> dict[str, list[bytes]]:
    """By the name of the target."""
    binary = request(1004, {"brokerName": "b"}, b"{}")
    binary.serialize_type = SerializeType.ROCKETMQ
    return {
        "frames": [
            b"\x05" + encode_frame(request(1004, {"brokerName": "b"}, b"{}")) * 2,
            b"\x05" + encode_frame(binary),
            b"\x00PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + encode_frame(request(105)),
        ],
        "headers": [b"\x07clusterName\0c\0brokerName\0b\0brokerId\0" + b"1"],
        "bodies": [
            b'\x00{"syncStateSet":[1,2],"syncStateSetEpoch":5}',
            b'\x01{"brokerMemberGroup":{"brokerAddrs":{1:"h:1"},"brokerName":"b","cluster":"c"}}',
        ],
        "peers": [encode(append()), *(bytes([n]) + bytes(at.size - 1) for n, (_, at) in FIXED)],
        "hellos": [
            encode_hello(Hello(VERSION, NodeId(1), NodeId(2), "uid")) + struct.pack(">I", 0)
        ],
        "events": [encode_event(event) for event in some_events()],
        "segments": [segment()],
        "records": [
            pieces(_hard_state_body(HARD), *(entry.encoded for entry in entries())),
        ],
        "snapshots": [pieces(*snapshot.take(three_in_sync().state))],
        "snapshot_files": [snapshot_file()],
        "chunks": [shipment.encode(message) for message in shipped()],
    }


def pieces(*parts: bytes) -> bytes:
    """Each with its length before it."""
    return b"".join(LENGTH.pack(len(part)) + part for part in parts)


def entries() -> list[Entry]:
    members = Membership(voters=(NodeId(1), NodeId(2)))
    return [
        make_entry(EntryKind.COMMAND, Term(1), Index(1), b"command"),
        make_entry(EntryKind.MEMBERS, Term(1), Index(2), encode_members(members)),
        make_entry(EntryKind.COMMAND, Term(1), Index(3), b""),
    ]


def append() -> Append:
    return Append(
        source=NodeId(1),
        target=NodeId(2),
        term=Term(1),
        prev_index=Index(0),
        prev_term=Term(0),
        commit=Index(0),
        round=1,
        admit=0,
        entries=tuple(entries()),
    )


def some_events() -> list[Event]:
    live = (LiveMember(broker_id=BrokerId(1), epoch=Epoch(1)),)
    return [
        ApplyBrokerId(cluster="c", name="b", broker_id=BrokerId(1), check_code="h:1;1"),
        ElectMaster(
            cluster="c",
            name="b",
            requester=BrokerId(1),
            designate=False,
            incarnation="",
            expected_epoch=None,
            live=live,
            first_wait_over=False,
        ),
    ]


def segment() -> bytes:
    """A small segment with two batches."""
    header = Header(sequence=1, size=SEGMENT_BYTES, chain=0, batch=1)
    head = Head(
        sequence=1,
        size=SEGMENT_BYTES,
        offset=HEADER_SIZE,
        chain=header.seed,
        batch=1,
        last_index=0,
    )
    data = bytearray(SEGMENT_BYTES)
    data[:HEADER_SIZE] = header.encode()
    for batch in (entries()[:2], entries()[2:]):
        start = head.offset
        encoded = encode_batch(head, [Write(batch, HARD)])
        data[start : head.offset] = encoded
    return bytes(data)


def snapshot_file() -> bytes:
    """Two slices of a member's first snapshot."""
    members = Membership(voters=(NodeId(1),), addresses=((NodeId(1), "h:1"),))
    encoder = Encoder(SnapshotMeta(Index(3), Term(1), members))
    return encoder.header() + encoder.slice(b"one") + encoder.slice(b"two") + encoder.end()


def shipped() -> list[shipment.InstallSnapshot | shipment.InstallSnapshotReply]:
    what = shipment.Shipment(Index(3), Term(1), size=6, checksum=1)
    return [
        shipment.InstallSnapshot(NodeId(1), NodeId(2), what, 0, b""),
        shipment.InstallSnapshot(NodeId(1), NodeId(2), what, 3, b"two"),
        shipment.InstallSnapshotReply(NodeId(2), NodeId(1), Index(3), Index(0), 3),
    ]
