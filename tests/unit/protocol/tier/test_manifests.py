from __future__ import annotations

import json
import re
from pathlib import Path

import google_crc32c
import pytest
from gantry_protocol.tier.chain import append, apply, claim, empty, fold
from gantry_protocol.tier.damage import (
    DamagedObject,
    ForeignObject,
    NewerObject,
    TierObjectError,
    TruncatedObject,
)
from gantry_protocol.tier.keys import Pair, Shard
from gantry_protocol.tier.manifests import (
    MAX_OBJECT_BYTES,
    Append,
    Claim,
    Owner,
    decode_owner,
    decode_version,
    encode,
    seal,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tier_logs import LINEAGE, PLACE, build_pack

VECTORS = Path(__file__).parents[1] / "vectors" / "tier"
SPECIFICATION = Path(__file__).parents[4] / "docs" / "tier-format.md"
CLAIM = (VECTORS / "claim.json").read_bytes()
APPEND = (VECTORS / "append.json").read_bytes()
META = (VECTORS / "meta.json").read_bytes()


def canonical(value: object) -> bytes:
    """The specification's sentence, by another encoder than the code's."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def changed(data: bytes, **fields: object) -> bytes:
    """The object with other fields under a right sum; "gone" takes one away."""
    value = json.loads(data) | fields
    value = {key: field for key, field in value.items() if field != "gone" and key != "crc32c"}
    return canonical(value | {"crc32c": f"{google_crc32c.value(canonical(value)):08x}"})


def entry(**fields: object) -> list[dict[str, object]]:
    return [json.loads(APPEND)["add"][0] | fields]


def test_encoder_makes_the_golden_versions() -> None:
    log = (VECTORS / "log.bin").read_bytes()
    first = claim(
        empty(PLACE),
        pair=Pair(12, 3),
        writer="orders-broker-2",
        nonce="0" * 31 + "1",
        at_ms=1_700_000_001_000,
        start=1000,
    )
    assert encode(first) == CLAIM
    pack = build_pack(1000, log)
    second = append(
        apply(empty(PLACE), first),
        [pack.entry],
        lineage=LINEAGE,
        tail=pack.tail,
        writer="orders-broker-2",
        nonce="0" * 31 + "2",
        at_ms=1_700_000_002_000,
    )
    assert encode(second) == APPEND
    owner = Owner(shard=PLACE.uid, cluster="demo", group="orders", created_ms=1_700_000_000_000)
    assert encode(seal(owner)) == META


def test_golden_versions_are_read_and_fold() -> None:
    versions = [decode_version(CLAIM, PLACE, 1), decode_version(APPEND, PLACE, 2)]
    assert isinstance(versions[0], Claim)
    assert isinstance(versions[1], Append)
    state = fold(PLACE, versions)
    assert (state.v, state.start, state.end, state.lineage) == (2, 1000, 1340, LINEAGE)
    assert decode_owner(META, PLACE, "orders").group == "orders"


def test_the_specification_shows_the_golden_objects() -> None:
    shown = re.findall(r"```json\n(.*)\n```", SPECIFICATION.read_text())
    assert [one.encode() for one in shown] == [CLAIM, APPEND, META]


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 255))
def test_every_changed_byte_is_found(bits: int) -> None:
    for data, v in ((CLAIM, 1), (APPEND, 2)):
        for at in range(len(data)):
            other = bytearray(data)
            other[at] ^= bits
            with pytest.raises(TierObjectError) as found:
                decode_version(bytes(other), PLACE, v)
            assert found.value.key.endswith(f"/man/{v:020d}")
            assert found.value.key in str(found.value)


def test_every_cut_is_found() -> None:
    for data, v in ((CLAIM, 1), (APPEND, 2)):
        for size in range(len(data)):
            with pytest.raises(TruncatedObject, match=f"cut short at byte {size}"):
                decode_version(data[:size], PLACE, v)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (changed(CLAIM, format=2), NewerObject, "format 2, this version reads format 1"),
        (changed(CLAIM, format=2, op="gone", v="x"), NewerObject, "format 2"),
        (changed(CLAIM, op="trim"), NewerObject, "no operation 'trim'"),
        (changed(CLAIM, op="gone"), NewerObject, "no operation 'None'"),
        (changed(CLAIM, format=0), DamagedObject, "format"),
        (changed(CLAIM, format="gone"), DamagedObject, "format"),
        (changed(CLAIM, shard="another"), ForeignObject, "of shard another"),
        (changed(CLAIM, v=2), ForeignObject, "it is version 2"),
        (changed(CLAIM, v=0), DamagedObject, "v"),
        (changed(CLAIM, extra=1), DamagedObject, "unknown"),
        (changed(CLAIM, writer="gone"), DamagedObject, "writer"),
        (changed(CLAIM, writer=""), DamagedObject, "writer"),
        (changed(CLAIM, writer='a"b'), DamagedObject, "writer"),
        (changed(CLAIM, writer="a\\b"), DamagedObject, "writer"),
        (changed(CLAIM, writer="a\n"), DamagedObject, "writer"),
        (changed(CLAIM, writer="x" * 256), DamagedObject, "writer"),
        (changed(CLAIM, end=2**63), DamagedObject, "end"),
        (changed(CLAIM, end=10**400), DamagedObject, " is damaged at "),
        (changed(CLAIM, end=-1), DamagedObject, "end"),
        (changed(CLAIM, end=1000.0), DamagedObject, " is damaged at "),
        (changed(CLAIM, inc=100_000), DamagedObject, "inc"),
        (changed(CLAIM, epoch=0), DamagedObject, "epoch"),
        (changed(CLAIM, nonce="A" * 32), DamagedObject, "nonce"),
        (changed(CLAIM, nonce="a" * 32 + "\n"), DamagedObject, "nonce"),
        (changed(CLAIM, prev_crc="0"), DamagedObject, "prev_crc"),
        (changed(CLAIM, add=[]), DamagedObject, "add"),
        (changed(CLAIM, tail={"at": 1, "size": 0, "crc": "00000000"}), DamagedObject, "tail"),
        (changed(APPEND, add=[]), DamagedObject, "add"),
        (changed(APPEND, add=entry(topics=[])), DamagedObject, "topics"),
        (changed(APPEND, add=entry() * 1025), DamagedObject, "add"),
        (changed(APPEND, lineage_add=[[1]]), DamagedObject, "lineage_add"),
        (CLAIM.replace(b'"v":1', b'"v": 1'), DamagedObject, "not in canonical encoding"),
        (CLAIM + b"\n", DamagedObject, "not in canonical encoding"),
        (b'{"v":1,' + CLAIM[1:], DamagedObject, "not in canonical encoding"),
        (CLAIM.replace(b"orders", b"\\u006frders"), DamagedObject, "not in canonical encoding"),
        (CLAIM.replace(b"323923e4", b"00000000"), DamagedObject, "crc32c says 00000000"),
        (CLAIM.replace(b"orders", b"\xffrders"), DamagedObject, "UTF-8"),
        (CLAIM + CLAIM, DamagedObject, "no JSON object"),
        (b"[" * 90_000 + b"]" * 90_000, DamagedObject, "nested too deeply"),
        (b"[" * 100_000, TruncatedObject, "does not end"),
        (b"", TruncatedObject, "does not end"),
        (
            b'{"a":' + b"[" * 90_000 + b"]" * 90_000 + b"," + CLAIM[1:],
            DamagedObject,
            " is damaged at ",
        ),
        (b"[]", DamagedObject, "field"),
        (b"null", DamagedObject, "field"),
        (b" " * (MAX_OBJECT_BYTES + 1), DamagedObject, f"at most {MAX_OBJECT_BYTES}"),
    ],
)
def test_wrong_version_is_refused(data: bytes, error: type[TierObjectError], words: str) -> None:
    v = 1 if b'"v":2' not in data or b'"op":"append"' not in data else 2
    with pytest.raises(error, match=re.escape(words)) as found:
        decode_version(data, PLACE, v)
    assert type(found.value) is error
    assert str(found.value).startswith(PLACE.prefix + "man/")


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_noise_is_refused(data: bytes) -> None:
    with pytest.raises(TierObjectError):
        decode_version(data, PLACE, 1)
    with pytest.raises(TierObjectError):
        decode_owner(data, PLACE, "orders")


@pytest.mark.parametrize(
    ("data", "place", "group"),
    [
        (META, PLACE, "payments"),
        (META, Shard("other", PLACE.uid), "orders"),
        (META, Shard("demo", "other"), "orders"),
    ],
)
def test_another_owner_is_foreign(data: bytes, place: Shard, group: str) -> None:
    with pytest.raises(ForeignObject, match=f"belongs to demo/orders/{PLACE.uid}, not to"):
        decode_owner(data, place, group)


def test_owner_of_a_newer_format() -> None:
    with pytest.raises(NewerObject, match="format 3"):
        decode_owner(changed(META, format=3), PLACE, "orders")
