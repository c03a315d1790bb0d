"""The contract against stores that need no socket."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.tier.stores import MemoryStore, PosixStore, Store
from gantry_broker.tier.stores.calls import DeadlineCalls
from gantry_broker.tier.stores.objects import ObjectStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.store import LocalStore
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
