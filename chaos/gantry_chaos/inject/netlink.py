"""The bytes of nfnetlink_queue: binding to a queue, reading packets' ids, giving verdicts. Pure.

Only what a delay needs: packets are not copied (metadata mode), a verdict names a packet by its id.
Layouts: linux/netlink.h, linux/netfilter/nfnetlink.h, linux/netfilter/nfnetlink_queue.h.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

NETLINK_NETFILTER = 12
SUBSYSTEM_QUEUE = 3
MESSAGE_PACKET = SUBSYSTEM_QUEUE << 8 | 0
MESSAGE_VERDICT = SUBSYSTEM_QUEUE << 8 | 1
MESSAGE_CONFIG = SUBSYSTEM_QUEUE << 8 | 2
MESSAGE_ERROR = 2
REQUEST, ACKNOWLEDGE = 1, 4

CONFIG_COMMAND, CONFIG_PARAMS, CONFIG_QUEUE_LENGTH, CONFIG_MASK, CONFIG_FLAGS = 1, 2, 3, 4, 5
COMMAND_BIND = 1
COPY_METADATA = 1
FLAG_FAIL_OPEN = 1
PACKET_HEADER, VERDICT_HEADER = 1, 2
VERDICT_DROP, VERDICT_ACCEPT = 0, 1
FAMILY_INET = 2

_HEADER = struct.Struct("=IHHII")
_GENERIC = struct.Struct("!BBH")
_ATTRIBUTE = struct.Struct("=HH")
ATTRIBUTE_TYPE_MASK = 0x3FFF  # without the flags for nested and byte order


class Packet(msgspec.Struct, frozen=True):
    """A packet that waits for its verdict."""

    id: int


class NetlinkAck(msgspec.Struct, frozen=True):
    """The kernel's answer to a request; 0 is success, otherwise an errno."""

    sequence: int
    code: int


def bind(queue: int, sequence: int) -> bytes:
    """Take a queue of this namespace."""
    command = struct.pack("!BBH", COMMAND_BIND, 0, FAMILY_INET)
    return _config(queue, sequence, (CONFIG_COMMAND, command))


def configure(queue: int, sequence: int, length: int) -> bytes:
    """No payload; at most `length` packets; what does not fit passes."""
    flag = struct.pack("!I", FLAG_FAIL_OPEN)
    return _config(
        queue,
        sequence,
        (CONFIG_PARAMS, struct.pack("!IB", 0, COPY_METADATA)),
        (CONFIG_QUEUE_LENGTH, struct.pack("!I", length)),
        (CONFIG_MASK, flag),
        (CONFIG_FLAGS, flag),
    )


def verdict(queue: int, packet: int, *, accept: bool) -> bytes:
    """Let a packet go on, or drop it."""
    body = struct.pack("!II", VERDICT_ACCEPT if accept else VERDICT_DROP, packet)
    return _message(MESSAGE_VERDICT, REQUEST, 0, queue, (VERDICT_HEADER, body))


def messages(data: bytes) -> Iterator[Packet | NetlinkAck]:
    """Packets and answers in one datagram from the kernel; other messages are left out.

    Raises:
        ValueError: the lengths in it do not fit.
    """
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, sequence, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            raise ValueError(f"a netlink message of {length} bytes at {at} of {len(data)}")
        body = data[at + _HEADER.size : at + length]
        if kind == MESSAGE_ERROR:
            yield NetlinkAck(sequence, -struct.unpack_from("=i", body)[0])
        elif kind == MESSAGE_PACKET:
            for name, content in _attributes(body[_GENERIC.size :]):
                if name == PACKET_HEADER:
                    yield Packet(struct.unpack_from("!I", content)[0])
        at += _aligned(length)


def _config(queue: int, sequence: int, *attributes: tuple[int, bytes]) -> bytes:
    return _message(MESSAGE_CONFIG, REQUEST | ACKNOWLEDGE, sequence, queue, *attributes)


def _message(
    kind: int, flags: int, sequence: int, queue: int, *attributes: tuple[int, bytes]
) -> bytes:
    body = _GENERIC.pack(0, 0, queue)
    for name, content in attributes:
        length = _ATTRIBUTE.size + len(content)
        padding = bytes(_aligned(length) - length)
        body += _ATTRIBUTE.pack(length, name) + content + padding
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, name = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size or at + length > len(data):
            raise ValueError(f"a netlink attribute of {length} bytes at {at} of {len(data)}")
        yield name & ATTRIBUTE_TYPE_MASK, data[at + _ATTRIBUTE.size : at + length]
        at += _aligned(length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
