"""Reading from the tier: what is found, what is refused by name, and what is only late."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gantry_broker.tier.cache import Budget, SharedCache
from gantry_broker.tier.locate import Gone, Queue
from gantry_broker.tier.reader import TierReader
from gantry_broker.tier.reading import Answer, Local, Messages, Trouble, Wanted
from gantry_broker.tier.stores import Fault, MemoryStore
from gantry_protocol.records import decode_records, tags_code
from gantry_protocol.tier.footer import Footer
from gantry_protocol.tier.packs import verify_pack
from gantry_protocol.types import Offset
from support.tier_directory import TierDirectory, messages
from support.tier_logs import Sent

ORDERS = Queue("orders", 0)
FAR = Local(Offset(0), 1_000_000)


class Tier:
    """A tier of three packs with 4 messages of each queue, and a reader that has seen it."""

    def __init__(self, directory: Path) -> None:
        self.files = TierDirectory(directory)
        self.files.claim(1)
        self.packs = [self.files.append(messages("orders", 8)) for _ in range(3)]
        self.store = MemoryStore()
        for path in directory.rglob("*"):
            if path.is_file():
                self.store.objects[str(path.relative_to(directory))] = path.read_bytes()
        self.moved: list[int] = []
        self.failed: list[BaseException] = []
        self.reader = TierReader(
            self.store,
            self.files.place,
            follow_s=0.1,
            moved=lambda chain: self.moved.append(chain.v),
            failed=self.failed.append,
        )

    def name(self, pack: int) -> str:
        return self.files.place.key(self.packs[pack].key)

    def footer(self, pack: int) -> Footer:
        built = self.packs[pack]
        return verify_pack(built.data, self.files.place, built.key)

    def flip(self, pack: int, at: int) -> None:
        data = bytearray(self.store.objects[self.name(pack)])
        data[at] ^= 1
        self.store.objects[self.name(pack)] = bytes(data)

    async def caught_up(self) -> None:
        self.reader.start()
        async with asyncio.timeout(5):
            while self.reader.index.covered < self.files.state.end:
                await asyncio.sleep(0.001)

    async def read(self, offset: int, **wanted: object) -> Answer:
        asked = {"max_count": 32, "max_bytes": 1 << 20, "codes": None, **wanted}
        return await self.reader.read(ORDERS, Wanted(offset, **asked), FAR)


@pytest.fixture
async def tier(tmp_path: Path):
    made = Tier(tmp_path)
    yield made
    await made.reader.stop()
    assert made.failed == []


async def test_every_record_is_read_back(tier: Tier) -> None:
    await tier.caught_up()
    bodies, offset = [], 0
    while offset < 12:
        answer = await tier.read(offset)
        assert isinstance(answer, Messages)
        records = decode_records(answer.body)
        assert [record.queue_offset for record in records] == list(
            range(offset, answer.next_offset)
        )
        bodies += [record.body for record in records]
        offset = answer.next_offset
    assert bodies == [f"orders-{i}".encode() * 3 for _ in range(3) for i in (0, 2, 4, 6)]
    assert tier.reader.stats.found == 3
    assert tier.moved == [4]


async def test_times_are_found_by_runs(tier: Tier) -> None:
    await tier.caught_up()
    earliest = tier.reader.earliest(ORDERS)
    assert earliest == 1_700_000_000_000
    assert tier.reader.earliest(Queue("other", 0)) is None
    for timestamp, first in ((0, 0), (earliest + 6, 0), (earliest + 7, None)):
        assert tier.reader.since(ORDERS, timestamp, FAR) == first
    behind = Local(Offset(tier.files.state.end + 1), 12)
    assert tier.reader.since(ORDERS, earliest + 7, behind) == 0, "what is not known may be late"


async def test_limits_are_kept(tier: Tier) -> None:
    await tier.caught_up()
    one = await tier.read(1, max_count=1)
    assert isinstance(one, Messages)
    assert (one.count, one.next_offset) == (1, 2)
    small = await tier.read(0, max_bytes=1)
    assert isinstance(small, Messages)
    assert (small.count, small.next_offset) == (1, 1)
    none = await tier.read(0, codes=frozenset({tags_code("blue")}))
    assert none == Messages(b"", 0, 4)
    red = await tier.read(0, codes=frozenset({tags_code("red")}))
    assert isinstance(red, Messages)
    assert red.count == 4


async def test_a_run_is_fetched_once_for_all_who_wait(tier: Tier) -> None:
    await tier.caught_up()
    answers = await asyncio.gather(*(tier.read(offset) for offset in (0, 1, 2, 3, 0)))
    assert all(isinstance(answer, Messages) for answer in answers)
    assert (tier.reader.cache.misses, tier.reader.budget.used_bytes) == (1, 0)
    await tier.read(0)
    assert tier.reader.cache.hits == 1


@pytest.mark.parametrize("place", ["size", "queue offset", "body", "properties"])
async def test_a_flipped_byte_is_named_and_never_served(tier: Tier, place: str) -> None:
    await tier.caught_up()
    run = tier.footer(1).runs[0]
    at = run.pos + {"size": 2, "queue offset": 27, "body": 90, "properties": run.length - 2}[place]
    tier.flip(1, at)
    for offset in range(4, 8):
        answer = await tier.read(offset)
        assert isinstance(answer, Trouble)
        assert answer.lasting
        assert tier.name(1) in answer.reason
        assert "at byte" in answer.reason
    assert isinstance(await tier.read(3), Messages)
    assert isinstance(await tier.read(8), Messages)
    assert (tier.reader.stats.refused, tier.reader.cache.misses) == (4, 3)


async def test_a_missing_pack_is_named(tier: Tier) -> None:
    await tier.caught_up()
    del tier.store.objects[tier.name(0)]
    answer = await tier.read(0)
    assert answer == Trouble(
        f"{tier.name(0)} is missing, though the manifest lists it.", lasting=True
    )


async def test_a_damaged_footer_hides_its_own_records_only(tier: Tier) -> None:
    tier.flip(1, len(tier.packs[1].data) - 40)
    await tier.caught_up()
    index = tier.reader.index
    assert (index.readable_end, index.covered) == (tier.packs[1].key.lo, tier.files.state.end)
    refused = await tier.read(5)
    assert isinstance(refused, Trouble)
    assert refused.lasting
    assert tier.name(1) in refused.reason
    assert isinstance(await tier.read(0), Messages)
    assert isinstance(await tier.read(9), Messages)


async def test_a_store_in_trouble_is_told_apart_from_damage(tier: Tier) -> None:
    await tier.caught_up()
    tier.store.fault = lambda _operation, _key: Fault.LOST
    answer = await tier.read(0)
    assert isinstance(answer, Trouble)
    assert not answer.lasting
    assert tier.reader.stats.trouble == 1
    tier.store.fault = None
    assert isinstance(await tier.read(0), Messages)


async def test_an_index_that_is_behind_says_so_and_never_that_a_record_is_gone(tier: Tier) -> None:
    local = Local(Offset(tier.files.state.end), 12)
    answer = await tier.reader.read(ORDERS, Wanted(5, 32, 1 << 20, None), local)
    assert isinstance(answer, Trouble)
    assert not answer.lasting
    assert "read up to 0" in answer.reason
    await tier.caught_up()
    answer = await tier.reader.read(ORDERS, Wanted(5, 32, 1 << 20, None), local)
    assert isinstance(answer, Messages)


async def test_what_is_nowhere_is_answered_with_the_next_offset_that_is(tier: Tier) -> None:
    await tier.caught_up()
    local = Local(Offset(0), 40)
    for queue, offset in ((ORDERS, 12), (ORDERS, 39), (Queue("other", 0), 0)):
        assert await tier.reader.read(queue, Wanted(offset, 1, 1, None), local) == Gone(40)


async def test_new_packs_are_followed(tier: Tier) -> None:
    await tier.caught_up()
    tier.files.append([Sent("orders", 0, b"later")])
    for path in tier.files.root.rglob("*"):
        if path.is_file():
            tier.store.objects[str(path.relative_to(tier.files.root))] = path.read_bytes()
    tier.reader.poke()
    async with asyncio.timeout(5):
        while isinstance(await tier.read(12), Gone):
            await asyncio.sleep(0.001)
    assert decode_records((await tier.read(12)).body)[0].body == b"later"


async def test_a_broken_chain_is_told(tier: Tier) -> None:
    await tier.caught_up()
    name = tier.files.place.key(f"man/{tier.files.state.v + 1:020d}")
    tier.store.objects[name] = b"{"
    tier.reader.poke()
    async with asyncio.timeout(5):
        while not tier.reader.reason:
            await asyncio.sleep(0.001)
    assert name in tier.reader.reason


async def test_a_reader_that_gives_up_leaves_what_it_asked_for(tier: Tier) -> None:
    await tier.caught_up()
    held = asyncio.Event()
    honest = tier.store.get_range

    async def slow(*args: object, **options: object) -> bytes | None:
        await held.wait()
        return await honest(*args, **options)

    tier.store.get_range = slow
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await tier.read(0)
    held.set()
    assert isinstance(await tier.read(1), Messages)
    assert tier.reader.cache.misses == 1


class Piece:
    """Something of a weight."""

    def __init__(self, weight: int) -> None:
        self.weight = weight


async def test_the_cache_is_bounded_by_bytes() -> None:
    cache: SharedCache[int, Piece] = SharedCache(limit_bytes=10)

    async def load(weight: int) -> Piece:
        return Piece(weight)

    for key in range(5):
        await cache.get(key, lambda: load(4))
        assert cache.held_bytes <= 10
    await cache.get(4, lambda: load(4))
    assert (cache.hits, cache.misses) == (1, 5)
    await cache.get(9, lambda: load(50))
    assert cache.held_bytes == 50
    await cache.get(10, lambda: load(1))
    assert cache.held_bytes == 1


async def test_loads_wait_until_their_bytes_fit() -> None:
    budget = Budget(limit_bytes=10)
    order: list[str] = []

    async def load(name: str, size_bytes: int) -> None:
        async with budget.take(size_bytes):
            order.append(name)
            await asyncio.sleep(0)
            assert budget.used_bytes <= 10 or budget.used_bytes == size_bytes

    await asyncio.gather(load("a", 6), load("b", 4), load("c", 50), load("d", 10))
    assert sorted(order) == ["a", "b", "c", "d"]
    assert budget.used_bytes == 0
