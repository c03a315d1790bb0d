"""The tier against what is known otherwise: a sound one passes, each kind of lie is named."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from gantry_chaos.checkers import tier
from gantry_chaos.checkers.tier import Truth
from gantry_protocol.tier.chain import append, apply, claim, empty
from gantry_protocol.tier.keys import MetaKey, Pair
from gantry_protocol.tier.manifests import Owner, Version, encode, seal
from gantry_protocol.tier.packs import BuiltPack
from gantry_protocol.types import Epoch, EpochEntry, Offset
from support.tier_logs import PLACE, Sent, build_log, build_pack

FIRST, SECOND = Pair(1, 1), Pair(2, 4)
LO = 100
ONE = build_log(LO, [Sent("orders", 0, b"one"), Sent("orders", 1, b"two"), None])
MIDDLE = LO + len(ONE)
TWO = build_log(MIDDLE, [Sent("orders", 0, b"three")], first=1)
END = MIDDLE + len(TWO)
LINEAGE = (EpochEntry(Epoch(1), Offset(0)), EpochEntry(Epoch(2), Offset(MIDDLE)))
TRUTH = Truth(
    END, LINEAGE, {1: "broker-0", 2: "broker-1"}, {"broker-2": (0, bytes(LO) + ONE + TWO)}
)


class Tier:
    """A sound tier of two masters, to be spoilt."""

    def __init__(self) -> None:
        self.versions: list[Version] = []
        owner = Owner(shard=PLACE.uid, cluster=PLACE.cluster, group="orders", created_ms=1)
        self.objects = {PLACE.key(MetaKey()): encode(seal(owner))}
        state = empty(PLACE)
        packs = (
            build_pack(LO, ONE, pair=FIRST, nonce="1" * 32, lineage=LINEAGE),
            build_pack(MIDDLE, TWO, pair=SECOND, nonce="2" * 32, lineage=LINEAGE),
        )
        for pair, writer, pack in zip(
            (FIRST, SECOND), ("broker-0", "broker-1"), packs, strict=True
        ):
            start = LO if not state.v else None
            taken = claim(state, pair=pair, writer=writer, nonce="0" * 32, at_ms=1, start=start)
            state = apply(state, taken)
            added = append(
                state,
                [pack.entry],
                lineage=LINEAGE,
                tail=pack.tail,
                writer=writer,
                nonce="0" * 32,
                at_ms=2,
            )
            state = apply(state, added)
            self.versions += [taken, added]
            self.put(pack)

    def put(self, pack: BuiltPack) -> None:
        self.objects[PLACE.key(pack.key)] = pack.data

    def key(self, number: int) -> str:
        return sorted(key for key in self.objects if "/pack/" in key)[number]

    def check(self, truth: Truth = TRUTH) -> tuple[str, ...]:
        found = tier.check(PLACE, self.versions, list(self.objects), self.objects.get, truth)
        assert found.passed == (not found.violations)
        return found.violations


def test_a_sound_tier_passes() -> None:
    found = Tier()
    assert found.check() == ()
    orphan = build_pack(LO, ONE, pair=FIRST, nonce="3" * 32, lineage=LINEAGE)
    found.put(orphan)
    verdict = tier.check(PLACE, found.versions, list(found.objects), found.objects.get, TRUTH)
    assert verdict.passed
    assert verdict.figures["orphans"] == 1
    assert verdict.figures["end"] == END


def remove(spoilt: Tier) -> None:
    del spoilt.objects[spoilt.key(0)]


def flip(spoilt: Tier) -> None:
    data = bytearray(spoilt.objects[spoilt.key(0)])
    data[40] ^= 1
    spoilt.objects[spoilt.key(0)] = bytes(data)


def cut(spoilt: Tier) -> None:
    spoilt.objects[spoilt.key(1)] = spoilt.objects[spoilt.key(1)][:-1]


def drop_a_version(spoilt: Tier) -> None:
    del spoilt.versions[1]


def overlap(spoilt: Tier) -> None:
    spoilt.versions.append(
        seal(msgspec.structs.replace(spoilt.versions[-1], v=5, prev_crc=spoilt.versions[-1].crc32c))
    )


def foreign(spoilt: Tier) -> None:
    spoilt.objects[PLACE.prefix + "notes.txt"] = b""


def nothing(spoilt: Tier) -> None:
    spoilt.versions.clear()
    spoilt.objects.clear()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (remove, f"it is missing; manifest version 2 names it for [{LO}, {MIDDLE})."),
        (flip, f" at byte 4 at offset {LO} (T4): the sum of the run of"),
        (cut, "(T4): a pack ends with 'TPK1'"),
        (drop_a_version, "(T1): version 2 is missing; the next one that is there is 3."),
        (overlap, "(T3): manifest version 5: overlap: "),
        (foreign, "notes.txt at byte 0 (foreign): the key has no form of this format."),
        (nothing, "The tier holds no pack"),
    ],
)
def test_what_is_wrong_in_the_bucket_is_named(spoil: Callable[[Tier], None], sentence: str) -> None:
    spoilt = Tier()
    spoil(spoilt)
    told = spoilt.check()
    assert any(sentence in one for one in told), told


def other(**changes: object) -> Truth:
    return msgspec.structs.replace(TRUTH, **changes)


@pytest.mark.parametrize(
    ("truth", "sentence"),
    [
        (
            other(confirm_offset=END - 1),
            f"at offset {END - 1} (T6): manifest version 4 holds [{MIDDLE}, {END})",
        ),
        (other(masters={2: "broker-0"}), "committed by broker-1 under epoch 2, whose master was"),
        (
            other(lineage=(LINEAGE[0], EpochEntry(Epoch(2), Offset(MIDDLE - 10)))),
            f"epoch 2 begins at {MIDDLE}; in the group's lineage it begins at {MIDDLE - 10}.",
        ),
        (other(lineage=(LINEAGE[0],)), "epoch 2 begins at"),
        (
            other(lineage=(*LINEAGE, EpochEntry(Epoch(3), Offset(END - 5)))),
            f"bytes from {END - 5} on that are not those of epoch 3",
        ),
        (
            other(logs={"broker-2": (MIDDLE, TWO[:-1] + b"?")}),
            f"differs from the log of broker-2 at offset {END - 1}.",
        ),
    ],
)
def test_what_contradicts_the_group_is_named(truth: Truth, sentence: str) -> None:
    told = Tier().check(truth)
    assert any(sentence in one for one in told), told
