"""From a store to the groups in it and their chains; nothing is ever written.

Rule protected: what is shown is what a broker would conclude from the same objects, by the same
code. What it refuses: to go on after a version that cannot be read; a chain is known from its first
version to its newest, or it is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_broker.tier.stores.contract import DATA_TIMEOUT_S, LIST_LIMIT_MAX
from gantry_protocol.tier.chain import ChainState, advance, empty
from gantry_protocol.tier.damage import ChainError, TierObjectError
from gantry_protocol.tier.keys import ManKey, MetaKey, Shard, parse_key
from gantry_protocol.tier.manifests import MAX_OBJECT_BYTES, Claim, decode_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gantry_broker.tier.stores.contract import Found, Store
    from gantry_protocol.tier.manifests import Version

GROUPS_MAX = 10_000
LAST_NAME = "zzz"  # sorts after every name below a group's prefix


class _Meta(msgspec.Struct):
    cluster: str
    shard: str
    group: str


class Tiered(msgspec.Struct, frozen=True):
    """One group's place in a store."""

    group: str
    place: Shard


class Reign(msgspec.Struct, frozen=True):
    """One claim: who took the chain, and when."""

    v: int
    epoch: int
    inc: int
    writer: str
    at_ms: int
    end: int


class Chain(msgspec.Struct, frozen=True):
    """A chain as far as it can be read.

    Attributes:
        state: after the last version that is sound.
        reigns: every claim, in order.
        fault: why reading stopped there; empty when it did not.
    """

    state: ChainState
    reigns: tuple[Reign, ...]
    fault: str = ""


async def groups(store: Store) -> list[Tiered]:
    """Every group with a `meta.json`, by key; listing skips what is inside a group."""
    found: list[Tiered] = []
    after: str | None = None
    while len(found) < GROUPS_MAX:
        page = await store.list_keys("", after=after, limit=1)
        if not page:
            return found
        parts = page[0].key.split("/")
        if len(parts) < 4:  # not ours; the next one may be
            after = page[0].key
            continue
        prefix = "/".join(parts[:3]) + "/"
        tiered = await _group_at(store, prefix)
        if tiered is not None:
            found.append(tiered)
        after = prefix + LAST_NAME
    return found


async def _group_at(store: Store, prefix: str) -> Tiered | None:
    data = await store.get(f"{prefix}{MetaKey()}", max_bytes=MAX_OBJECT_BYTES)
    if data is None:
        return None
    try:
        meta = msgspec.json.decode(data, type=_Meta)
    except msgspec.MsgspecError:
        return None
    place = Shard(meta.cluster, meta.shard)
    return Tiered(meta.group, place) if place.prefix == prefix else None


async def read_chain(store: Store, place: Shard) -> Chain:
    """The chain of a group, up to its newest version or the first fault.

    Raises:
        StoreError: there is no answer.
    """
    state = empty(place)
    reigns: list[Reign] = []
    async for found in listed(store, place, "man/"):
        try:
            version = await _version(store, place, found.key)
            state = advance(state, [version])
        except (ChainError, TierObjectError) as error:
            return Chain(state, tuple(reigns), str(error))
        if isinstance(version, Claim):
            reigns.append(
                Reign(
                    version.v,
                    version.epoch,
                    version.inc,
                    version.writer,
                    version.at_ms,
                    version.end,
                )
            )
    return Chain(state, tuple(reigns))


async def listed(store: Store, place: Shard, folder: str) -> AsyncIterator[Found]:
    """Every object of a group's folder, in byte order."""
    prefix, after = place.key(folder), None
    while True:
        page = await store.list_keys(prefix, after=after, limit=LIST_LIMIT_MAX)
        for found in page:
            yield found
        if len(page) < LIST_LIMIT_MAX:
            return
        after = page[-1].key


async def _version(store: Store, place: Shard, key: str) -> Version:
    name = parse_key(place, key)
    if not isinstance(name, ManKey):
        raise ChainError(0, f"{key} is no manifest version")
    data = await store.get(key, max_bytes=MAX_OBJECT_BYTES, timeout_s=DATA_TIMEOUT_S)
    return decode_version(data or b"", place, name.v)
