"""Reading packs from a store: a footer from the object's last bytes, a run by one range.

Rule protected: what the manifest lists is there, as long as it says, and under its sum; anything
else is named with object and byte, and nothing of it is used. A footer is mostly one call; two when
it is longer than what is asked for first.
"""

import asyncio

from gantry_protocol.tier.damage import MissingObject, TruncatedObject
from gantry_protocol.tier.footer import (
    TAIL_BYTES,
    Footer,
    Run,
    decode_footer,
    read_trailer,
)
from gantry_protocol.tier.keys import PackKey, Shard, parse_name
from gantry_protocol.tier.manifests import PackEntry

from gantry_broker.tier.stores.contract import DATA_TIMEOUT_S, Store


async def read_footer(
    store: Store, place: Shard, entry: PackEntry, *, timeout_s: float = DATA_TIMEOUT_S
) -> Footer:
    """The footer of the pack ``entry``.

    Raises:
        TierObjectError: it is missing, or is not what was written.
        StoreError: there is no answer.
    """
    key, name = _names(place, entry)
    start = max(0, entry.size - TAIL_BYTES)
    tail = await _range(store, name, start, entry.size - start, timeout_s)
    trailer = read_trailer(tail, entry.size, name)
    if trailer.start < start:
        tail = await _range(store, name, trailer.start, start - trailer.start, timeout_s) + tail
    return await asyncio.to_thread(decode_footer, tail, entry.size, place, key)


async def read_run(
    store: Store, place: Shard, footer: Footer, run: Run, *, timeout_s: float = DATA_TIMEOUT_S
) -> bytes:
    """The bytes of a run; ``gantry_protocol.tier.packs.raw_records`` checks and takes them apart.

    Raises:
        TierObjectError: the pack is missing, or shorter than its footer says.
        StoreError: there is no answer.
    """
    return await _range(store, place.key(footer.key), run.pos, run.length, timeout_s)


def _names(place: Shard, entry: PackEntry) -> tuple[PackKey, str]:
    key = parse_name(entry.key)
    assert isinstance(key, PackKey), "the chain checked it"
    return key, place.key(key)


async def _range(store: Store, name: str, start: int, length: int, timeout_s: float) -> bytes:
    data = await store.get_range(name, start, length, timeout_s=timeout_s)
    if data is None:
        raise MissingObject(name)
    if len(data) < length:
        raise TruncatedObject(name, start + len(data), f"{start + length} bytes were expected")
    return data
