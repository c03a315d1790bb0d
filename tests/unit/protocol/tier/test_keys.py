from __future__ import annotations

import pytest
from gantry_protocol.tier.damage import ForeignObject, NewerObject
from gantry_protocol.tier.keys import (
    MAX_OFFSET,
    SHARED_UID_MAX_CHARS,
    ManKey,
    MetaKey,
    PackKey,
    Pair,
    Shard,
    parse_key,
    parse_name,
    shard,
    shared_uid,
)
from hypothesis import given
from hypothesis import strategies as st

UID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
PLACE = Shard("demo", UID)
NONCE = "0123456789abcdef0123456789abcdef"
PACK = f"pack/0000000012.00003/00000000000000001000-00000000000000001340-9-{NONCE}"

offsets = st.integers(0, MAX_OFFSET - 1)


def test_names_are_those_of_the_specification() -> None:
    assert PLACE.prefix == f"demo/6316/{UID}/"
    assert PLACE.key(ManKey(7)) == f"demo/6316/{UID}/man/00000000000000000007"
    assert PLACE.key(MetaKey()) == f"demo/6316/{UID}/meta.json"
    assert str(PackKey(Pair(12, 3), 1000, 1340, 9, NONCE)) == PACK


@given(
    st.integers(0, 9_999_999_999),
    st.integers(0, 99_999),
    offsets,
    st.integers(1, 2**40),
    st.binary(min_size=16, max_size=16),
)
def test_a_name_is_read_back(epoch: int, inc: int, lo: int, size: int, nonce: bytes) -> None:
    key = PackKey(Pair(epoch, inc), lo, min(lo + size, MAX_OFFSET), 9, nonce.hex())
    assert parse_key(PLACE, PLACE.key(key)) == key


@given(st.lists(offsets, min_size=2), st.lists(st.tuples(offsets, offsets), min_size=2))
def test_numbers_sort_as_text(versions: list[int], ranges: list[tuple[int, int]]) -> None:
    assert [int(str(ManKey(v))[4:]) for v in sorted(versions)] == sorted(
        int(text[4:]) for text in map(str, map(ManKey, versions))
    )
    keys = [PackKey(Pair(1, 1), lo, hi, 9, NONCE) for lo, hi in ranges]
    assert [str(key) for key in sorted(keys)] == sorted(map(str, keys))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "man/7",
        "man/00000000000000000000",
        "man/00000000000000000001x",
        "man/00000000000000000001\n",
        "man/0000000000000000000١",
        "man/99999999999999999999",
        PACK.upper(),
        PACK + "0",
        PACK.replace("1340", "1000"),
        PACK.replace("1340", "0999"),
        PACK.replace("0000000012.", "12."),
        "pack/" + PACK,
        "../" + PACK,
        "META.json",
        "meta.json/",
    ],
)
def test_a_name_of_another_form_is_none_of_ours(name: str) -> None:
    assert parse_name(name) is None
    with pytest.raises(ForeignObject) as refused:
        parse_key(PLACE, PLACE.prefix + name)
    assert refused.value.key == PLACE.prefix + name


def test_another_prefix_is_foreign() -> None:
    with pytest.raises(ForeignObject, match="does not begin with demo/6316/"):
        parse_key(PLACE, Shard("demo", "other").key(ManKey(1)))


@pytest.mark.parametrize(
    "name", ["snap/x", "qtab/y", "state/z", "kidx/a", PACK.replace("-9-", "-3-")]
)
def test_what_is_reserved_is_newer(name: str) -> None:
    with pytest.raises(NewerObject, match="this version has no"):
        parse_key(PLACE, PLACE.prefix + name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a" * 64, "a b", "ä", "a\n"])
def test_what_cannot_be_part_of_a_key_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="broker group UID"):
        shard("demo", name)
    with pytest.raises(ValueError, match="cluster"):
        shard(name, UID)


def test_pairs_are_ordered_by_epoch_then_boot() -> None:
    assert Pair(2, 9) < Pair(3, 0) < Pair(3, 1)


def test_groups_that_share_a_uid_have_names_of_their_own() -> None:
    assert shared_uid("2f6c", "orders") == "2f6c.orders"
    odd = [shared_uid(UID, name) for name in ("%odd", "|odd", "n" * 127, "n" * 126)]
    assert len({*odd, shared_uid(UID, "n" * 20)}) == 5
    longest = "u" * SHARED_UID_MAX_CHARS
    for name in (*odd, shared_uid(longest, "n" * 127), shared_uid(longest, "n" * 16)):
        assert shard("demo", name).uid == name
    assert shared_uid(longest, "n" * 16) == f"{longest}.{'n' * 16}"
