"""Reading the manifest chain from a store: the numbers that are there, and the versions.

Rule protected: what is listed is read, or the reading fails; a version is never skipped.
"""

import asyncio

from gantry_protocol.tier.keys import ManKey, Shard, parse_key
from gantry_protocol.tier.manifests import MAX_OBJECT_BYTES, Version, decode_version

from gantry_broker.tier.stores.contract import Store, StoreError

AT_ONCE = 8  # as many as a store answers side by side


async def list_later(store: Store, place: Shard, after: int, limit: int) -> list[int]:
    """Numbers of the versions after ``after``, by rising number; 0 lists from the first.

    Raises:
        StoreError: there is no answer.
    """
    last = place.key(ManKey(after)) if after else None
    found = await store.list_keys(place.key("man/"), after=last, limit=limit)
    keys = [parse_key(place, one.key) for one in found]
    return [key.v for key in keys if isinstance(key, ManKey)]


async def read_version(store: Store, place: Shard, v: int) -> Version | None:
    """Version ``v``; None when there is none.

    Raises:
        StoreError: there is no answer.
        TierObjectError: what is there cannot be used.
    """
    data = await store.get(place.key(ManKey(v)), max_bytes=MAX_OBJECT_BYTES)
    return None if data is None else decode_version(data, place, v)


async def read_later(store: Store, place: Shard, after: int, limit: int) -> tuple[Version, ...]:
    """At most ``limit`` versions after ``after``, by rising number.

    Raises:
        StoreError: there is no answer, or a version that was listed is not there.
        TierObjectError: what is there cannot be used.
    """
    numbers = await list_later(store, place, after, limit)
    versions: list[Version] = []
    for at in range(0, len(numbers), AT_ONCE):
        some = numbers[at : at + AT_ONCE]
        found = await asyncio.gather(*(read_version(store, place, v) for v in some))
        for v, version in zip(some, found, strict=True):
            if version is None:
                raise StoreError(f"{place.key(ManKey(v))} was listed and cannot be read")
            versions.append(version)
    return tuple(versions)
