"""An object store in the world: calls that fail, answers that are lost, puts that land late.

The store's side of a call happens in the world and does not end with the process that asked: a put
of a dead, frozen or deposed broker may land long after. What a store promises is kept: a create
writes a key at most once, a read sees every earlier write, a listing is sorted and whole.

What no store should do is done on demand (``bucket_losses``): objects are hidden, damaged, removed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
)
from sim.kernel.world import MS, SECOND
from sim.product.machines import current

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from sim.kernel.world import World


@dataclass
class BucketOptions:
    """How slow and how unkind the store is; rates are shares of calls.

    Attributes:
        latency_us: least and greatest time each way.
        failure: nothing is applied, and the caller learns only that it failed.
        conflict: nothing is applied, and the answer is "maybe" (409).
        lost_answer: applied, and the caller learns only that it failed.
        odd_answer: applied, and the answer is "maybe" (a retry that met its own write).
        late: the caller's deadline passes; the put lands up to ``late_us`` after that.
        outage_every_us: mean time between outages, in which every call fails; None for none.
    """

    latency_us: tuple[int, int] = (1 * MS, 10 * MS)
    failure: float = 0.0
    conflict: float = 0.0
    lost_answer: float = 0.0
    odd_answer: float = 0.0
    late: float = 0.0
    late_us: int = 5 * SECOND
    outage_every_us: int | None = None
    outage_us: int = 3 * SECOND

    @classmethod
    def swarm(cls, rng: Random) -> BucketOptions:
        """A store of drawn unkindness."""

        def rate() -> float:
            return rng.choice([0.0, 0.02, 0.1, 0.25])

        low = rng.choice([1, 5, 20]) * MS
        return cls(
            latency_us=(low, low * rng.choice([2, 5])),
            failure=rate(),
            conflict=rate(),
            lost_answer=rate(),
            odd_answer=rate(),
            late=rate(),
            late_us=rng.choice([500, 3_000, 8_000]) * MS,
            outage_every_us=rng.choice([None, None, 4 * SECOND]),
            outage_us=rng.choice([300, 3_000]) * MS,
        )

    def calm(self) -> None:
        """From now on every call is answered, and soon."""
        self.latency_us = (1 * MS, 5 * MS)
        self.failure = self.conflict = self.lost_answer = self.odd_answer = self.late = 0.0
        self.outage_every_us = None


class Bucket:
    """The objects, and who is told of each change.

    Attributes:
        objects: as they were written, by key, in the order of writing.
        put: called before an object is written, with its key and bytes; raises ``Violation``.
        deleted: called before one is deleted.
        is_away: nothing is shown, and nothing taken.
        hidden: keys that are not shown, though they cannot be written.
        removed: keys of objects that are gone.
        damaged: what is given out instead of the object, by key.
    """

    def __init__(self, world: World, options: BucketOptions) -> None:
        self.world = world
        self.options = options
        self.objects: dict[str, bytes] = {}
        self.put: Callable[[str, bytes], None] = lambda _key, _data: None
        self.deleted: Callable[[str], None] = lambda _key: None
        self.is_away = False
        self.hidden: Counter[str] = Counter()
        self.removed: set[str] = set()
        self.damaged: dict[str, bytes] = {}
        self.rng = world.stream("bucket")
        self._down_until_us = 0
        self._plan_outage()

    def _plan_outage(self) -> None:
        every_us = self.options.outage_every_us
        if every_us is not None:
            self.world.after(int(self.rng.expovariate(1 / every_us)), self._outage)

    def _outage(self) -> None:
        if self.options.outage_every_us is not None:
            self.world.count("bucket.outage")
            self._down_until_us = self.world.now_us + self.rng.randint(0, self.options.outage_us)
            self._plan_outage()

    @property
    def is_down(self) -> bool:
        """Whether every call fails now."""
        return self.world.now_us < self._down_until_us

    def latency_s(self) -> float:
        """One way."""
        return self.rng.randint(*self.options.latency_us) / 1e6

    def write(self, key: str, data: bytes) -> bool:
        """Write it unless it is there; whether it was written."""
        if self.is_away or (key in self.objects and key not in self.removed):
            return False
        self.put(key, data)
        self.objects[key] = data
        self.removed.discard(key)
        return True

    def read(self, key: str) -> bytes | None:
        """What a client is given; None where nothing is shown."""
        if self.is_away or self.hidden[key] or key in self.removed:
            return None
        return self.damaged.get(key, self.objects.get(key))

    def restore(self, *, removed: bool) -> None:
        """What was hidden or damaged is as it was written; with ``removed`` that, too."""
        self.is_away = False
        self.hidden.clear()
        self.damaged.clear()
        if removed:
            self.removed.clear()

    def fate(self) -> str:
        """What becomes of a create."""
        options = self.options
        rates = {
            "failure": options.failure,
            "conflict": options.conflict,
            "lost-answer": options.lost_answer,
            "odd-answer": options.odd_answer,
            "late": options.late,
            "fine": 1.0,
        }
        return self.rng.choices(list(rates), list(rates.values()))[0]


class BucketStore:
    """A broker's client of the bucket; ``gantry_broker.tier.stores.contract.Store``."""

    url = "s3://bucket"

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def create(
        self, key: str, data: Any, *, timeout_s: float = MANIFEST_TIMEOUT_S
    ) -> Creation:
        bucket, data = self._bucket, bytes(data)
        fate, world = bucket.fate(), bucket.world
        world.count(f"bucket.{fate}")
        if fate == "late":
            late_us = int(timeout_s * SECOND) + bucket.rng.randint(0, bucket.options.late_us)
            world.after(late_us, bucket.write, key, data)
            await asyncio.sleep(timeout_s)
            return Maybe("its deadline passed")
        arrives: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            taken = not bucket.is_down and fate not in ("failure", "conflict")
            written = taken and bucket.write(key, data)
            arrives.get_loop().call_soon(_settle, arrives, written)

        world.after(int(bucket.latency_s() * SECOND), arrive)
        written = await arrives
        await asyncio.sleep(bucket.latency_s())
        if fate in ("failure", "lost-answer"):
            return Maybe("the connection was lost")
        return CREATED if written and fate == "fine" else Maybe("it is there")

    async def _answer(self) -> None:
        bucket = self._bucket
        fails = bucket.rng.random() < bucket.options.failure
        await asyncio.sleep(bucket.latency_s())
        if fails or bucket.is_down:
            raise StoreUnavailable("The store answered 503.")

    async def get(
        self, key: str, *, max_bytes: int, timeout_s: float = MANIFEST_TIMEOUT_S
    ) -> bytes | None:
        await self._answer()
        data = self._bucket.read(key)
        if data is not None and len(data) > max_bytes:
            raise StoreRefused(f"{key} has {len(data)} bytes.")
        await asyncio.sleep(self._bucket.latency_s())
        return data

    async def get_range(
        self, key: str, start: int, length: int, *, timeout_s: float = DATA_TIMEOUT_S
    ) -> bytes | None:
        await self._answer()
        data = self._bucket.read(key)
        await asyncio.sleep(self._bucket.latency_s())
        return None if data is None else data[start : start + length]

    async def list_keys(
        self,
        prefix: str,
        *,
        after: str | None = None,
        limit: int = LIST_LIMIT_MAX,
        timeout_s: float = MANIFEST_TIMEOUT_S,
    ) -> list[Found]:
        await self._answer()
        keys = sorted(
            key
            for key in self._bucket.objects
            if key.startswith(prefix) and (after is None or key > after)
        )
        shown = ((key, self._bucket.read(key)) for key in keys)
        found = [Found(key, len(data)) for key, data in shown if data is not None][:limit]
        await asyncio.sleep(self._bucket.latency_s())
        return found

    async def delete(self, key: str, *, timeout_s: float = MANIFEST_TIMEOUT_S) -> None:
        await self._answer()
        if key in self._bucket.objects:
            self._bucket.deleted(key)
            del self._bucket.objects[key]
        await asyncio.sleep(self._bucket.latency_s())


def _settle(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


def open_store(url: str, *_: Any, **__: Any) -> BucketStore:
    """``gantry_broker.tier.stores.opening.open_store``: the world's bucket."""
    return BucketStore(current().machine.network.bucket)
