"""Receipts of popped messages, and their acknowledgements, as RocketMQ's Java client makes them.

The answer to a PopMessage says in two header fields which messages of which queues it brings; what
an acknowledgement needs is made of these (``MQClientAPIImpl.processPopResponse``, ``ackAsync``). A
receipt has no fixed width, so an acknowledgement is a text with places, not a frame to patch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError
from gantry_protocol.frame import encode
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.pop import AckMessageRequestHeader

from gantry_lab.bench.broker.frames import VERSION

if TYPE_CHECKING:
    from gantry_lab.bench.load import Numbers

PLAIN, RETRY = "0", "1"  # of the topic itself, or of a retry topic as Java brokers make them
_PREFIX = struct.Struct(">iI")
_LENGTH_BYTES = 4
_PLACES = {"receipt": "@receipt@", "queue": "1023456789", "at": "1234567890123456789"}
_OPAQUE = 987654321


class Receipt(NamedTuple):
    """One delivery of a message: its ``text``, and what of it stands by itself, too."""

    text: str
    kind: str
    queue_id: str
    offset: str


def receipts(numbers: Numbers, broker_name: str) -> list[Receipt]:
    """The receipts of an answer to PopMessage.

    Args:
        numbers: of its header.
        broker_name: of the group that answered.

    Raises:
        GantryError: they do not read.
    """
    middle = f" {numbers.pop_time} {numbers.invisible_time} {numbers.revive_qid} "
    starts: dict[tuple[str, str], str] = {}
    found: list[Receipt] = []
    try:
        for part in numbers.start_offset_info.split(";"):
            kind, queue, start = part.split(" ")
            starts[kind, queue] = start
        for part in numbers.msg_offset_info.split(";"):
            kind, queue, offsets = part.split(" ")
            head = f"{starts[kind, queue]}{middle}{kind} {broker_name} {queue} "
            found += [Receipt(head + at, kind, queue, at) for at in offsets.split(",")]
    except (KeyError, ValueError) as error:
        raise GantryError(
            f"The receipts of a pop do not read: {numbers.start_offset_info!r}, "
            f"{numbers.msg_offset_info!r}."
        ) from error
    return found


def of_text(text: str) -> Receipt:
    """The receipt that a broker put into a message itself.

    Raises:
        GantryError: it is none.
    """
    fields = text.split(" ")
    if len(fields) < 8:
        raise GantryError(f"The receipt {text!r} of a message does not read.")
    return Receipt(text, fields[4], fields[6], fields[7])


class Acks:
    """Acknowledgements (AckMessage, 200051) by one consumer group of messages of one topic."""

    __slots__ = ("_texts",)

    def __init__(self, topic: str, group: str) -> None:
        topics = {PLAIN: topic, RETRY: f"%RETRY%{group}_{topic}"}
        self._texts = {kind: _text(topic, group) for kind, topic in topics.items()}

    def frame(self, slot: int, receipt: Receipt) -> bytes:
        """The frame for one receipt.

        Raises:
            GantryError: it is of a kind of topic that is not known.
        """
        text, kind, queue, at = receipt
        found = self._texts.get(kind)
        if found is None:
            raise GantryError(f"The receipt {text!r} is of a topic of an unknown kind.")
        header = (found % {"receipt": text, "queue": queue, "at": at, "opaque": slot}).encode()
        return _PREFIX.pack(_LENGTH_BYTES + len(header), len(header)) + header


def _text(topic: str, group: str) -> str:
    """The header with places, as a format."""
    header = AckMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=int(_PLACES["queue"]),
        extra_info=_PLACES["receipt"],
        offset=int(_PLACES["at"]),
    )
    command = request(RequestCode.ACK_MESSAGE, to_ext(header))
    command.language, command.version, command.opaque = "JAVA", VERSION, _OPAQUE
    text = encode(command)[_PREFIX.size :].decode().replace("%", "%%")
    for name, value in _PLACES.items():
        text = text.replace(f'"{value}"', f'"%({name})s"')
    return text.replace(f":{_OPAQUE}", ":%(opaque)d")
