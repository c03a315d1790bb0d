"""Parts common to stores with blocking clients: checks, threads, deadlines, ``Maybe``.

A subclass writes the five calls as plain functions that raise ``StoreError``; it never sees a
deadline or the event loop, and never a key that could leave the prefix.
"""

from abc import ABC, abstractmethod
from mmap import mmap

from gantry_broker.tier.stores.calls import CallStats, DeadlineCalls
from gantry_broker.tier.stores.contract import (
    DATA_TIMEOUT_S,
    LIST_LIMIT_MAX,
    MANIFEST_TIMEOUT_S,
    Creation,
    Found,
    Maybe,
    StoreUnavailable,
    check_key,
    check_listing,
)


class PooledStore(ABC):
    """The contract over blocking calls.

    Attributes:
        url: for people; holds no secret.
    """

    def __init__(self, url: str, calls: DeadlineCalls | None = None) -> None:
        """A store named ``url``; ``calls`` None takes the default bounds."""
        self.url = url
        self._calls = DeadlineCalls("tier-store") if calls is None else calls

    @property
    def stats(self) -> CallStats:
        """Counts for the metrics."""
        return self._calls.stats

    async def create(
        self, key: str, data: bytes | mmap, *, timeout_s: float = MANIFEST_TIMEOUT_S
    ) -> Creation:
        """See the contract."""
        check_key(key)
        try:
            return await self._calls.run(
                f"Creating {key} in {self.url}", lambda: self._create(key, data), timeout_s
            )
        except StoreUnavailable as error:
            return Maybe(str(error))

    async def get(
        self, key: str, *, max_bytes: int, timeout_s: float = MANIFEST_TIMEOUT_S
    ) -> bytes | None:
        """See the contract."""
        check_key(key)
        return await self._calls.run(
            f"Reading {key} in {self.url}", lambda: self._get(key, max_bytes), timeout_s
        )

    async def get_range(
        self, key: str, start: int, length: int, *, timeout_s: float = DATA_TIMEOUT_S
    ) -> bytes | None:
        """See the contract."""
        check_key(key)
        assert start >= 0
        assert length > 0
        return await self._calls.run(
            f"Reading {key} in {self.url}", lambda: self._get_range(key, start, length), timeout_s
        )

    async def list_keys(
        self,
        prefix: str,
        *,
        after: str | None = None,
        limit: int = LIST_LIMIT_MAX,
        timeout_s: float = MANIFEST_TIMEOUT_S,
    ) -> list[Found]:
        """See the contract."""
        check_listing(prefix, after, limit)
        return await self._calls.run(
            f"Listing {prefix or 'the keys'} in {self.url}",
            lambda: self._list(prefix, after, limit),
            timeout_s,
        )

    async def delete(self, key: str, *, timeout_s: float = MANIFEST_TIMEOUT_S) -> None:
        """See the contract."""
        check_key(key)
        await self._calls.run(f"Deleting {key} in {self.url}", lambda: self._delete(key), timeout_s)

    @abstractmethod
    def _create(self, key: str, data: bytes | mmap) -> Creation: ...

    @abstractmethod
    def _get(self, key: str, max_bytes: int) -> bytes | None: ...

    @abstractmethod
    def _get_range(self, key: str, start: int, length: int) -> bytes | None: ...

    @abstractmethod
    def _list(self, prefix: str, after: str | None, limit: int) -> list[Found]: ...

    @abstractmethod
    def _delete(self, key: str) -> None: ...
