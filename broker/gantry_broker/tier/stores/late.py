"""A store that is opened by its first call, and again by the next one while that fails.

Rule protected: whatever is wrong with where the tier should be (a URL that is none, a directory
that is not mounted yet), the broker starts and serves its clients; uploads wait, and say why. What
it refuses: to remember a failure. What a person mends is found by the next call.
"""

from collections.abc import Callable
from mmap import mmap

from gantry_protocol.errors import ConfigError

from gantry_broker.tier.stores.calls import CallStats, DeadlineCalls
from gantry_broker.tier.stores.contract import (
    DATA_TIMEOUT_S,
    LIST_LIMIT_MAX,
    MANIFEST_TIMEOUT_S,
    Creation,
    Found,
    Store,
    StoreRefused,
)


class LateStore:
    """The contract over a store that may not be there yet.

    Attributes:
        url: for people; holds no secret.
    """

    def __init__(self, url: str, calls: DeadlineCalls, opening: Callable[[], Store]) -> None:
        """Nothing is opened yet.

        Args:
            url: for people.
            calls: those that ``opening`` gives the store.
            opening: makes the store, or raises ``ConfigError``.
        """
        self.url = url
        self._calls = calls
        self._opening = opening
        self._opened: Store | None = None

    @property
    def stats(self) -> CallStats:
        """Counts for the metrics."""
        return self._calls.stats

    async def create(
        self, key: str, data: bytes | mmap, *, timeout_s: float = MANIFEST_TIMEOUT_S
    ) -> Creation:
        """See the contract."""
        return await self._store().create(key, data, timeout_s=timeout_s)

    async def get(
        self, key: str, *, max_bytes: int, timeout_s: float = MANIFEST_TIMEOUT_S
    ) -> bytes | None:
        """See the contract."""
        return await self._store().get(key, max_bytes=max_bytes, timeout_s=timeout_s)

    async def get_range(
        self, key: str, start: int, length: int, *, timeout_s: float = DATA_TIMEOUT_S
    ) -> bytes | None:
        """See the contract."""
        return await self._store().get_range(key, start, length, timeout_s=timeout_s)

    async def list_keys(
        self,
        prefix: str,
        *,
        after: str | None = None,
        limit: int = LIST_LIMIT_MAX,
        timeout_s: float = MANIFEST_TIMEOUT_S,
    ) -> list[Found]:
        """See the contract."""
        return await self._store().list_keys(prefix, after=after, limit=limit, timeout_s=timeout_s)

    async def delete(self, key: str, *, timeout_s: float = MANIFEST_TIMEOUT_S) -> None:
        """See the contract."""
        await self._store().delete(key, timeout_s=timeout_s)

    def _store(self) -> Store:
        if self._opened is None:
            try:
                self._opened = self._opening()
            except ConfigError as error:
                raise StoreRefused(str(error)) from error
        return self._opened
