"""The manifest chains below a tier's URL, read and folded by the protocol's rules.

A reader believes a pack only because a version names it, and a version only because every version
before it is there and fits. So nothing is read past the first version that is missing or breaks a
rule; the error names it. What was folded once can be continued with what came later, which is what
a stream does.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.errors import ConfigError
from gantry_protocol.tier import chain, damage, keys, manifests
from gantry_protocol.tier.judgement import Listed, listed

from gantry_pipeline.source.objects import MissingObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gantry_pipeline.source.objects import Objects

SHARDS_MAX = 100_000
READERS = 8  # GETs of small objects under way at once
VERSIONS_AT_ONCE = (
    1024  # read, then folded: bounds what is held undecoded to 1 GiB at the very most
)


class Chain(msgspec.Struct, frozen=True):
    """One broker group's chain, folded up to ``state.v``."""

    place: keys.Shard
    state: chain.ChainState
    packs: tuple[Listed, ...] = ()

    def between(self, after: int, upto: int) -> tuple[Listed, ...]:
        """The packs that versions after+1 … upto added."""
        return tuple(pack for pack in self.packs if after < pack.v <= upto)


def begin(place: keys.Shard) -> Chain:
    """Before the first version."""
    return Chain(place, chain.empty(place))


def shards(objects: Objects, *, cluster: str = "", shard: str = "") -> list[keys.Shard]:
    """The broker groups below the URL, or those of ``cluster``, or the one called ``shard``.

    Raises:
        ConfigError: there is none; there are more than can be right.
    """
    found: list[keys.Shard] = []
    for _, place in folders(objects, cluster=cluster):
        if place is not None and shard in ("", place.uid):
            found.append(place)
        if len(found) > SHARDS_MAX:
            raise ConfigError(f"{objects.url} holds more than {SHARDS_MAX} broker groups.")
    if not found:
        wanted = "".join(
            f" of {what} {name}" for what, name in (("cluster", cluster), ("shard", shard)) if name
        )
        raise ConfigError(
            f"There is no broker group{wanted} in {objects.url}; give the URL that the groups "
            "upload to, without cluster or shard."
        )
    return sorted(found)


def folders(objects: Objects, *, cluster: str = "") -> Iterator[tuple[str, keys.Shard | None]]:
    """Every folder where a broker group's could be; None for one that is none."""
    for name in objects.children(""):
        if cluster and name != cluster:
            continue
        for spread in objects.children(f"{name}/"):
            for uid in objects.children(f"{name}/{spread}/"):
                prefix = f"{name}/{spread}/{uid}/"
                yield prefix, keys.place_at(name, spread, uid)


def advance(objects: Objects, known: Chain, *, upto: int | None = None) -> Chain:
    """``known`` and what was committed since, up to version ``upto`` (None: all).

    Raises:
        ChainError: a version breaks a rule; says which.
        TierObjectError: a version's object cannot be used.
        StoreError: it could not be read.
        ConfigError: there is no version ``upto``.
    """
    for batch in attempts(objects, known, upto=upto):
        versions = []
        for found in batch:
            if isinstance(found, damage.TierObjectError):
                raise found
            versions.append(found)
        known = extended(known, versions)
    if upto is not None and known.state.v < upto:
        raise ConfigError(
            f"The manifest of {known.place.uid} ends at version {known.state.v}; version {upto} "
            "does not exist (yet)."
        )
    return known


def extended(known: Chain, versions: list[manifests.Version]) -> Chain:
    """``known`` and some more versions. Raises ChainError."""
    state = chain.advance(known.state, versions)
    added = [pack for version in versions for pack in listed(version)]
    return Chain(known.place, state, (*known.packs, *added))


def attempts(
    objects: Objects, known: Chain, *, upto: int | None = None
) -> Iterator[list[manifests.Version | damage.TierObjectError]]:
    """The versions behind ``known``, in order and in bounded lists, decoded but not yet folded.

    One that cannot be used is told by its error.

    Raises:
        StoreError: the store did not answer; nothing follows from that.
    """
    place = known.place
    waiting: list[int] = []
    with ThreadPoolExecutor(READERS) as pool:

        def read(v: int) -> manifests.Version | damage.TierObjectError:
            key = place.key(keys.ManKey(v))
            try:
                return manifests.decode_version(objects.get(key), place, v)
            except MissingObject:
                return damage.MissingObject(key)
            except damage.TierObjectError as error:
                return error

        for key, _ in objects.keys(place.key("man/"), after=place.key(keys.ManKey(known.state.v))):
            name = keys.parse_name(key.removeprefix(place.prefix))
            if not isinstance(name, keys.ManKey) or (upto is not None and name.v > upto):
                continue  # an object of another form: the audit names it
            waiting.append(name.v)
            if len(waiting) == VERSIONS_AT_ONCE:
                yield list(pool.map(read, waiting))
                waiting = []
        if waiting:
            yield list(pool.map(read, waiting))
