"""Tiers with one thing wrong each, and what every reader has to find in them.

One table for `gantry tier verify`, the checker of experiments and the audit: they fetch in their
own ways, and have to name the same objects, bytes and offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from gantry_protocol.tier import chain, manifests
from gantry_protocol.tier.footer import read_trailer
from gantry_protocol.tier.keys import ManKey, MetaKey, Pair
from support.tier_directory import TierDirectory, messages
from support.tier_logs import Sent

NEWEST = str(ManKey(5))


class Expected(NamedTuple):
    """A finding, without its words; the object without the group's prefix."""

    rule: str
    object: str
    byte: int | None = None
    offset: int | None = None
    grade: str = "fault"


class Damage(NamedTuple):
    """Something wrong.

    Attributes:
        name: of the case, and of the group's UID.
        plant: spoils a sound tier; what is to be found.
        confirm_below_end: how far the confirm offset lies below the tier's end; None: not known.
    """

    name: str
    plant: Callable[[TierDirectory], list[Expected]]
    confirm_below_end: int | None = None


def sound_tier(root: Path, uid: str) -> TierDirectory:
    """Three packs under two masters, five versions."""
    tier = TierDirectory(root, uid=uid)
    tier.claim(1)
    tier.append(messages("orders", 12))
    tier.append([*messages("orders", 6), None, *messages("billing", 4)])
    tier.claim(2)
    tier.append(messages("orders", 8))
    return tier


def removed(tier: TierDirectory) -> list[Expected]:
    pack = tier.state.packs[1]
    tier.path(pack.key).unlink()
    return [Expected("T4", pack.key, None, pack.lo)]


def flipped(
    at: int, found_at: Callable[[int, int], int]
) -> Callable[[TierDirectory], list[Expected]]:
    """A bit of the last pack; `found_at` gets the footer's start and the pack's size."""

    def plant(tier: TierDirectory) -> list[Expected]:
        pack = tier.state.packs[2]
        data = tier.path(pack.key).read_bytes()
        footer = read_trailer(data, len(data), pack.key).start
        tier.flip(pack.key, at)
        return [Expected("T4", pack.key, found_at(footer, len(data)), pack.lo)]

    return plant


def flipped_footer(tier: TierDirectory) -> list[Expected]:
    pack = tier.state.packs[2]
    data = tier.path(pack.key).read_bytes()
    footer = read_trailer(data, len(data), pack.key).start
    tier.flip(pack.key, footer + 20)
    return [Expected("T4", pack.key, footer, pack.lo)]


def cut_short(tier: TierDirectory) -> list[Expected]:
    pack = tier.state.packs[0]
    tier.put(pack.key, tier.path(pack.key).read_bytes()[:500])
    return [Expected("T4", pack.key, 500, pack.lo)]


def emptied(tier: TierDirectory) -> list[Expected]:
    pack = tier.state.packs[0]
    tier.put(pack.key, b"")
    return [Expected("T4", pack.key, 0, pack.lo)]


def another_pack(tier: TierDirectory) -> list[Expected]:
    """A pack in the place of another: sound bytes under a key that is not theirs."""
    first, second, _ = tier.state.packs
    data = tier.path(first.key).read_bytes()
    tier.put(second.key, data)
    footer = read_trailer(data, len(data), first.key).start
    return [Expected("foreign", second.key, footer, second.lo)]


def forged(shift: int) -> Callable[[TierDirectory], list[Expected]]:
    """A version whose pack begins `shift` bytes from the tier's end; all else about it is right."""

    def plant(tier: TierDirectory) -> list[Expected]:
        before = tier.state
        lo = before.end + shift
        tier.state = msgspec.structs.replace(before, end=lo)
        pack = tier.build(messages("orders", 2))
        tier.put(str(pack.key), pack.data)
        version = chain.append(
            tier.state,
            [pack.entry],
            lineage=(),
            tail=pack.tail,
            writer="forger",
            nonce=tier.nonce(),
            at_ms=1,
        )
        tier.put(str(ManKey(6)), manifests.encode(version))
        tier.state = before
        return [Expected("T3", str(pack.key), None, lo)]

    return plant


def above_confirm(tier: TierDirectory) -> list[Expected]:
    pack = tier.state.packs[2]
    return [Expected("T6", pack.key, None, pack.hi - 1)]


def stray_object(tier: TierDirectory) -> list[Expected]:
    tier.put("notes.txt", b"hello")
    tier.put("pack/notes.txt", b"hello")
    return [Expected("foreign", "notes.txt", 0), Expected("foreign", "pack/notes.txt", 0)]


def newer_version(tier: TierDirectory) -> list[Expected]:
    """Behind it nothing is believed: its pack is one that nobody names."""
    value = json.loads(tier.path(NEWEST).read_bytes())
    tier.put(NEWEST, manifests.canonical(value | {"format": 2}))
    return [Expected("newer", NEWEST, 0), *_orphans(tier, 2)]


def newer_pack(tier: TierDirectory) -> list[Expected]:
    pack = tier.state.packs[2]
    data = tier.path(pack.key).read_bytes()
    tier.put(pack.key, data[:-1] + b"2")
    return [Expected("newer", pack.key, len(data) - 4, pack.lo)]


def newer_owner(tier: TierDirectory) -> list[Expected]:
    value = json.loads(tier.path(str(MetaKey())).read_bytes())
    tier.put(str(MetaKey()), manifests.canonical(value | {"format": 2}))
    return [Expected("newer", str(MetaKey()), 0)]


def newer_folder(tier: TierDirectory) -> list[Expected]:
    tier.put("snap/00000000000000000001", b"")
    return [Expected("newer", "snap/00000000000000000001", 0, grade="note")]


def no_owner(tier: TierDirectory) -> list[Expected]:
    tier.path(str(MetaKey())).unlink()
    return [Expected("T4", str(MetaKey()))]


def _of_another_group(tier: TierDirectory) -> TierDirectory:
    """A second group that was pointed at the first one's prefix."""
    other = sound_tier(tier.root.parent / f"{tier.root.name}-other", f"{tier.place.uid}-other")
    other.append(messages("orders", 3))
    return other


def owner_of_another_group(tier: TierDirectory) -> list[Expected]:
    other = _of_another_group(tier)
    tier.put(str(MetaKey()), other.path(str(MetaKey())).read_bytes())
    return [Expected("foreign", str(MetaKey()), 0)]


def version_of_another_group(tier: TierDirectory) -> list[Expected]:
    other = _of_another_group(tier)
    tier.put(str(ManKey(6)), other.path(str(ManKey(6))).read_bytes())
    return [Expected("foreign", str(ManKey(6)), 0)]


def pack_of_another_group(tier: TierDirectory) -> list[Expected]:
    other, pack = _of_another_group(tier), tier.state.packs[1]
    data = other.path(other.state.packs[1].key).read_bytes()
    tier.put(pack.key, data)
    return [Expected("foreign", pack.key, read_trailer(data, len(data), "").start, pack.lo)]


def version_missing(tier: TierDirectory) -> list[Expected]:
    tier.path(str(ManKey(3))).unlink()
    return [Expected("T1", str(ManKey(3))), *_orphans(tier, 1)]


def version_flipped(tier: TierDirectory) -> list[Expected]:
    data = tier.path(NEWEST).read_bytes()
    tier.flip(NEWEST, data.index(b'"crc32c":"') + 12)
    return [Expected("T4", NEWEST, 0), *_orphans(tier, 2)]


def version_cut_short(tier: TierDirectory) -> list[Expected]:
    tier.put(NEWEST, tier.path(NEWEST).read_bytes()[:60])
    return [Expected("T4", NEWEST, 60), *_orphans(tier, 2)]


def no_version(tier: TierDirectory) -> list[Expected]:
    for v in range(1, 6):
        tier.path(str(ManKey(v))).unlink()
    return [Expected("T1", str(ManKey(1))), *_orphans(tier, 0, 1, 2)]


def _orphans(tier: TierDirectory, *numbers: int) -> list[Expected]:
    packs = [tier.state.packs[number] for number in numbers]
    return [Expected("orphan", pack.key, None, pack.lo, "note") for pack in packs]


def orphan(tier: TierDirectory) -> list[Expected]:
    """What a fenced master uploaded and could not commit, and what the newest is uploading."""
    now = tier.build(messages("orders", 3))
    late = now.key._replace(pair=Pair(1, 1))
    for key in (now.key, late):
        tier.put(str(key), now.data)
    return [Expected("orphan", str(key), None, key.lo, "note") for key in (late, now.key)]


def queue_jumps(tier: TierDirectory) -> list[Expected]:
    lo = tier.state.end
    pack = tier.append([Sent("orders", 0, b"x", queue_offset=99)])
    return [Expected("queue", str(pack.key), 4, lo)]


def tail_lies(tier: TierDirectory) -> list[Expected]:
    pack = tier.build(messages("orders", 3))
    tier.put(str(pack.key), pack.data)
    assert pack.tail is not None
    tier.add(pack._replace(tail=msgspec.structs.replace(pack.tail, crc="00000000")))
    return [Expected("tail", str(pack.key), None, pack.tail.at)]


def count_lies(tier: TierDirectory) -> list[Expected]:
    pack = tier.build(messages("orders", 3))
    tier.put(str(pack.key), pack.data)
    tier.add(pack._replace(entry=msgspec.structs.replace(pack.entry, count=2)))
    return [Expected("T4", str(pack.key), None, pack.key.lo)]


def another_attempt(tier: TierDirectory) -> list[Expected]:
    """A sound pack of the same range and key, and not the one that was committed."""
    pack = tier.build(messages("orders", 3))
    tier.put(str(pack.key), pack.data)
    tier.add(pack._replace(entry=msgspec.structs.replace(pack.entry, crc="00000000")))
    return [Expected("T4", str(pack.key), 0, pack.key.lo)]


def nothing(_tier: TierDirectory) -> list[Expected]:
    return []


DAMAGES = (
    Damage("nothing", nothing, confirm_below_end=0),
    Damage("removed-pack", removed),
    Damage("flipped-head", flipped(0, lambda _footer, _size: 0)),
    Damage("flipped-record", flipped(10, lambda _footer, _size: 4)),
    Damage("flipped-body", flipped(95, lambda _footer, _size: 4)),
    Damage("flipped-footer", flipped_footer),
    Damage("flipped-footer-length", flipped(-12, lambda _footer, size: size - 12)),
    Damage("flipped-footer-sum", flipped(-8, lambda footer, _size: footer)),
    Damage("flipped-end", flipped(-1, lambda _footer, size: size)),
    Damage("cut-short", cut_short),
    Damage("emptied", emptied),
    Damage("another-pack", another_pack),
    Damage("overlap", forged(-3)),
    Damage("hole", forged(3)),
    Damage("above-confirm", above_confirm, confirm_below_end=1),
    Damage("stray-object", stray_object),
    Damage("newer-version", newer_version),
    Damage("newer-pack", newer_pack),
    Damage("newer-owner", newer_owner),
    Damage("newer-folder", newer_folder),
    Damage("no-owner", no_owner),
    Damage("owner-of-another-group", owner_of_another_group),
    Damage("version-of-another-group", version_of_another_group),
    Damage("pack-of-another-group", pack_of_another_group),
    Damage("version-missing", version_missing),
    Damage("version-flipped", version_flipped),
    Damage("version-cut-short", version_cut_short),
    Damage("no-version", no_version),
    Damage("orphan", orphan),
    Damage("queue-jumps", queue_jumps),
    Damage("tail-lies", tail_lies),
    Damage("count-lies", count_lies),
    Damage("another-attempt", another_attempt),
)


class Planted(NamedTuple):
    """A damaged tier, and what is to be found in it."""

    tier: TierDirectory
    confirm: int | None
    expected: list[Expected]


def plant(damage: Damage, root: Path) -> Planted:
    """The damaged tier below ``root``, under the damage's own UID."""
    tier = sound_tier(root, damage.name)
    below = damage.confirm_below_end
    expected = damage.plant(tier)
    return Planted(tier, None if below is None else tier.state.end - below, expected)
