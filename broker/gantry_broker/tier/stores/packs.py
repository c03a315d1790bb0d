"""Reading packs from a store: a footer from the object's last bytes, a run by one range.

Rule protected: what the manifest lists is there, as long as it says, and under its sum; anything
else is named with object and byte, and nothing of it is used. A footer is mostly one call; two when
it is longer than what is asked for first.
"""

import asyncio
from itertools import pairwise

import google_crc32c
from gantry_protocol.tier.damage import DamagedObject, MissingObject, TruncatedObject
from gantry_protocol.tier.footer import (
    TAIL_BYTES,
    Footer,
    Run,
    decode_footer,
    read_trailer,
)
from gantry_protocol.tier.keys import PackKey, Shard, parse_name
from gantry_protocol.tier.manifests import PackEntry
from gantry_protocol.tier.packs import rebuild_log

from gantry_broker.tier.stores.contract import DATA_TIMEOUT_S, Store

PIECE_BYTES = 16 * 1024 * 1024  # of a pack that is read as a whole; each has a deadline of its own


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


async def read_log(
    store: Store, place: Shard, entry: PackEntry, *, timeout_s: float = DATA_TIMEOUT_S
) -> list[bytes]:
    """The log's bytes [entry.lo, entry.hi), after every byte of the pack was checked.

    Returns:
        Whole units, in one part for each of the log's files.

    Raises:
        TierObjectError: the pack is missing, or is not what was committed.
        StoreError: there is no answer.
    """
    key, name = _names(place, entry)
    data = bytearray()
    while len(data) < entry.size:
        left = min(PIECE_BYTES, entry.size - len(data))
        data += await _range(store, name, len(data), left, timeout_s)
    return await asyncio.to_thread(_checked_log, bytes(data), place, key, entry)


def _checked_log(data: bytes, place: Shard, key: PackKey, entry: PackEntry) -> list[bytes]:
    log = rebuild_log(data, place, key)
    crc = f"{google_crc32c.value(data):08x}"
    if crc != entry.crc:
        raise DamagedObject(place.key(key), 0, f"its sum is {crc}, {entry.crc} was committed")
    blanks = decode_footer(data, len(data), place, key).blanks
    cuts = [0, *(offset + length - entry.lo for offset, length in blanks), len(log)]
    return [log[begin:end] for begin, end in pairwise(cuts) if begin < end]


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
