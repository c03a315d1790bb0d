"""Reading the manifest chain from a store: the numbers that are there, and the versions.

Rule protected: what is listed is read, or the reading fails; a version is never skipped.
"""

import asyncio
from collections.abc import Container, Sequence

from gantry_protocol.tier.keys import ManKey, Shard, parse_key
from gantry_protocol.tier.manifests import MAX_OBJECT_BYTES, Version, decode_version

from gantry_broker.tier.stores.contract import LIST_LIMIT_MAX, Store, StoreError

AT_ONCE = 8  # as many as a store answers side by side


async def list_later(store: Store, place: Shard, after: int, limit: int) -> list[int]:
    """Numbers of the versions after ``after``, by rising number; 0 lists from the first.

    Raises:
        StoreError: there is no answer.
    """
    last = place.key(ManKey(after)) if after else None
    found = await store.list_keys(place.key("man/"), after=last, limit=limit)
    keys = [parse_key(place, item.key) for item in found]
    return [key.v for key in keys if isinstance(key, ManKey)]


async def read_version(store: Store, place: Shard, v: int) -> Version | None:
    """Version ``v``; None when there is none.

    Raises:
        StoreError: there is no answer.
        TierObjectError: what is there cannot be used.
    """
    data = await store.get(place.key(ManKey(v)), max_bytes=MAX_OBJECT_BYTES)
    return None if data is None else decode_version(data, place, v)


async def later_numbers(
    store: Store, place: Shard, after: int, limit: int, *, seen: str = ""
) -> list[int]:
    """Numbers of at most ``limit`` versions after ``after``, by rising number.

    Args:
        store: where the tier is.
        place: of the group in it.
        after: 0 lists from the first.
        limit: how many at most.
        seen: why there must be versions; empty where there may be none yet.

    Raises:
        StoreError: there is no answer; or there is not one version, though there are packs, or
            there were versions before: neither a later one than ``after`` nor that one itself.
    """
    again = 1 if after and seen else 0  # the newest one that is known, or nothing is proven
    numbers = await list_later(store, place, after - again, limit + again)
    if not numbers and not after:
        await _refuse_packs_alone(store, place)
    if not numbers and seen:
        which = f"no version from {after} on" if after else "no version"
        raise StoreError(f"{place.key('man/')} in {store.url} shows {which}: {seen}")
    return [v for v in numbers if v > after][:limit]


async def read_versions(store: Store, place: Shard, numbers: Sequence[int]) -> tuple[Version, ...]:
    """The versions of these numbers, which were listed.

    Raises:
        StoreError: there is no answer, or one of them is not there.
        TierObjectError: what is there cannot be used.
    """
    versions: list[Version] = []
    for at in range(0, len(numbers), AT_ONCE):
        some = numbers[at : at + AT_ONCE]
        found = await asyncio.gather(*(read_version(store, place, v) for v in some))
        for v, version in zip(some, found, strict=True):
            if version is None:
                raise StoreError(f"{place.key(ManKey(v))} was listed and cannot be read")
            versions.append(version)
    return tuple(versions)


async def read_later(
    store: Store, place: Shard, after: int, limit: int, *, seen: str = ""
) -> tuple[Version, ...]:
    """At most ``limit`` versions after ``after``, all or none; see ``later_numbers``.

    Raises:
        StoreError: as ``later_numbers`` and ``read_versions``.
        TierObjectError: what is there cannot be used.
    """
    numbers = await later_numbers(store, place, after, limit, seen=seen)
    return await read_versions(store, place, numbers)


async def first_version(store: Store, place: Shard) -> int | None:
    """The number of the oldest version that is there; None without any.

    Raises:
        StoreError: there is no answer.
    """
    numbers = await list_later(store, place, 0, 1)
    return numbers[0] if numbers else None


async def first_pack(store: Store, place: Shard, known: Container[str]) -> str | None:
    """The name of the oldest pack that is there, of those ``known``; None if none is.

    Raises:
        StoreError: there is no answer.
    """
    after: str | None = None
    while True:
        found = await store.list_keys(place.key("pack/"), after=after)
        for item in found:
            name = item.key.removeprefix(place.prefix)
            if name in known:
                return name
        if len(found) < LIST_LIMIT_MAX:
            return None
        after = found[-1].key


async def _refuse_packs_alone(store: Store, place: Shard) -> None:
    """A manifest that is empty beside packs was removed, or is hidden: nobody begins another."""
    found = await store.list_keys(place.key("pack/"), limit=1)
    if found:
        raise StoreError(
            f"{place.key('man/')} holds no manifest version, though {found[0].key} is there: the"
            f" manifest was removed or is hidden; restore it"
        )
