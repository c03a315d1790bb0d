"""Records of lite subscriptions: what changed for one client of one group.

They stand in queue 0 of ``GANTRY_SYS_LITE``, which no client can read or write. ``Whole`` says all
about a client; what stands before it about that client is needed no more.
"""

from typing import TypeAlias

import msgspec
from gantry_protocol.errors import BodyError
from gantry_protocol.records import Host, MessageRecord

LITE_TOPIC = "GANTRY_SYS_LITE"
GROUP = "GANTRY_SYS_LITE"  # whose offset in ``LITE_TOPIC`` is the first record that is needed


class Whole(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """A client's subscription is this, and nothing else.

    Attributes:
        group: its consumer group.
        client_id: the client.
        parent: the topic whose lite topics it takes.
        names: of lite topics.
        all: of a wildcard group: every lite topic of the parent, whatever ``names``.
    """

    group: str
    client_id: str
    parent: str
    names: list[str]
    all: bool = False


class Added(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """A client subscribes to more.

    Attributes:
        group: its consumer group.
        client_id: the client.
        parent: the topic.
        names: of lite topics.
        alone: nobody else of the group is subscribed to them from now on.
    """

    group: str
    client_id: str
    parent: str
    names: list[str]
    alone: bool = False


class Removed(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A client subscribes to less."""

    group: str
    client_id: str
    names: list[str]


class Left(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """A client is gone, and its subscription with it."""

    group: str
    client_id: str


Event: TypeAlias = Whole | Added | Removed | Left

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def event_record(event: Event, store_host: Host) -> MessageRecord:
    """The record of an event."""
    return MessageRecord(
        topic=LITE_TOPIC, body=_encoder.encode(event), born_host=store_host, store_host=store_host
    )


def parse(body: bytes) -> Event:
    """Decode a record of the topic.

    Raises:
        BodyError: it is none of ours.
    """
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise BodyError(f"a record of lite subscriptions does not read: {error}") from error
