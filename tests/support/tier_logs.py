"""Small commit logs and packs for the tests of the tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gantry_protocol.records import MessageRecord, blank, encode_properties, encode_record
from gantry_protocol.tier.keys import CLASS_FOR_EVER, PackKey, Pair, Shard
from gantry_protocol.tier.packs import BuiltPack, encode_pack
from gantry_protocol.types import Epoch, EpochEntry, Offset

PLACE = Shard("demo", "7c9e6679-7425-40de-944b-e07fc1f90ae7")
PAIR = Pair(12, 3)
NONCE = "00112233445566778899aabbccddeeff"
LINEAGE = (EpochEntry(Epoch(11), Offset(0)), EpochEntry(Epoch(12), Offset(1111)))
HOST = ("10.0.0.1", 10911)
BORN = ("10.0.0.9", 40000)


class Sent(NamedTuple):
    """A message of a log; None in its place is a blank of 24 bytes."""

    topic: str
    queue_id: int
    body: bytes
    tags: str = ""
    queue_offset: int | None = None
    ipv6: bool = False
    keys: str = ""


def _properties(sent: Sent) -> dict[str, str]:
    found = {"TAGS": sent.tags, "KEYS": sent.keys}
    return {name: text for name, text in found.items() if text}


def build_log(lo: int, messages: Sequence[Sent | None], first: int = 0) -> bytes:
    """The bytes of a log from ``lo`` on; queue offsets count from ``first`` per queue."""
    parts: list[bytes] = []
    offset = lo
    queues: dict[tuple[str, int], int] = {}
    for number, sent in enumerate(messages):
        if sent is None:
            parts.append(blank(24))
        else:
            queue = (sent.topic, sent.queue_id)
            place = queues.get(queue, first) if sent.queue_offset is None else sent.queue_offset
            queues[queue] = place + 1
            parts.append(
                encode_record(
                    MessageRecord(
                        topic=sent.topic,
                        queue_id=sent.queue_id,
                        body=sent.body,
                        properties=encode_properties(_properties(sent)),
                        queue_offset=place,
                        physical_offset=offset,
                        born_timestamp=1_700_000_000_000 + number,
                        store_timestamp=1_700_000_000_000 + number,
                        born_host=("2001:db8::9", 40000) if sent.ipv6 else BORN,
                        store_host=HOST,
                    )
                )
            )
        offset += len(parts[-1])
    return b"".join(parts)


def key_of(lo: int, log: bytes, pair: Pair = PAIR, nonce: str = NONCE) -> PackKey:
    """The key of a pack of ``log``."""
    return PackKey(pair, lo, lo + len(log), CLASS_FOR_EVER, nonce)


def build_pack(
    lo: int,
    log: bytes,
    *,
    pair: Pair = PAIR,
    nonce: str = NONCE,
    lineage: Sequence[EpochEntry] = LINEAGE,
) -> BuiltPack:
    """The pack of ``log``."""
    return encode_pack(log, PLACE, key_of(lo, log, pair, nonce), lineage)
