"""Whose prefix it is, and whether the store keeps its promise to create only once.

Rules protected: two groups never share a prefix (the second one finds the first one's name in
``meta.json`` and stops); and no manifest is written to a store that overwrites: that would give two
masters the same slot. The proof costs one create of ``meta.json`` that must not succeed, and whose
content would do no harm if it did.
"""

import msgspec
from gantry_protocol.tier.keys import MetaKey, Shard
from gantry_protocol.tier.manifests import MAX_OBJECT_BYTES, Owner, decode_owner, encode, seal

from gantry_broker.tier.stores.contract import (
    MANIFEST_TIMEOUT_S,
    Created,
    Store,
    StoreRefused,
    StoreUnavailable,
)


async def own_prefix(
    store: Store,
    place: Shard,
    group: str,
    now_ms: int,
    *,
    timeout_s: float = MANIFEST_TIMEOUT_S,
) -> Owner:
    """See to it that ``meta.json`` is there and ours; safe to repeat, by several brokers at once.

    Args:
        store: where.
        place: of the group.
        group: name of the group.
        now_ms: the clock, for people.
        timeout_s: of each of at most four calls.

    Raises:
        TierObjectError: another group's, a newer or a damaged ``meta.json``.
        StoreRefused: the store overwrites, or does not let us in.
        StoreError: there is no answer; ask again.
    """
    key = place.key(MetaKey())
    owner = seal(Owner(shard=place.uid, cluster=place.cluster, group=group, created_ms=now_ms))
    found = await _read(store, key, place, group, timeout_s)
    if found is None:
        made = await store.create(key, encode(owner), timeout_s=timeout_s)
        found = await _read(store, key, place, group, timeout_s)
        if found is None:
            reason = "" if isinstance(made, Created) else f" ({made.reason})"
            raise StoreUnavailable(f"{key} in {store.url} is not there after it was made{reason}.")
    probe = seal(msgspec.structs.replace(owner, created_ms=found.created_ms + 1))
    again = await store.create(key, encode(probe), timeout_s=timeout_s)
    if isinstance(again, Created):
        raise StoreRefused(
            f"{store.url} overwrites objects that exist: it ignores If-None-Match. Uploads need a "
            f"store that creates only once."
        )
    return found


async def _read(store: Store, key: str, place: Shard, group: str, timeout_s: float) -> Owner | None:
    data = await store.get(key, max_bytes=MAX_OBJECT_BYTES, timeout_s=timeout_s)
    return None if data is None else decode_owner(data, place, group)
