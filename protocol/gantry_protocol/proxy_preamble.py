"""HAProxy's PROXY preamble, versions 1 and 2: who the client behind a forwarding peer really is.

Both versions are read, as upstream's server does; version 1 is written, by the splice. A preamble
can only stand at the very start of a connection. Nothing is ever granted because of it: it names
the client in logs, and it tells a broker that a connection has been forwarded once already
(proxy-protocol.txt, HAProxy, sections 2.1 and 2.2).
"""

import ipaddress
import struct

import msgspec

from gantry_protocol.errors import FrameError

UNKNOWN_V1 = b"PROXY UNKNOWN\r\n"

_V1_START = b"PROXY "
_V1_MAX_BYTES = 107  # "a 108-byte buffer is always enough" including the terminating zero
_V2_START = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_FIXED = struct.Struct(">12sBBH")
_V2_MAX_BYTES = 4096  # addresses and a few TLVs; no honest proxy uses the 64 KiB it could
_V2_LOCAL, _V2_PROXY = 0x20, 0x21
_V2_TCP4, _V2_TCP6 = 0x11, 0x21


class Preamble(msgspec.Struct, frozen=True):
    """A preamble that was read: the client's ``ip:port``, None if it does not say, and its size."""

    source: str | None
    size: int


def starts_preamble(first_byte: int) -> bool:
    """Whether this first byte starts a preamble; a legal frame starts with a zero."""
    return first_byte in (_V1_START[0], _V2_START[0])


def parse_preamble(data: bytes) -> Preamble | None:
    """The preamble at the start of ``data``, or None if more bytes are needed to tell.

    Raises:
        FrameError: this can no longer become a preamble.
    """
    if data[:1] == _V1_START[:1]:
        return _parse_v1(data)
    return _parse_v2(data)


def build_v1(source: tuple[str, int], destination: tuple[str, int]) -> bytes:
    """The version 1 line for a connection from ``source`` to ``destination``, both IP addresses."""
    ips = ipaddress.ip_address(source[0]), ipaddress.ip_address(destination[0])
    if ips[0].version != ips[1].version:
        return UNKNOWN_V1
    family = "TCP4" if ips[0].version == 4 else "TCP6"
    return f"PROXY {family} {ips[0]} {ips[1]} {source[1]} {destination[1]}\r\n".encode()


def _parse_v1(data: bytes) -> Preamble | None:
    head = data[: len(_V1_START)]
    if head != _V1_START[: len(head)]:
        raise FrameError("The connection starts neither with a frame nor with a PROXY preamble.")
    end = data.find(b"\r\n", 0, _V1_MAX_BYTES)
    if end < 0:
        if len(data) >= _V1_MAX_BYTES:
            raise FrameError(f"The PROXY preamble has no end within {_V1_MAX_BYTES} bytes.")
        return None
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return Preamble(None, end + 2)
    try:
        protocol, source_ip, _destination_ip, source_port, _destination_port = (
            word.decode("ascii") for word in words[1:]
        )
        ip = ipaddress.ip_address(source_ip)
        port = int(source_port)
    except ValueError as error:
        raise FrameError("The PROXY preamble is malformed.") from error
    if protocol != f"TCP{4 if ip.version == 4 else 6}" or not 0 <= port <= 65535:
        raise FrameError("The PROXY preamble is malformed.")
    return Preamble(_join(ip, port), end + 2)


def _parse_v2(data: bytes) -> Preamble | None:
    head = data[: len(_V2_START)]
    if head != _V2_START[: len(head)]:
        raise FrameError("The connection starts neither with a frame nor with a PROXY preamble.")
    if len(data) < _V2_FIXED.size:
        return None
    _, command, family, length = _V2_FIXED.unpack_from(data)
    size = _V2_FIXED.size + length
    if command not in (_V2_LOCAL, _V2_PROXY) or size > _V2_MAX_BYTES:
        raise FrameError(f"The PROXY preamble has command {command:#x} and {size} bytes.")
    if len(data) < size:
        return None
    return Preamble(_v2_source(command, family, data[_V2_FIXED.size : size]), size)


def _v2_source(command: int, family: int, addresses: bytes) -> str | None:
    width = {_V2_TCP4: 4, _V2_TCP6: 16}.get(family)
    if (
        command == _V2_LOCAL or width is None
    ):  # a health check of the proxy itself, or a family without ports
        return None
    if len(addresses) < 2 * width + 4:
        raise FrameError("The PROXY preamble is shorter than its addresses.")
    (port,) = struct.unpack_from(">H", addresses, 2 * width)
    return _join(ipaddress.ip_address(addresses[:width]), port)


def _join(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"
