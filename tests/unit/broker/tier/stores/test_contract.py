"""The contract against stores that need no socket."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.tier.stores import PosixStore, Store, StoreRefused, open_store
from gantry_broker.tier.stores.calls import DeadlineCalls
from gantry_broker.tier.stores.late import LateStore
from gantry_broker.tier.stores.objects import ObjectStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.store import LocalStore
from support.memory_store import MemoryStore
from support.store_contract import RACERS, StoreContract, keys_below, put


def many_calls() -> DeadlineCalls:
    return DeadlineCalls("test-store", running_max=RACERS)


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestPosix(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return PosixStore(tmp_path, many_calls())


class TestLate(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        calls = many_calls()
        return LateStore(tmp_path.as_uri(), calls, lambda: PosixStore(tmp_path, calls))


async def test_a_late_store_is_opened_as_soon_as_it_can_be(tmp_path: Path) -> None:
    calls, missing = many_calls(), tmp_path / "missing"
    store = LateStore(missing.as_uri(), calls, lambda: open_store(missing.as_uri(), calls=calls))
    for _ in range(2):
        with pytest.raises(StoreRefused, match="missing is no directory: make it, or mount it"):
            await store.get("a/b", max_bytes=1)
    missing.mkdir()
    await put(store, "a/b")
    assert await keys_below(store, "") == ["a/b"]
    assert store.stats is calls.stats
    assert store.stats.calls_total == 2


class TestObstoreInADirectory(StoreContract):
    """No backend that is offered; it holds the adapter to the contract without a server."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return ObjectStore(
            LocalStore(tmp_path), tmp_path.as_uri(), lists_in_order=False, calls=many_calls()
        )


parts = st.text("aAb0.-_", min_size=1, max_size=3).filter(lambda part: part[0] not in ".-_")
keys = st.lists(parts, min_size=1, max_size=3).map("/".join)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sets(keys, max_size=12), st.data())
async def test_pages_of_a_listing_make_the_whole(
    tmp_path_factory: pytest.TempPathFactory, some: set[str], data: st.DataObject
) -> None:
    """Page after page, nothing is left out and nothing comes twice, whatever the names."""
    wanted = sorted(key for key in some if not any(other.startswith(key + "/") for other in some))
    limit = data.draw(st.integers(1, 5))
    for store in (MemoryStore(), PosixStore(tmp_path_factory.mktemp("store"))):
        for key in wanted:
            await put(store, key)
        found: list[str] = []
        while page := await keys_below(store, "", found[-1] if found else None, limit):
            assert len(page) <= limit
            found += page
        assert found == wanted
