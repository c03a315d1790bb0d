"""Reading packs from a store: a footer from the object's last bytes, a run by one range.

Rule protected: what the manifest lists is there, as long as it says, and under its sum; anything
else is named with object and byte, and nothing of it is used. A footer is mostly one call; two when
it is longer than what is asked for first.
"""

import asyncio

import google_crc32c
from gantry_protocol.tier.damage import DamagedObject, MissingObject, TruncatedObject
from gantry_protocol.tier.footer import (
    MAX_PACK_BYTES,
    TAIL_BYTES,
    Footer,
    Run,
    decode_footer,
    read_trailer,
)
from gantry_protocol.tier.keys import PackKey, Shard, parse_name
from gantry_protocol.tier.manifests import PackEntry
from gantry_protocol.tier.packs import verify_pack

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


async def read_pack(
    store: Store, place: Shard, entry: PackEntry, *, timeout_s: float = DATA_TIMEOUT_S
) -> bytes:
    """A whole pack in which every byte was checked, also against the manifest.

    Raises:
        TierObjectError: it is missing, or is not what was written.
        StoreError: there is no answer.
    """
    key, name = _names(place, entry)
    data = await store.get(name, max_bytes=MAX_PACK_BYTES, timeout_s=timeout_s)
    if data is None:
        raise MissingObject(name)
    if len(data) < entry.size:
        raise TruncatedObject(name, len(data), f"the manifest says {entry.size} bytes")
    verify_pack(data, place, key)
    crc = f"{google_crc32c.value(data):08x}"
    if crc != entry.crc or len(data) != entry.size:
        raise DamagedObject(
            name,
            0,
            f"the manifest says {entry.size} bytes with the sum {entry.crc}, it has {len(data)} "
            f"with {crc}",
        )
    return data


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
