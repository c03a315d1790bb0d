from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gantry_protocol.tier.chain import (
    TAKE_EPOCHS,
    ChainState,
    advance,
    append,
    apply,
    before,
    claim,
    empty,
    fold,
    take,
)
from gantry_protocol.tier.damage import ChainError
from gantry_protocol.tier.keys import Pair
from gantry_protocol.tier.manifests import (
    Append,
    PackEntry,
    Tail,
    Take,
    Version,
    decode_version,
    encode,
    seal,
)
from gantry_protocol.types import Epoch, EpochEntry, Offset
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tier_logs import PLACE

CRC = "0badcafe"


def lineage(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in pairs]


def entry(
    lo: int, hi: int, pair: Pair, epochs: tuple[int, int] | None = None, count: int = 1
) -> PackEntry:
    first, last = epochs or (pair.epoch, pair.epoch)
    return PackEntry(
        key=f"pack/{pair}/{lo:020d}-{hi:020d}-9-{lo:032x}",
        lo=lo,
        hi=hi,
        cls=9,
        epoch_first=first,
        epoch_last=last,
        size=hi - lo + 100,
        crc=CRC,
        count=count,
        min_ts=1,
        max_ts=2,
    )


def claimed(state: ChainState, pair: Pair, start: int | None = None) -> Version:
    return claim(state, pair=pair, writer="w", nonce="0" * 32, at_ms=1, start=start)


def appended(state: ChainState, packs: list[PackEntry], log: list[EpochEntry]) -> Append:
    has_record = any(pack.count for pack in packs)
    tail = Tail(at=packs[-1].hi - 10, size=10, crc=CRC) if has_record else None
    return append(state, packs, lineage=log, tail=tail, writer="w", nonce="0" * 32, at_ms=1)


LOG = lineage((4, 0), (5, 100))
FIRST = claimed(empty(PLACE), Pair(5, 1), 100)
S1 = apply(empty(PLACE), FIRST)
SECOND = appended(S1, [entry(100, 200, Pair(5, 1)), entry(200, 300, Pair(5, 1))], LOG)
S2 = apply(S1, SECOND)


def three_masters() -> list[Version]:
    """Two claims and appends of one master, the second after a restart, then another's."""
    versions: list[Version] = [FIRST, SECOND, claimed(S2, Pair(5, 2))]
    state = fold(PLACE, versions)
    versions.append(appended(state, [entry(300, 400, Pair(5, 2))], LOG))
    state = fold(PLACE, versions)
    versions.append(claimed(state, Pair(8, 1)))
    log = [*LOG, *lineage((8, 450))]
    state = fold(PLACE, versions)
    versions.append(appended(state, [entry(400, 500, Pair(8, 1), (5, 8))], log))
    return versions


@pytest.mark.parametrize("gone", [1, 2, 3, 4, 5])
def test_a_chain_goes_on_behind_versions_that_are_gone(gone: int) -> None:
    versions = three_masters()
    whole, left = fold(PLACE, versions), versions[gone:]
    state = advance(before(empty(PLACE), left[0]), left)
    assert (state.v, state.crc, state.pair) == (whole.v, whole.crc, whole.pair)
    assert (state.start, state.end, state.tail) == (whole.start, whole.end, whole.tail)
    assert state.base == gone
    assert state.packs == tuple(pack for pack in whole.packs if pack.lo >= state.first)
    assert state.pack_at(state.first - 1) is None
    assert state.pack_at(state.first) == state.packs[0]
    assert state.lineage[-1] == whole.lineage[-1]
    assert state.lineage[0].start_offset == (0 if gone == 1 else state.first)
    log = [*LOG, *lineage((8, 450))]
    added = [appended(one, [entry(500, 600, Pair(8, 1))], log) for one in (whole, state)]
    assert added[0] == added[1], "whoever has the whole chain can go on with it"
    assert apply(state, added[1]).end == 600


def test_a_claim_alone_is_a_beginning() -> None:
    third = claimed(S2, Pair(5, 2))
    state = advance(before(empty(PLACE), third), [third])
    assert (state.first, state.end, state.packs, state.lineage) == (300, 300, (), ())
    fourth = appended(state, [entry(300, 400, Pair(5, 2))], LOG)
    assert fourth == appended(apply(S2, third), [entry(300, 400, Pair(5, 2))], LOG)
    assert apply(state, fourth).lineage == (EpochEntry(Epoch(5), Offset(300)),)


def test_a_chain_of_three_masters() -> None:
    versions: list[Version] = [FIRST, SECOND]
    third = claimed(S2, Pair(5, 2))  # the same master, started again
    state = advance(S2, [third])
    fourth = appended(state, [entry(300, 400, Pair(5, 2))], LOG)
    state = apply(state, fourth)
    fifth = claimed(state, Pair(8, 1))
    state = apply(state, fifth)
    log = [*LOG, *lineage((8, 450))]
    sixth = appended(state, [entry(400, 500, Pair(8, 1), (5, 8))], log)
    versions += [third, fourth, fifth, sixth]
    state = fold(PLACE, versions)
    assert (state.v, state.pair, state.start, state.end) == (6, Pair(8, 1), 100, 500)
    assert list(state.lineage) == log
    assert [pack.lo for pack in state.packs] == [100, 200, 300, 400]
    assert state.tail == Tail(at=490, size=10, crc=CRC)
    step = empty(PLACE)
    for version in versions:
        step = apply(step, version)
    assert step == state


def test_pack_at() -> None:
    for offset, lo in ((100, 100), (199, 100), (200, 200), (299, 200)):
        found = S2.pack_at(offset)
        assert found is not None
        assert found.lo == lo
    assert S2.pack_at(99) is None
    assert S2.pack_at(300) is None


def test_lineage_comes_with_the_records_it_is_about() -> None:
    """An epoch that begins at or above the end is added by the append that passes it."""
    log = [*LOG, *lineage((6, 300))]
    state = apply(S2, claimed(S2, Pair(6, 1)))
    assert state.lineage == tuple(LOG)
    log_later = [*log, *lineage((7, 301))]
    version = appended(state, [entry(300, 301, Pair(6, 1), count=0)], log_later)
    assert version.lineage_add == [(6, 300)]
    assert apply(state, version).tail == S2.tail


def edit(version: Version, **fields: Any) -> Version:
    return seal(msgspec.structs.replace(version, **fields))


def entries(**fields: Any) -> list[PackEntry]:
    first, second = SECOND.add
    return [first, msgspec.structs.replace(second, **fields)]


CLAIM_2 = claimed(S1, Pair(6, 1))
KEY_2 = SECOND.add[1].key


@pytest.mark.parametrize(
    ("state", "version", "rule"),
    [
        (empty(PLACE), SECOND, "T1: it follows version 0"),
        (S2, SECOND, "T1: it follows version 2"),
        (S1, edit(SECOND, v=3), "T1: it follows version 1"),
        (S1, edit(SECOND, prev_crc="00000000"), "T1: it was derived from"),
        (S1, edit(SECOND, shard="x"), "T1: it is of shard x"),
        (S1, edit(SECOND, epoch=4), "T1: pair 0000000004.00001 comes after 0000000005.00001"),
        (S1, edit(SECOND, inc=0), "T1: pair 0000000005.00000 comes after"),
        (S1, edit(CLAIM_2, epoch=4), "T1: pair"),
        (S1, edit(CLAIM_2, epoch=5), "T9: pair 0000000005.00001 claimed before"),
        (S1, edit(SECOND, epoch=6), "T9: pair 0000000006.00001 appends"),
        (S1, edit(SECOND, inc=2), "T9: pair 0000000005.00002 appends"),
        (empty(PLACE), edit(SECOND, v=1, prev_crc="00000000"), "T9: pair"),
        (empty(PLACE), edit(FIRST, end=101), "T2: the first claim begins with [100, 101)"),
        (empty(PLACE), edit(FIRST, tail=S2.tail), "tail: no record is added"),
        (S1, edit(CLAIM_2, end=101), "T2: a claim changes [100, 100) to [100, 101)"),
        (S1, edit(CLAIM_2, start=99), "T2: a claim changes"),
        (S2, edit(claimed(S2, Pair(6, 0)), tail=None), "tail: no record is added"),
        (S1, edit(SECOND, start=101), "T2: an append moves the start"),
        (S1, edit(SECOND, end=299), "T2: it says it ends at 299"),
        (S1, edit(SECOND, end=301), "T2: it says it ends at 301"),
        (S1, edit(SECOND, add=SECOND.add[1:]), "begins at 200, the tier ends at 100"),
        (S1, edit(SECOND, add=SECOND.add[::-1]), "begins at 200, the tier ends at 100"),
        (S1, edit(SECOND, add=[*SECOND.add, SECOND.add[1]]), "begins at 200, the tier ends at 300"),
        (S1, edit(SECOND, add=entries(lo=199)), "T3: "),
        (S1, edit(SECOND, add=entries(lo=201)), "T3: "),
        (S1, edit(SECOND, add=entries(hi=200)), "T3: "),
        (S1, edit(SECOND, add=entries(hi=299)), "T11: "),
        (S1, edit(SECOND, add=entries(cls=8)), "T11: "),
        (S1, edit(SECOND, add=entries(cls=8, key=KEY_2.replace("-9-", "-8-"))), "class 8"),
        (S1, edit(SECOND, add=entries(key="pack/x")), "T11: 'pack/x' is no name of a pack"),
        (S1, edit(SECOND, add=entries(key=f"man/{2:020d}")), "no name of a pack"),
        (
            S1,
            edit(SECOND, add=entries(key=KEY_2.replace(".00001", ".00000"))),
            "was written by 0000000005.00000, and is added by 0000000005.00001",
        ),
        (S1, edit(SECOND, lineage_add=[]), "H2: no epoch is known for the start 100"),
        (S1, edit(SECOND, lineage_add=[(5, 101)]), "H2: no epoch is known"),
        (S1, edit(SECOND, lineage_add=[(5, 0), (4, 100)]), "H2: epoch 4 from 100 follows epoch 5"),
        (S1, edit(SECOND, lineage_add=[(4, 0), (5, 0)]), "H2: epoch 5 from 0 follows epoch 4"),
        (S1, edit(SECOND, lineage_add=[(4, 0), (5, 300)]), "H2: epoch 5 from 300 is added"),
        (S1, edit(SECOND, lineage_add=[(4, 0), (6, 100)]), "H2: epoch 6 wrote into a tier"),
        (S1, edit(SECOND, lineage_add=[(4, 0), (5, 150)]), "listed as of epochs 5 to 5"),
        (S1, edit(SECOND, add=entries(epoch_first=4)), "listed as of epochs 4 to 5"),
        (S1, edit(SECOND, add=entries(epoch_last=6)), "listed as of epochs 5 to 6"),
        (S1, edit(SECOND, tail=None), "tail: records are added"),
        (S1, edit(SECOND, tail=Tail(at=99, size=10, crc=CRC)), "tail: the last record"),
        (S1, edit(SECOND, tail=Tail(at=291, size=10, crc=CRC)), "tail: the last record"),
    ],
)
def test_broken_chain_is_named(state: ChainState, version: Version, rule: str) -> None:
    with pytest.raises(ChainError) as broken:
        apply(state, version)
    assert rule in str(broken.value)
    assert broken.value.version == version.v
    assert str(broken.value).startswith(f"The manifest is broken at version {version.v}: ")


def test_epoch_below_the_end_cannot_be_added_later() -> None:
    state = apply(S2, claimed(S2, Pair(9, 1)))
    version = appended(state, [entry(300, 400, Pair(9, 1), (5, 5))], LOG)
    with pytest.raises(ChainError, match="epoch 7 from 250 is added"):
        apply(state, edit(version, lineage_add=[(7, 250)]))


@settings(deadline=None)
@given(st.lists(st.sampled_from(["claim", "again", "append", "blank"]), max_size=30), st.data())
def test_what_a_sound_writer_writes_folds_and_nothing_else_does(
    steps: list[str], data: st.DataObject
) -> None:
    versions: list[Version] = []
    state = empty(PLACE)
    log = lineage((1, 0))
    for step in ["claim", *steps]:
        version: Version
        if step in ("claim", "again"):
            epoch = state.pair.epoch + (step == "claim")
            pair = Pair(epoch, 1 if step == "claim" else state.pair.inc + 1)
            if step == "claim" and epoch > 1 and state.end > log[-1].start_offset:
                log = [*log, *lineage((epoch, state.end))]
            version = claimed(state, pair, 0 if state.v == 0 else None)
        else:
            hi = state.end + data.draw(st.integers(10, 50))
            count = 0 if step == "blank" else 1
            wrote = log[-1].epoch
            pack = entry(state.end, hi, state.pair, (wrote, wrote), count)
            version = appended(state, [pack], log)
        versions.append(version)
        state = apply(state, version)
    assert fold(PLACE, versions) == state
    assert sum(pack.hi - pack.lo for pack in state.packs) == state.end - state.start
    missing = data.draw(st.integers(0, len(versions) - 1), label="missing")
    rest = [*versions[:missing], *versions[missing + 1 :]]
    if missing < len(versions) - 1:
        with pytest.raises(ChainError, match=f"version {missing + 2}: T1"):
            fold(PLACE, rest)


def taken(state: ChainState, owner: str = "new") -> Take:
    return take(state, owner=owner, writer="w", nonce="1" * 32, at_ms=1)


def test_the_shard_owns_its_chain_until_another_group_takes_it() -> None:
    assert S2.owner == PLACE.uid
    state = apply(S2, taken(S2))
    assert (state.owner, state.taken_v, state.end, state.lineage) == ("new", 3, 300, S2.lineage)
    state = apply(state, claimed(state, Pair(state.pair.epoch + 1, 1)))
    assert (state.owner, state.taken_v, state.v) == ("new", 3, 4)
    again = apply(state, taken(state, "third"))
    assert (again.owner, again.taken_v) == ("third", 5)


def test_who_owned_a_chain_whose_beginning_is_gone_is_not_known() -> None:
    claim_of_later = claimed(S2, Pair(6, 1))
    state = advance(before(empty(PLACE), claim_of_later), [claim_of_later])
    assert state.owner == ""
    assert apply(state, taken(state)).owner == "new"


def test_a_take_is_read_as_it_was_written() -> None:
    version = taken(S2)
    assert decode_version(encode(version), PLACE, 3) == version


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epoch": S2.pair.epoch + TAKE_EPOCHS - 1}, "less than 10000 above it"),
        ({"owner": PLACE.uid}, "owns the tier already"),
        ({"end": 400}, "a claim changes"),
    ],
)
def test_a_take_that_breaks_a_rule_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ChainError, match=reason):
        apply(S2, seal(msgspec.structs.replace(taken(S2), **change)))


def test_nobody_takes_an_empty_tier() -> None:
    version = msgspec.structs.replace(taken(S2), v=1, prev_crc="0" * 8, start=0, end=0, tail=None)
    with pytest.raises(ChainError, match="nobody takes a tier that is empty"):
        apply(empty(PLACE), seal(version))
