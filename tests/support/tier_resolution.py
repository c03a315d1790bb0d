"""Who wrote a version of a tier's manifest, as one read of it tells."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from gantry_broker.tier.stores.contract import MANIFEST_TIMEOUT_S, Store
from gantry_protocol.tier.keys import ManKey, Shard
from gantry_protocol.tier.manifests import MAX_OBJECT_BYTES, Version, decode_version


class Mine(msgspec.Struct, frozen=True):
    """The object is the one this attempt wrote."""

    version: Version


class Other(msgspec.Struct, frozen=True):
    """The slot is taken by another attempt, of whomever."""

    version: Version


class Absent(msgspec.Struct, frozen=True):
    """Nothing is there (yet: an earlier attempt may still land)."""


Resolution: TypeAlias = Mine | Other | Absent


async def resolve(
    store: Store, place: Shard, v: int, nonce: str, *, timeout_s: float = MANIFEST_TIMEOUT_S
) -> Resolution:
    """The writer of manifest version ``v``: the end of every ambiguous create.

    Raises:
        StoreError: there is no answer; ask again.
        TierObjectError: what is there cannot be used.
    """
    key = place.key(ManKey(v))
    data = await store.get(key, max_bytes=MAX_OBJECT_BYTES, timeout_s=timeout_s)
    if data is None:
        return Absent()
    version = decode_version(data, place, v)
    return Mine(version) if version.nonce == nonce else Other(version)
