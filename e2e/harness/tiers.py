"""Tiers made for tests: an application's messages, by the broker's encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.records import MessageRecord, encode_properties, encode_record
from gantry_protocol.records.properties import KEYS, TAGS, UNIQ_KEY
from gantry_protocol.tier import chain, manifests
from gantry_protocol.tier.keys import CLASS_FOR_EVER, ManKey, MetaKey, PackKey, Pair, Shard
from gantry_protocol.tier.packs import encode_pack
from gantry_protocol.types import Epoch, EpochEntry, Offset

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_protocol.tier.packs import BuiltPack

BODY_BYTES = 200
TOPICS = 4
QUEUES = 4  # of each topic
SENT_MS = 1_700_000_000_000
CLUSTER = "bench"
WRITER = "bench-broker-0"
_PAIR = Pair(1, 0)
_LINEAGE = (EpochEntry(Epoch(1), Offset(0)),)


class LogMaker:
    """A commit log that goes on where its last piece ended."""

    def __init__(self) -> None:
        self._sent = 0
        self._end = 0

    def piece(self, size: int) -> tuple[int, bytes, int]:
        """At least `size` bytes of records: their offset, the bytes, and how many they are."""
        start, parts, held = self._end, [], 0
        first = self._sent
        while held < size:
            number = self._sent
            queue = number % (TOPICS * QUEUES)
            text = f"{number:020d}"
            record = encode_record(
                MessageRecord(
                    topic=f"topic-{queue % TOPICS}",
                    queue_id=queue // TOPICS,
                    body=(text * (BODY_BYTES // len(text))).encode(),
                    properties=encode_properties(
                        {UNIQ_KEY: f"AC110001{number:024d}", KEYS: text, TAGS: "red"}
                    ),
                    queue_offset=number // (TOPICS * QUEUES),
                    physical_offset=self._end,
                    born_timestamp=SENT_MS + number,
                    store_timestamp=SENT_MS + number + 1,
                    born_host=("10.0.0.9", 40000),
                    store_host=("10.0.0.1", 10911),
                )
            )
            parts.append(record)
            held += len(record)
            self._end += len(record)
            self._sent += 1
        return start, b"".join(parts), self._sent - first


def a_pack(place: Shard, log: bytes, start: int = 0, nonce: int = 1) -> BuiltPack:
    """The pack of a piece of the log."""
    key = PackKey(_PAIR, start, start + len(log), CLASS_FOR_EVER, f"{nonce:032x}")
    return encode_pack(log, place, key, _LINEAGE)


def write_tier(root: Path, groups: int, packs: int, pack_bytes: int) -> int:
    """Tiers of so many broker groups below `root`; their messages."""
    messages = 0
    for number in range(groups):
        place = Shard(CLUSTER, f"group-{number}")
        log = LogMaker()
        _put(root, place.key(MetaKey()), _owner(place))
        state = _committed(
            root,
            place,
            chain.empty(place),
            chain.claim(
                chain.empty(place), pair=_PAIR, writer=WRITER, nonce="0" * 32, at_ms=0, start=0
            ),
        )
        for index in range(packs):
            start, data, count = log.piece(pack_bytes)
            pack = a_pack(place, data, start, index + 1)
            _put(root, place.key(pack.key), bytes(pack.data))
            version = chain.append(
                state,
                [pack.entry],
                lineage=_LINEAGE,
                tail=pack.tail,
                writer=WRITER,
                nonce=pack.key.nonce,
                at_ms=SENT_MS + index,
            )
            state = _committed(root, place, state, version)
            messages += count
    return messages


def _owner(place: Shard) -> bytes:
    return manifests.encode(
        manifests.seal(
            manifests.Owner(
                shard=place.uid, cluster=place.cluster, group=place.uid, created_ms=SENT_MS
            )
        )
    )


def _committed(
    root: Path, place: Shard, state: chain.ChainState, version: manifests.Version
) -> chain.ChainState:
    _put(root, place.key(ManKey(version.v)), manifests.encode(version))
    return chain.apply(state, version)


def _put(root: Path, key: str, data: bytes) -> None:
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
