"""Ambiguous outcomes by the store in memory, each ended by ``resolve``."""

from __future__ import annotations

import pytest
from gantry_broker.tier.stores import (
    CREATED,
    Maybe,
    StoreRefused,
    StoreUnavailable,
    own_prefix,
)
from gantry_broker.tier.stores.contract import Creation
from gantry_protocol.tier.keys import ManKey
from gantry_protocol.tier.manifests import encode
from support.memory_store import Fault, MemoryStore
from support.store_contract import PLACE, some_claim
from support.tier_resolution import Absent, Mine, Other, resolve

KEY = PLACE.key(ManKey(1))


class Once:
    """Strikes the first call of an operation."""

    def __init__(self, operation: str, fault: Fault) -> None:
        self._left = {operation: fault}

    def __call__(self, operation: str, key: str) -> Fault | None:
        return self._left.pop(operation, None)


@pytest.mark.parametrize(
    ("fault", "is_there"),
    [(Fault.LOST, False), (Fault.UNHEARD, True), (Fault.LATE, False), (Fault.HANG, False)],
)
async def test_ambiguous_create(fault: Fault, is_there: bool) -> None:
    store = MemoryStore(Once("create", fault))
    mine = some_claim()
    assert isinstance(await store.create(KEY, encode(mine), timeout_s=0.01), Maybe)
    found = await resolve(store, PLACE, 1, mine.nonce)
    assert found == (Mine(mine) if is_there else Absent())
    if not is_there:
        assert await store.create(KEY, encode(mine)) is CREATED
    assert store.land() == 0  # the same bytes; the slot is taken
    assert await resolve(store, PLACE, 1, mine.nonce) == Mine(mine)


async def test_late_write_meets_another() -> None:
    store = MemoryStore(Once("create", Fault.LATE))
    mine, other = some_claim(1), some_claim(2)
    assert isinstance(await store.create(KEY, encode(mine)), Maybe)
    assert await store.create(KEY, encode(other)) is CREATED
    assert store.land() == 0
    assert await resolve(store, PLACE, 1, mine.nonce) == Other(other)


async def test_late_write_lands_before_another() -> None:
    store = MemoryStore(Once("create", Fault.LATE))
    mine, other = some_claim(1), some_claim(2)
    await store.create(KEY, encode(mine))
    assert store.land() == 1
    assert isinstance(await store.create(KEY, encode(other)), Maybe)
    assert await resolve(store, PLACE, 1, other.nonce) == Other(mine)


async def test_unanswered_reads_are_no_answer() -> None:
    """ "Nothing is there" may only be said when the store said so."""
    for operation, fault in (("get", Fault.LOST), ("get", Fault.HANG), ("get", Fault.UNHEARD)):
        store = MemoryStore(Once(operation, fault))
        with pytest.raises(StoreUnavailable):
            await resolve(store, PLACE, 1, "0" * 32, timeout_s=0.01)
    store = MemoryStore(Once("list", Fault.LOST))
    with pytest.raises(StoreUnavailable):
        await store.list_keys("")


async def test_refusals() -> None:
    store = MemoryStore(lambda _operation, _key: Fault.DENIED)
    with pytest.raises(StoreRefused, match="No permission"):
        await store.create(KEY, b"x")
    with pytest.raises(StoreRefused, match="No permission"):
        await own_prefix(store, PLACE, "orders", 1)


class Overwriting(MemoryStore):
    """A store that ignores the condition, as some S3 services did."""

    async def create(self, key: str, data: bytes, *, timeout_s: float = 5.0) -> Creation:
        self.objects.pop(key, None)
        return await super().create(key, data, timeout_s=timeout_s)


async def test_store_that_overwrites_is_refused() -> None:
    with pytest.raises(StoreRefused, match="memory: overwrites objects that exist"):
        await own_prefix(Overwriting(), PLACE, "orders", 1)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNHEARD])
async def test_owning_goes_through_ambiguous_creates(fault: Fault) -> None:
    store = MemoryStore(Once("create", fault))
    if fault is Fault.LOST:
        with pytest.raises(StoreUnavailable, match=r"is not there after it was made \("):
            await own_prefix(store, PLACE, "orders", 1)
    assert (await own_prefix(store, PLACE, "orders", 1)).group == "orders"
