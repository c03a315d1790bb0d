"""What an audit finds, and what the store's listing and the chain say before a pack is opened.

A ``fault`` is something that must not be; a ``note`` is something to know: an object that no
version names is what an interrupted upload leaves behind, neither data nor damage. Each names the
object and, where it has one, the byte in it or the offset in the log.

Nothing here repairs, deletes or writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.errors import GantryError
from gantry_protocol.tier import keys
from gantry_protocol.tier.damage import ChainError, NewerObject, TierObjectError
from gantry_protocol.tier.manifests import Append

from gantry_pipeline.source import chain
from gantry_pipeline.source.objects import MissingObject, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gantry_protocol.tier.manifests import Version

    from gantry_pipeline.source.objects import Objects

FAULT, NOTE = "fault", "note"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of the audit.

    Attributes:
        grade: fault or note.
        rule: T1 … T11, H2, tail as in docs/tier-format.md; T4 for objects; queue, foreign, orphan.
        object: the whole key.
        byte: where in the object; None if it is not about a byte.
        offset: the offset in the log; None if it is not about one.
        reason: got and expected.
    """

    grade: str
    rule: str
    object: str
    reason: str
    byte: int | None = None
    offset: int | None = None


class Inspected(msgspec.Struct):
    """A broker group, before its packs are opened.

    Attributes:
        known: the chain as far as it is sound.
        group: the broker group's name; empty if meta.json does not tell.
        packs: of the chain, those that are there.
        findings: about versions, names and what is not there.
    """

    known: chain.Chain
    group: str
    packs: tuple[chain.Listed, ...]
    findings: list[Finding]


def inspect(objects: Objects, place: keys.Shard) -> Inspected:
    """Meta, chain and listing of one broker group.

    Raises:
        StoreError: the store did not answer.
    """
    findings: list[Finding] = []
    group = ""
    try:
        group = chain.group_name(objects, place)
    except StoreError:
        raise
    except GantryError as error:
        findings.append(_of_error(place.key(keys.META), error))
    known, mentioned = _chain(objects, place, findings)
    there: dict[str, int] = {}
    for key, size in objects.keys(place.prefix):
        name = key.removeprefix(place.prefix)
        try:
            parsed = keys.parse_key(place, key)
        except TierObjectError as error:
            findings.append(_of_error(key, error))
            continue
        if isinstance(parsed, keys.PackKey):
            there[name] = size
            if name not in mentioned:
                findings.append(_unnamed(place, known, parsed))
    findings += [
        Finding(
            FAULT,
            "T4",
            place.key(pack.entry.key),
            f"it is missing; manifest version {pack.v} names it for [{pack.entry.lo}, "
            f"{pack.entry.hi})",
            offset=pack.entry.lo,
        )
        for pack in known.packs
        if pack.entry.key not in there
    ]
    packs = tuple(pack for pack in known.packs if pack.entry.key in there)
    return Inspected(known, group, packs, findings)


def strays(objects: Objects, *, cluster: str = "") -> Iterator[Finding]:
    """Folders where a broker group's should be, and that are none."""
    for prefix, place in chain.folders(objects, cluster=cluster):
        if place is None:
            yield Finding(FAULT, "foreign", prefix, "no broker group has such a prefix")


def _chain(
    objects: Objects, place: keys.Shard, findings: list[Finding]
) -> tuple[chain.Chain, set[str]]:
    """The chain up to the first version that is wrong, and all packs that any version names."""
    known = chain.begin(place)
    mentioned: set[str] = set()
    sound = True
    for batch in chain.attempts(objects, known):
        good: list[Version] = []
        for found in batch:
            if isinstance(found, chain.Unread):
                findings.append(_of_error(place.key(keys.ManKey(found.v)), found.error))
                sound = False
                continue
            if isinstance(found, Append):
                mentioned.update(entry.key for entry in found.add)
            if sound:
                good.append(found)
        known, broken = _as_far_as_sound(known, good)
        if broken is not None:
            findings.append(broken)
            sound = False
    if known.state.v == 0 and sound:
        findings.append(
            Finding(FAULT, "T1", place.key(keys.ManKey(1)), "there is no manifest version at all")
        )
    return known, mentioned


def _as_far_as_sound(
    known: chain.Chain, versions: list[Version]
) -> tuple[chain.Chain, Finding | None]:
    try:
        return chain.extended(known, versions), None
    except ChainError as error:
        before = [version for version in versions if version.v < error.version]
        known = chain.extended(known, before)
        wrong = next(version for version in versions if version.v == error.version)
        return known, _broken(known, wrong, error)


def _broken(known: chain.Chain, version: Version, error: ChainError) -> Finding:
    """The finding for a sound version that breaks a rule."""
    place, state = known.place, known.state
    rule, _, reason = error.reason.partition(": ")
    named = place.key(keys.ManKey(version.v))
    if version.v > state.v + 1:
        missing = state.v + 1
        reason = f"version {missing} is missing; the next one that is there is {version.v}"
        return Finding(FAULT, rule, place.key(keys.ManKey(missing)), reason)
    offset = None
    if isinstance(version, Append):
        end = state.end
        for entry in version.add:
            if entry.lo != end:
                what = "overlap" if entry.lo < end else "hole"
                named, offset, reason = place.key(entry.key), entry.lo, f"{what}: {reason}"
                break
            end = entry.hi
    return Finding(FAULT, rule, named, f"manifest version {version.v}: {reason}", offset=offset)


def _unnamed(place: keys.Shard, known: chain.Chain, pack: keys.PackKey) -> Finding:
    """A pack that no version names."""
    newest = known.state.pair
    if pack.pair < newest:
        reason = f"no version names it; {pack.pair} lost the chain to {newest}, so none ever will"
    else:
        reason = f"no version names it (yet); it was uploaded by {pack.pair}"
    return Finding(NOTE, "orphan", place.key(pack), reason, offset=pack.lo)


def _of_error(key: str, error: GantryError) -> Finding:
    if isinstance(error, MissingObject):
        return Finding(FAULT, "T4", key, "it is missing")
    if isinstance(error, TierObjectError):
        return of_object(error)
    return Finding(FAULT, "T4", key, str(error))


def of_object(error: TierObjectError) -> Finding:
    """What is wrong with one object: rule T4, and ``newer`` or ``foreign`` in their own words."""
    rule = {"NewerObject": "newer", "ForeignObject": "foreign"}.get(type(error).__name__, "T4")
    grade = NOTE if isinstance(error, NewerObject) and "/pack/" not in error.key else FAULT
    return Finding(grade, rule, error.key, error.reason, byte=error.offset)
