"""Messages of a topic by key, out of a tier's packs, newest first; nothing is ever written.

Brokers index the keys of what is on their disks; the tier has no index, so every run of the topic
is read, one after the other. Rules protected: what is shown comes from a run that matches its sum,
and a pack that cannot be read is named: "not found" is only said of packs that were read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_broker.queues.key_index import keys_of
from gantry_broker.tier.stores.packs import read_footer, read_run
from gantry_protocol.records import peek
from gantry_protocol.tier.damage import TierObjectError
from gantry_protocol.tier.packs import raw_records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gantry_broker.tier.stores.contract import Store
    from gantry_protocol.tier.judgement import Judgement
    from gantry_protocol.tier.keys import Shard
    from gantry_protocol.tier.manifests import PackEntry


class Hit(msgspec.Struct, frozen=True):
    """A message with the key.

    Attributes:
        queue: of the topic.
        offset: in the queue: where a consumer would find it.
        at: in the log.
        stored_ms: when it was stored, ms since 1970.
        keys: all of its keys.
        bytes: of its body.
        pack: object that holds it.
    """

    queue: int
    offset: int
    at: int
    stored_ms: int
    keys: tuple[str, ...]
    bytes: int
    pack: str


async def find(
    store: Store,
    chain: Judgement,
    topic: str,
    key: str,
    unread: Callable[[TierObjectError], None],
) -> AsyncIterator[Hit]:
    """Messages of ``topic`` with ``key``, the newest first.

    Args:
        store: where the tier is.
        chain: of the group.
        topic: by its name.
        key: one word of the keys, or the unique key.
        unread: told of each pack that cannot be read.

    Raises:
        StoreError: there is no answer.
    """
    for pack in reversed(chain.packs):
        try:
            hits = await _in_pack(store, chain.place, pack.entry, topic.encode(), key.encode())
        except TierObjectError as error:
            unread(error)
            continue
        for hit in hits:
            yield hit


async def _in_pack(
    store: Store, place: Shard, entry: PackEntry, topic: bytes, key: bytes
) -> list[Hit]:
    footer = await read_footer(store, place, entry)
    found: list[Hit] = []
    for run in footer.runs:
        if footer.topics[run.topic].encode() != topic:
            continue
        data = await read_run(store, place, footer, run)
        for raw in raw_records(data, footer, run, place):
            record = peek(bytes(raw.data))
            keys = keys_of(record.properties)
            if key in keys:
                found.append(
                    Hit(
                        queue=run.queue_id,
                        offset=raw.queue_offset,
                        at=raw.physical_offset,
                        stored_ms=record.store_timestamp,
                        keys=tuple(item.decode("utf-8", "replace") for item in keys),
                        bytes=record.body_size,
                        pack=place.key(entry.key),
                    )
                )
    return sorted(found, key=lambda hit: hit.at, reverse=True)
