"""What every store must do, as tests: a class with the fixture ``store`` inherits them."""

from __future__ import annotations

import asyncio
import secrets

import pytest
from gantry_broker.tier.stores import (
    CREATED,
    Created,
    Maybe,
    Store,
    StoreRefused,
    own_prefix,
)
from gantry_protocol.tier.chain import claim, empty
from gantry_protocol.tier.damage import DamagedObject, ForeignObject
from gantry_protocol.tier.keys import ManKey, MetaKey, Pair, Shard
from gantry_protocol.tier.manifests import Version, encode
from support.patience import PATIENCE_S
from support.tier_resolution import Absent, Mine, Other, resolve

PLACE = Shard("demo", "7c9e6679-7425-40de-944b-e07fc1f90ae7")
RACERS = 16


def some_claim(epoch: int = 1, nonce: str | None = None) -> Version:
    """A first version; two of them differ in their nonce."""
    return claim(
        empty(PLACE),
        pair=Pair(epoch, 1),
        writer=f"orders-broker-{epoch}",
        nonce=secrets.token_hex(16) if nonce is None else nonce,
        at_ms=1_700_000_000_000,
        start=0,
    )


async def keys_below(
    store: Store, prefix: str, after: str | None = None, limit: int = 1000
) -> list[str]:
    found = await store.list_keys(prefix, after=after, limit=limit, timeout_s=PATIENCE_S)
    return [item.key for item in found]


async def put(store: Store, key: str, data: bytes = b"x") -> None:
    assert await store.create(key, data, timeout_s=PATIENCE_S) is CREATED


async def read(store: Store, key: str) -> bytes | None:
    return await store.get(key, max_bytes=10**9, timeout_s=PATIENCE_S)


class StoreContract:
    """Inherit, and give a fixture ``store``."""

    async def test_object_is_read_as_it_was_written(self, store: Store) -> None:
        for key, data in (("a/b", b"hello"), ("a/empty", b""), ("a/big", bytes(range(256)) * 5000)):
            await put(store, key, data)
            assert await read(store, key) == data

    async def test_object_is_created_once(self, store: Store) -> None:
        await put(store, "a/b", b"first")
        for data in (b"second", b"first"):
            again = await store.create("a/b", data, timeout_s=PATIENCE_S)
            assert isinstance(again, Maybe)
            assert "a/b" in again.reason
        assert await read(store, "a/b") == b"first"

    async def test_race_has_one_winner(self, store: Store) -> None:
        for turn in range(5):
            key = f"man/{turn}"
            bodies = [b"%d of turn %d" % (racer, turn) for racer in range(RACERS)]
            results = await asyncio.gather(
                *(store.create(key, body, timeout_s=PATIENCE_S) for body in bodies)
            )
            winners = [i for i, result in enumerate(results) if isinstance(result, Created)]
            assert len(winners) == 1
            assert await read(store, key) == bodies[winners[0]]

    async def test_nothing_is_an_answer(self, store: Store) -> None:
        assert await read(store, "no/such") is None
        assert await store.get_range("no/such", 0, 5, timeout_s=PATIENCE_S) is None
        assert await keys_below(store, "no/") == []
        assert await keys_below(store, "") == []
        await store.delete("no/such", timeout_s=PATIENCE_S)
        await put(store, "a/b/c")
        for key in ("a/b/d", "a/c", "a/b/c2", "b"):
            assert await read(store, key) is None

    async def test_ranges(self, store: Store) -> None:
        await put(store, "a/b", b"0123456789")
        for start, length, expected in (
            (0, 10, b"0123456789"),
            (0, 1, b"0"),
            (3, 4, b"3456"),
            (9, 1, b"9"),
            (8, 100, b"89"),
            (10, 1, b""),
            (500, 7, b""),
        ):
            assert await store.get_range("a/b", start, length, timeout_s=PATIENCE_S) == expected

    async def test_object_that_is_too_large_is_not_read(self, store: Store) -> None:
        await put(store, "a/b", b"0123456789")
        assert await store.get("a/b", max_bytes=10, timeout_s=PATIENCE_S) == b"0123456789"
        with pytest.raises(StoreRefused, match=r"a/b .*has 10 bytes, at most 9"):
            await store.get("a/b", max_bytes=9, timeout_s=PATIENCE_S)

    async def test_listing_is_in_byte_order_with_sizes(self, store: Store) -> None:
        keys = ["p/A", "p/a-b", "p/a.b", "p/a/1", "p/a/2/3", "p/a0", "p/b", "pq/x", "q"]
        for key in reversed(keys):
            await put(store, key, key.encode())
        listed = await store.list_keys("", timeout_s=PATIENCE_S)
        assert [item.key for item in listed] == sorted(keys)
        assert [item.size for item in listed] == [len(key) for key in sorted(keys)]
        assert await keys_below(store, "p/") == sorted(keys)[:-2]
        assert await keys_below(store, "p/a/") == ["p/a/1", "p/a/2/3"]

    async def test_listing_goes_on_after_a_key(self, store: Store) -> None:
        keys = sorted(["p/a-b", "p/a/1", "p/a/2", "p/a0", "p/b/1", "q"])
        for key in keys:
            await put(store, key)
        for limit in (1, 2, 1000):
            for after in [*keys, "p/0", "p/a", "p/a/15", "p/zz", "zz"]:
                expected = [key for key in keys if key > after][:limit]
                assert await keys_below(store, "", after, limit) == expected
        assert await keys_below(store, "p/a/", "p/a/1") == ["p/a/2"]
        assert await keys_below(store, "p/a/", "p/a/2") == []

    async def test_numbered_versions_are_listed_from_the_middle(self, store: Store) -> None:
        for v in range(1, 14):
            await put(store, PLACE.key(ManKey(v)))
        found = await keys_below(store, PLACE.prefix + "man/", PLACE.key(ManKey(9)))
        assert found == [PLACE.key(ManKey(v)) for v in range(10, 14)]

    async def test_deleting_is_idempotent(self, store: Store) -> None:
        await put(store, "a/b")
        await put(store, "a/c")
        for _ in range(2):
            await store.delete("a/b", timeout_s=PATIENCE_S)
            assert await read(store, "a/b") is None
            assert await keys_below(store, "a/") == ["a/c"]
        await put(store, "a/b", b"again")

    @pytest.mark.parametrize(
        "key",
        [
            *("", "/", "/a", "a/", "a//b", "..", "../a", "a/../b", ".", "a/./b", ".tmp/a", "a/.b"),
            *("a b", "a\\b", "a%2fb", "a\n", "a\0", "ä", "-a", "x" * 513),
        ],
    )
    async def test_key_that_could_be_another_is_refused(self, store: Store, key: str) -> None:
        with pytest.raises(StoreRefused, match="cannot be a key"):
            await store.create(key, b"x")
        with pytest.raises(StoreRefused, match="cannot be a key"):
            await store.get(key, max_bytes=10)
        with pytest.raises(StoreRefused, match="cannot be a key"):
            await store.get_range(key, 0, 1)
        with pytest.raises(StoreRefused, match="cannot be a key"):
            await store.delete(key)
        with pytest.raises(StoreRefused):
            await store.list_keys(key + "/")
        with pytest.raises(StoreRefused):
            await store.list_keys("", after=key)

    async def test_listing_of_half_a_name_is_refused(self, store: Store) -> None:
        with pytest.raises(StoreRefused, match="no folder"):
            await store.list_keys("ma")

    async def test_resolve_tells_who_wrote(self, store: Store) -> None:
        mine, other = some_claim(), some_claim()
        key = PLACE.key(ManKey(1))
        assert await resolve(store, PLACE, 1, mine.nonce, timeout_s=PATIENCE_S) == Absent()
        await put(store, key, encode(mine))
        assert isinstance(await store.create(key, encode(other), timeout_s=PATIENCE_S), Maybe)
        assert await resolve(store, PLACE, 1, mine.nonce, timeout_s=PATIENCE_S) == Mine(mine)
        assert await resolve(store, PLACE, 1, other.nonce, timeout_s=PATIENCE_S) == Other(mine)

    async def test_resolve_refuses_what_it_cannot_read(self, store: Store) -> None:
        await put(store, PLACE.key(ManKey(1)), encode(some_claim()).replace(b'"end":0', b'"end":1'))
        with pytest.raises(DamagedObject, match="man/00000000000000000001"):
            await resolve(store, PLACE, 1, "0" * 32, timeout_s=PATIENCE_S)

    async def test_prefix_has_one_owner(self, store: Store) -> None:
        first = await own_prefix(store, PLACE, "orders", 1000, timeout_s=PATIENCE_S)
        again = await own_prefix(store, PLACE, "orders", 2000, timeout_s=PATIENCE_S)
        assert first == again
        assert first.created_ms == 1000
        with pytest.raises(ForeignObject, match="demo/orders/"):
            await own_prefix(store, PLACE, "payments", 3000, timeout_s=PATIENCE_S)
        assert await keys_below(store, PLACE.prefix) == [PLACE.key(MetaKey())]

    async def test_brokers_of_a_group_may_own_at_once(self, store: Store) -> None:
        owners = await asyncio.gather(
            *(own_prefix(store, PLACE, "orders", at, timeout_s=PATIENCE_S) for at in range(3))
        )
        assert len({owner.created_ms for owner in owners}) == 1
