"""A store in memory: for tests, and for whoever wants to see the contract without a store.

Deterministic: nothing happens but at calls, and a fault strikes where the test's hook says. Late
writes wait until :meth:`MemoryStore.land`.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from enum import Enum, auto
from mmap import mmap

from gantry_broker.tier.stores.contract import (
    CREATED,
    DATA_TIMEOUT_S,
    LIST_LIMIT_MAX,
    MANIFEST_TIMEOUT_S,
    Creation,
    Found,
    Maybe,
    StoreRefused,
    StoreUnavailable,
    check_key,
    check_listing,
)


class Fault(Enum):
    """The fault of one call."""

    LOST = auto()  # the request never arrives
    UNHEARD = auto()  # applied, the answer is lost
    LATE = auto()  # as LOST for the caller, and applied when the test says so
    HANG = auto()  # not applied; nothing until the deadline
    DENIED = auto()  # no permission


FaultHook = Callable[[str, str], Fault | None]


class MemoryStore:
    """A dictionary that keeps the contract.

    Attributes:
        url: for people.
        objects: what is stored; tests may look, and damage it.
        fault: called with operation ("create", "get", "list", "delete") and key before each call.
    """

    def __init__(self, fault: FaultHook | None = None) -> None:
        """An empty store; ``fault`` None means that all goes well."""
        self.url = "memory:"
        self.objects: dict[str, bytes] = {}
        self.fault = fault
        self._late: list[tuple[str, bytes]] = []

    async def create(
        self, key: str, data: bytes | mmap, *, timeout_s: float = MANIFEST_TIMEOUT_S
    ) -> Creation:
        """See the contract."""
        check_key(key)
        try:
            fault = await self._strike("create", key, timeout_s)
        except StoreUnavailable as error:
            return Maybe(str(error))
        if fault is Fault.LATE:
            self._late.append((key, bytes(data)))
            return Maybe(f"Creating {key} had no answer.")
        is_new = self._make(key, bytes(data))
        if fault is Fault.UNHEARD:
            return Maybe(f"Creating {key} had no answer.")
        return CREATED if is_new else Maybe(f"{key} exists.")

    def land(self) -> int:
        """Apply the late writes, where nothing is yet; how many made an object."""
        late, self._late = self._late, []
        return sum(self._make(key, data) for key, data in late)

    def _make(self, key: str, data: bytes) -> bool:
        if key in self.objects:
            return False
        self.objects[key] = data
        return True

    async def get(
        self, key: str, *, max_bytes: int, timeout_s: float = MANIFEST_TIMEOUT_S
    ) -> bytes | None:
        """See the contract."""
        check_key(key)
        await self._answered("get", key, timeout_s)
        data = self.objects.get(key)
        if data is not None and len(data) > max_bytes:
            raise StoreRefused(f"{key} has {len(data)} bytes, at most {max_bytes} are read.")
        return data

    async def get_range(
        self, key: str, start: int, length: int, *, timeout_s: float = DATA_TIMEOUT_S
    ) -> bytes | None:
        """See the contract."""
        check_key(key)
        assert start >= 0
        assert length > 0
        await self._answered("get", key, timeout_s)
        data = self.objects.get(key)
        return None if data is None else data[start : start + length]

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
        await self._answered("list", prefix, timeout_s)
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        begin = 0 if after is None else bisect_right(keys, after)
        return [Found(key, len(self.objects[key])) for key in keys[begin : begin + limit]]

    async def delete(self, key: str, *, timeout_s: float = MANIFEST_TIMEOUT_S) -> None:
        """See the contract."""
        check_key(key)
        fault = await self._strike("delete", key, timeout_s)
        self.objects.pop(key, None)
        if fault is Fault.UNHEARD:
            raise StoreUnavailable(f"Deleting {key} had no answer.")

    async def _answered(self, operation: str, key: str, timeout_s: float) -> None:
        """A call that changes nothing: an answer that is lost is a call that failed."""
        if await self._strike(operation, key, timeout_s) is not None:
            raise StoreUnavailable(f"Asking for {key} had no answer.")

    async def _strike(self, operation: str, key: str, timeout_s: float) -> Fault | None:
        """Faults that end the call before anything is applied; the others are returned."""
        await asyncio.sleep(0)
        fault = None if self.fault is None else self.fault(operation, key)
        if fault is Fault.DENIED:
            raise StoreRefused(f"No permission for {key}.")
        if fault is Fault.HANG:
            await asyncio.sleep(timeout_s)
        if fault in (Fault.LOST, Fault.HANG):
            raise StoreUnavailable(f"{key} had no answer within {timeout_s:g} s.")
        return fault
