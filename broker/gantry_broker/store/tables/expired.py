"""Ends of lite topics, as records of ``GANTRY_SYS_EXPIRED``.

A lite topic ends by its last message's store time and its parent's ``lite.topic.expiration``. The
master finds which do, and says so in the log; every member drops them where the record is
confirmed. Each end names the last message that the master knew: where another one has come since,
nothing ends. So no clock but the master's is asked, and no message is lost to a race.
"""

from collections.abc import Iterable

import msgspec
from gantry_protocol.errors import BodyError
from gantry_protocol.records import MessageRecord

from gantry_broker.store.tables.names import EXPIRED_TOPIC

ENDS_MAX = 1_000  # of one record: 100 KiB, and some 10 ms of work where it is confirmed

End = tuple[str, int]  # the name of the lite topic's queue, and the offset of its last message

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[End])


def expired_record(ends: Iterable[End]) -> MessageRecord:
    """The record that ends lite topics on every member."""
    return MessageRecord(topic=EXPIRED_TOPIC, body=_encoder.encode(list(ends)))


def decode_ends(body: bytes) -> list[End]:
    """The ends in a record of the system topic.

    Raises:
        BodyError: there are none.
    """
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise BodyError(f"ends of lite topics do not read: {error}") from error
