"""From a store to the groups in it and their chains; nothing is ever written.

Rule protected: what is shown is what a broker would conclude from the same objects, by the same
code. What it refuses: to go on after a version that cannot be read; a chain is known from its first
version to its newest, or it is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_broker.tier.stores.contract import DATA_TIMEOUT_S, LIST_LIMIT_MAX
from gantry_protocol.errors import GantryError
from gantry_protocol.tier.damage import DamagedObject, MissingObject, TierObjectError
from gantry_protocol.tier.findings import stray
from gantry_protocol.tier.judgement import Judgement
from gantry_protocol.tier.keys import ManKey, MetaKey, Shard, parse_name, place_at
from gantry_protocol.tier.manifests import MAX_OBJECT_BYTES, decode_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gantry_broker.tier.stores.contract import Found, Store
    from gantry_protocol.tier.findings import Finding
    from gantry_protocol.tier.manifests import Version

GROUPS_MAX = 10_000
VERSIONS_AT_ONCE = 1024  # read, then folded; each is at most 1 MiB
LAST_NAME = "zzz"  # sorts after every name below a group's prefix


class Tiered(msgspec.Struct, frozen=True):
    """One group's place in a store; the name is empty where meta.json does not tell it."""

    group: str
    place: Shard

    @property
    def name(self) -> str:
        """The name for people."""
        return self.group or self.place.uid

    def __str__(self) -> str:
        return f"{self.group or '?'} ({self.place.uid})"


class Contents(msgspec.Struct, frozen=True):
    """The groups below a store's URL.

    Attributes:
        groups: by key.
        strays: folders where a group's could be, and that are none.
    """

    groups: tuple[Tiered, ...]
    strays: tuple[Finding, ...]


async def contents(store: Store) -> Contents:
    """Every group; the listing skips what is inside of one.

    Raises:
        StoreError: there is no answer.
        GantryError: there are more than can be right.
    """
    groups: list[Tiered] = []
    strays: list[Finding] = []
    after: str | None = None
    while page := await store.list_keys("", after=after, limit=1):
        after = page[0].key
        parts = after.split("/")
        if len(parts) < 4:  # not ours; the next one may be
            continue
        prefix = "/".join(parts[:3]) + "/"
        place = place_at(*parts[:3])
        if place is None:
            strays.append(stray(prefix))
        else:
            judgement = Judgement(place)
            await _read_owner(store, judgement)
            groups.append(Tiered(judgement.group, place))
        if len(groups) + len(strays) > GROUPS_MAX:
            raise GantryError(
                f"{store.url} holds more than {GROUPS_MAX} groups; give one's prefix."
            )
        after = prefix + LAST_NAME
    return Contents(tuple(groups), tuple(strays))


async def read_chain(store: Store, place: Shard) -> Judgement:
    """Owner and chain of a group, judged up to its newest version; the packs are not looked for.

    Raises:
        StoreError: there is no answer.
    """
    judgement = Judgement(place)
    await _read_owner(store, judgement)
    await read_on(store, judgement)
    return judgement


async def read_on(store: Store, judgement: Judgement) -> None:
    """Take the versions that came since.

    Raises:
        StoreError: there is no answer.
    """
    place = judgement.place
    after = place.key(ManKey(judgement.state.v)) if judgement.state.v else None
    batch: list[Version | TierObjectError] = []
    async for found in listed(store, place, "man/", after):
        name = parse_name(found.key.removeprefix(place.prefix))
        if not isinstance(name, ManKey):
            continue  # whoever judges the listing names it
        batch.append(await _version(store, place, name, found.size))
        if len(batch) == VERSIONS_AT_ONCE:
            judgement.versions(batch)
            batch = []
    judgement.versions(batch)


async def listed(
    store: Store, place: Shard, folder: str = "", after: str | None = None
) -> AsyncIterator[Found]:
    """Every object of a group, or of one of its folders, in byte order."""
    prefix = place.key(folder)
    while True:
        page = await store.list_keys(prefix, after=after, limit=LIST_LIMIT_MAX)
        for found in page:
            yield found
        if len(page) < LIST_LIMIT_MAX:
            return
        after = page[-1].key


async def _read_owner(store: Store, judgement: Judgement) -> None:
    key = judgement.place.key(MetaKey())
    judgement.owner(await store.get(key, max_bytes=MAX_OBJECT_BYTES))


async def _version(
    store: Store, place: Shard, name: ManKey, size: int
) -> Version | TierObjectError:
    key = place.key(name)
    if size > MAX_OBJECT_BYTES:
        reason = f"it has {size} bytes, at most {MAX_OBJECT_BYTES} may be"
        return DamagedObject(key, MAX_OBJECT_BYTES, reason)
    data = await store.get(key, max_bytes=MAX_OBJECT_BYTES, timeout_s=DATA_TIMEOUT_S)
    try:
        return MissingObject(key) if data is None else decode_version(data, place, name.v)
    except TierObjectError as error:
        return error
