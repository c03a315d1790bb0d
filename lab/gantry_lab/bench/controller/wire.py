"""Frames of the remoting protocol, made once and sent often.

The generator shares its processors with what it measures, so nothing is encoded per request: an
``opaque`` belongs to a slot, which has one request outstanding at most, and what must differ from
one request to the next is a number of fixed width (JSON allows blanks before one). What it refuses:
to believe an answer it has not read; the code of every reply is decoded.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.errors import FrameError
from gantry_protocol.frame import MAX_FRAME_BYTES, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTER = "bench"
FOREVER_MS = 600_000  # a heartbeat that counts for longer than any measurement

_PREFIX = struct.Struct(">iI")
_HEADER_LENGTH_MASK = 0xFFFFFF
_NUMBER_WIDTH = 10  # digits of the widest int32
_PORT = 10_000  # this and as many above it have five digits


class Reply(msgspec.Struct, gc=False):
    """What is read of every reply's header."""

    code: int = 0
    opaque: int = 0
    remark: str | None = None


_decode_header = msgspec.json.Decoder(Reply).decode


def take_replies(data: bytes) -> tuple[list[Reply], bytes]:
    """All whole replies at the start of `data`, and what is left of it.

    Raises:
        FrameError: this is no remoting frame with a JSON header.
    """
    replies: list[Reply] = []
    position, end = 0, len(data)
    while end - position >= _PREFIX.size:
        length, word = _PREFIX.unpack_from(data, position)
        if word >> 24 or not (word & _HEADER_LENGTH_MASK) + 4 <= length <= MAX_FRAME_BYTES:
            raise FrameError(f"The answer is no frame with a JSON header (length {length}).")
        stop = position + 4 + length
        if stop > end:
            break
        start = position + _PREFIX.size
        try:
            replies.append(_decode_header(data[start : start + (word & _HEADER_LENGTH_MASK)]))
        except msgspec.MsgspecError as error:
            raise FrameError(f"The answer's header cannot be read: {error}.") from error
        position = stop
    return replies, data[position:]


def frame(
    code: int, opaque: int, ext: Mapping[str, str], body: bytes = b"", *, oneway: bool = False
) -> bytes:
    """One request, whole."""
    command = request(code, ext, body, oneway=oneway)
    command.opaque = opaque
    return encode(command)


def name(number: int) -> str:
    """The broker name of group `number`; all are of one length."""
    return f"group-{number:07d}"


def apply_id(opaque: int, group: int, broker_id: int, address: str) -> bytes:
    """1013: hands out the id; the check code makes a repetition harmless."""
    ext = {
        "clusterName": CLUSTER,
        "brokerName": name(group),
        "appliedBrokerId": str(broker_id),
        "registerCheckCode": f"{address};1",
    }
    return frame(RequestCode.CONTROLLER_APPLY_BROKER_ID, opaque, ext)


def register(opaque: int, group: int, broker_id: int, address: str) -> bytes:
    """1003: a started process says where it listens."""
    ext = {
        "clusterName": CLUSTER,
        "brokerName": name(group),
        "brokerId": str(broker_id),
        "brokerAddress": address,
        "invokeTime": "0",
    }
    return frame(RequestCode.CONTROLLER_REGISTER_BROKER, opaque, ext)


def elect(opaque: int, group: int, broker_id: int) -> bytes:
    """1002: asks for a master, as a broker does at its start."""
    ext = {
        "clusterName": CLUSTER,
        "brokerName": name(group),
        "brokerId": str(broker_id),
        "designateElect": "false",
        "invokeTime": "0",
    }
    return frame(RequestCode.CONTROLLER_ELECT_MASTER, opaque, ext)


def replica_info(opaque: int, group: int) -> bytes:
    """1004: the consistent read that brokers poll with."""
    return frame(RequestCode.CONTROLLER_GET_REPLICA_INFO, opaque, {"brokerName": name(group)})


def heartbeat(
    opaque: int,
    group: int,
    broker_id: int,
    address: str,
    *,
    timeout_ms: int = FOREVER_MS,
    oneway: bool = True,
) -> bytes:
    """904; real brokers send it oneway."""
    ext = {
        "clusterName": CLUSTER,
        "brokerName": name(group),
        "brokerAddr": address,
        "brokerId": str(broker_id),
        "epoch": "1",
        "maxOffset": "1000",
        "confirmOffset": "1000",
        "heartbeatTimeoutMills": str(timeout_ms),
        "electionPriority": "2147483647",
    }
    return frame(RequestCode.BROKER_HEARTBEAT, opaque, ext, oneway=oneway)


class SetChange:
    """1001 of one group's master, which knows the epoch of the set: only that number differs.

    Each acknowledged one changes the group: {1} becomes {1,2} and the other way round, or whatever
    `sets` are after an even and an odd number of changes.
    """

    __slots__ = ("_epoch", "_heads")

    def __init__(self, opaque: int, group: int, sets: tuple[bytes, bytes] = (b"1", b"1,2")) -> None:
        ext = {
            "brokerName": name(group),
            "masterBrokerId": "1",
            "masterEpoch": "1",
            "invokeTime": "0",
        }
        heads = []
        for members in sets:
            body = b'{"syncStateSet":[%b],"syncStateSetEpoch":%*d}' % (members, _NUMBER_WIDTH, 0)
            whole = frame(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, opaque, ext, body)
            heads.append(whole[: -_NUMBER_WIDTH - 1])
        self._heads = heads
        self._epoch = 1  # after the election, and the set is {1}

    def next(self) -> bytes:
        """The change after this many acknowledged ones."""
        return self._heads[self._epoch & 1] + b"%*d}" % (_NUMBER_WIDTH, self._epoch)

    def acknowledged(self) -> None:
        """The last one was committed."""
        self._epoch += 1


class Registration:
    """1003 of broker 2 of any group, at an address that differs from turn to turn."""

    __slots__ = ("_middle", "_opening", "_rest")

    def __init__(self, opaque: int) -> None:
        address = f"127.0.0.1:{_PORT}"
        whole = register(opaque, 0, 2, address)
        self._opening, _, rest = whole.partition(name(0).encode())
        self._middle, _, self._rest = rest.partition(str(_PORT).encode())

    def of(self, group: int, turn: int) -> bytes:
        """The frame; every number has its fixed width."""
        return b"%bgroup-%07d%b%d%b" % (
            self._opening,
            group,
            self._middle,
            _PORT + turn % _PORT,
            self._rest,
        )
