"""Reading from the tier: what is found, what is refused by name, and what is only late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from gantry_broker.tier import reader
from gantry_broker.tier.cache import Budget, SharedCache
from gantry_broker.tier.core.locate import Gone, Queue
from gantry_broker.tier.core.losses import Patience
from gantry_broker.tier.core.reading import Answer, Local, Messages, Trouble, Wanted
from gantry_broker.tier.reader import TierReader
from gantry_protocol.records import decode_records, tags_code
from gantry_protocol.tier.footer import Footer
from gantry_protocol.tier.packs import verify_pack
from gantry_protocol.types import Offset
from msgspec import structs
from support.memory_store import Fault, MemoryStore
from support.patience import PATIENCE_S
from support.tier_directory import TierDirectory, messages
from support.tier_logs import Sent

ORDERS = Queue("orders", 0)
PATIENCE = Patience(first_s=0.002, last_s=0.01, looks=4, over_s=0.02, removed_s=0.005)
FAR = Local(Offset(0), 1_000_000)


class Tier:
    """A tier of three packs with 4 messages of each queue, and a reader that has seen it."""

    def __init__(self, directory: Path, patience: Patience = PATIENCE) -> None:
        self.files = TierDirectory(directory)
        self.files.claim(1)
        self.packs = [self.files.append(messages("orders", 8)) for _ in range(3)]
        self.store = MemoryStore()
        self.show()
        self.moved: list[int] = []
        self.failed: list[BaseException] = []
        self.reader = TierReader(
            self.store,
            self.files.place,
            follow_s=0.1,
            moved=lambda chain: self.moved.append(chain.v),
            failed=self.failed.append,
            patience=patience,
        )

    def show(self) -> None:
        """Everything that was written is in the store."""
        for path in self.files.root.rglob("*"):
            if path.is_file():
                self.store.objects[str(path.relative_to(self.files.root))] = path.read_bytes()

    def name(self, pack: int) -> str:
        return self.files.place.key(self.packs[pack].key)

    def footer(self, pack: int) -> Footer:
        built = self.packs[pack]
        return verify_pack(built.data, self.files.place, built.key)

    def flip(self, pack: int, at: int) -> None:
        data = bytearray(self.store.objects[self.name(pack)])
        data[at] ^= 1
        self.store.objects[self.name(pack)] = bytes(data)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.001)

    async def caught_up(self) -> None:
        self.reader.start()
        async with asyncio.timeout(PATIENCE_S):
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


@pytest.fixture
async def asking(tmp_path: Path):
    """A tier whose reader asks for the oldest pack each time."""
    made = Tier(tmp_path, structs.replace(PATIENCE, oldest_s=0.0))
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


async def test_a_pack_that_goes_missing_is_named_and_asked_for_again(tier: Tier) -> None:
    await tier.caught_up()
    data = tier.store.objects.pop(tier.name(1))
    for _ in range(2):
        answer = await tier.read(4)
        assert isinstance(answer, Trouble)
        assert (answer.lasting, tier.name(1) in answer.reason) == (False, True)
        assert tier.reader.readable.complaint.startswith("1 of 3 packs cannot be read")
    assert isinstance(await tier.read(0), Messages)
    assert isinstance(await tier.read(8), Messages)
    tier.store.objects[tier.name(1)] = data
    await tier.until(lambda: not tier.reader.readable.complaint)
    assert isinstance(await tier.read(4), Messages)


@pytest.mark.parametrize("trouble", ["missing", "damaged", "cut short", "refused"])
async def test_a_footer_that_cannot_be_read_at_first_is_read_later(
    tier: Tier, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds is refused meanwhile, never skipped; the rest is served."""
    monkeypatch.setattr(reader, "TROUBLE_S", 0.01)
    sound = tier.store.objects[tier.name(1)]
    if trouble == "refused":
        name = tier.name(1)
        tier.store.fault = lambda _, key: Fault.DENIED if key == name else None
    elif trouble == "missing":
        del tier.store.objects[tier.name(1)]
    elif trouble == "damaged":
        tier.flip(1, len(sound) - 40)
    else:
        tier.store.objects[tier.name(1)] = sound[:-50]
    await tier.caught_up()
    for offset in (0, 3, 8, 11):
        assert isinstance(await tier.read(offset), Messages), offset
    for offset in (4, 7):
        answer = await tier.read(offset)
        assert isinstance(answer, Trouble)
        assert answer.lasting == (trouble in ("damaged", "cut short"))
        assert tier.name(1) in answer.reason
    assert tier.name(1) in tier.reader.readable.complaint
    assert not tier.reader.readable.is_shortened
    tier.store.objects[tier.name(1)], tier.store.fault = sound, None
    await tier.until(lambda: not tier.reader.readable.complaint)
    for offset in range(12):
        answer = await tier.read(offset)
        assert isinstance(answer, Messages)
        assert decode_records(answer.body)[0].queue_offset == offset
    assert tier.reader.index.readable_end == tier.files.state.end


async def test_packs_that_are_not_given_in_turn_are_not_gone_on_without(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one that is refused again and again is."""
    monkeypatch.setattr(reader, "TROUBLE_S", 0.1)
    left = {tier.name(pack): (pack + 1) * (reader.STUCK_TIMES - 1) for pack in range(3)}

    def fault(_: str, key: str) -> Fault | None:
        left[key] = left.get(key, 0) - 1
        return Fault.LOST if left[key] >= 0 else None

    tier.store.fault = fault
    tier.reader.start()
    await tier.until(lambda: tier.reader.index.covered >= tier.files.state.end)
    assert max(left.values()) < 0
    assert tier.reader.index.losses.asked_again == 0
    assert tier.reader.index.readable_end == tier.files.state.end


async def test_a_hole_in_the_middle_is_never_skipped(tier: Tier) -> None:
    """However long it lasts: only the oldest objects can be removed by a rule of the bucket."""
    del tier.store.objects[tier.name(1)]
    await tier.caught_up()
    await tier.until(lambda: tier.reader.index.losses.asked_again >= 3 * PATIENCE.looks)
    answer = await tier.read(5)
    assert isinstance(answer, Trouble)
    assert tier.reader.index.readable_from == 0
    assert tier.reader.index.readable_end == tier.packs[1].key.lo, "nothing from it on is trimmed"


@pytest.mark.parametrize("when", ["before the start", "while it runs"])
async def test_when_the_oldest_packs_were_removed_the_rest_is_served(tier: Tier, when: str) -> None:
    """First nobody is sent on; once it is sure, readers go on at the next offset that exists."""
    if when == "while it runs":
        await tier.caught_up()
    sound = {tier.name(pack): tier.store.objects.pop(tier.name(pack)) for pack in (0, 1)}
    if when == "before the start":
        await tier.caught_up()
    first = await tier.read(0)
    assert isinstance(first, Trouble)
    assert not first.lasting
    assert isinstance(await tier.read(8), Messages)
    assert tier.reader.first(ORDERS, 0, FAR) == 0, "it may come back"
    await tier.until(lambda: tier.reader.readable.is_shortened)
    assert tier.reader.first(ORDERS, 0, FAR) == 8
    assert [await tier.read(offset) for offset in (0, 3, 7)] == [Gone(8)] * 3
    assert isinstance(await tier.read(8), Messages)
    index = tier.reader.index
    assert index.readable_from == tier.packs[2].key.lo
    assert index.readable_end == tier.files.state.end
    assert tier.reader.since(ORDERS, 0, FAR) == 8
    tier.store.objects.update(sound)
    await tier.until(lambda: not tier.reader.readable.complaint)
    await tier.until(lambda: tier.reader.index.covered == tier.files.state.end)
    assert isinstance(await tier.read(0), Messages)


async def test_a_look_that_lacks_the_beginning_is_followed_by_others(tier: Tier) -> None:
    """Though nobody asks for it, and what the first look was for is there again."""
    await tier.caught_up()
    sound = tier.store.objects.pop(tier.name(2))
    assert isinstance(await tier.read(8), Trouble)
    del tier.store.objects[tier.name(0)]
    await tier.until(lambda: tier.reader.index.losses.in_doubt)
    tier.store.objects[tier.name(2)] = sound
    await tier.until(lambda: tier.reader.readable.is_shortened)
    assert await tier.read(0) == Gone(4)
    assert isinstance(await tier.read(8), Messages)


async def test_removed_packs_are_found_though_nobody_asks_the_store_for_them(asking: Tier) -> None:
    """What everybody reads is in the cache; then all that was left is gone, too."""
    await asking.caught_up()
    for offset in (0, 4, 8):
        assert isinstance(await asking.read(offset), Messages)
    sound = {asking.name(pack): asking.store.objects.pop(asking.name(pack)) for pack in (0, 1)}
    await asking.until(lambda: asking.reader.readable.is_shortened)
    assert await asking.read(0) == Gone(8)
    sound[asking.name(2)] = asking.store.objects.pop(asking.name(2))
    await asking.until(lambda: asking.name(2) in asking.reader.readable.complaint)
    assert not asking.reader.readable.is_shortened
    asking.store.objects.update(sound)
    await asking.until(lambda: not asking.reader.readable.complaint)
    await asking.until(lambda: asking.reader.index.covered == asking.files.state.end)
    assert isinstance(await asking.read(0), Messages)


async def test_an_oldest_pack_that_is_damaged_is_told_and_one_without_an_answer_is_not(
    asking: Tier,
) -> None:
    await asking.caught_up()
    assert isinstance(await asking.read(0), Messages)
    asked = 0

    def denied(_: str, key: str) -> Fault | None:
        nonlocal asked
        asked += key == asking.name(0)
        return Fault.DENIED if key == asking.name(0) else None

    asking.store.fault = denied
    await asking.until(lambda: asked > 3)
    assert (asking.reader.readable.complaint, asking.reader.reason) == ("", "")
    assert isinstance(await asking.read(0), Messages)
    sound = asking.store.objects[asking.name(0)]
    asking.flip(0, len(sound) - 40)
    asking.store.fault = None
    await asking.until(lambda: asking.name(0) in asking.reader.readable.complaint)
    answer = await asking.read(0)
    assert isinstance(answer, Trouble)
    assert answer.lasting
    asking.store.objects[asking.name(0)] = sound
    await asking.until(lambda: not asking.reader.readable.complaint)
    assert isinstance(await asking.read(0), Messages)


async def test_an_empty_listing_proves_nothing(tier: Tier) -> None:
    """A mount that vanished, or rights that were taken away, are not a rule of the bucket."""
    await tier.caught_up()
    for pack in range(3):
        del tier.store.objects[tier.name(pack)]
    answer = await tier.read(0)
    await tier.until(lambda: tier.reader.index.losses.asked_again >= 3 * PATIENCE.looks)
    answer = await tier.read(0)
    assert isinstance(answer, Trouble)
    assert tier.reader.index.readable_from == 0


async def test_when_the_oldest_versions_were_removed_the_rest_is_served(tier: Tier) -> None:
    names = [tier.files.place.key(f"man/{v:020d}") for v in (1, 2, 3)]
    sound = {name: tier.store.objects.pop(name) for name in [*names, tier.name(0), tier.name(1)]}
    await tier.caught_up()
    assert isinstance(await tier.read(8), Messages), "of the versions that are there"
    answer = await tier.read(5)
    assert isinstance(answer, Trouble)
    assert "versions up to 3 are missing" in answer.reason
    assert tier.reader.index.readable_end == 0, "nothing is trimmed while it is not sure"
    await tier.until(lambda: tier.reader.readable.is_shortened)
    assert await tier.read(5) == Gone(8)
    assert tier.reader.index.readable_end == tier.files.state.end
    tier.store.objects.update(sound)
    await tier.until(lambda: not tier.reader.readable.complaint)
    await tier.until(lambda: tier.reader.index.covered == tier.files.state.end)
    assert isinstance(await tier.read(0), Messages)


async def test_a_reader_that_fell_behind_a_rule_of_the_bucket_goes_on_from_what_is_left(
    tier: Tier,
) -> None:
    """All versions that it has read are gone, and some that it has not: as after a start."""
    await tier.caught_up()
    tier.packs += [tier.files.append(messages("orders", 8)) for _ in range(3)]
    tier.show()
    for v in range(1, 7):
        del tier.store.objects[tier.files.place.key(f"man/{v:020d}")]
    for pack in range(5):
        del tier.store.objects[tier.name(pack)]
    await tier.until(lambda: tier.reader.index.covered == tier.files.state.end)
    assert isinstance(await tier.read(20), Messages)
    assert isinstance(await tier.read(3), Trouble)
    await tier.until(lambda: tier.reader.readable.is_shortened)
    assert await tier.read(3) == Gone(20)


async def test_a_version_that_is_hidden_is_no_reason_to_begin_anew(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions are there: nothing was removed by its age."""
    monkeypatch.setattr(reader, "TROUBLE_S", 0.1)
    await tier.caught_up()
    tier.files.append(messages("orders", 8))
    tier.files.append(messages("orders", 8))
    tier.show()
    for v in (4, 5):
        del tier.store.objects[tier.files.place.key(f"man/{v:020d}")]
    await tier.until(lambda: "T1: it is missing" in tier.reader.reason)
    assert tier.reader.index.chain.v == 4
    assert isinstance(await tier.read(0), Messages)
    tier.show()
    await tier.until(lambda: tier.reader.index.covered == tier.files.state.end)


async def test_a_reader_far_behind_catches_up_though_calls_fail_now_and_then(tier: Tier) -> None:
    """Each look goes on where the last one failed, and soon."""
    for _ in range(60):
        tier.files.append(messages("orders", 2))
    tier.show()
    calls = 0

    def every_30th(operation: str, key: str) -> Fault | None:
        nonlocal calls
        calls += 1
        return Fault.LOST if calls % 30 == 0 else None

    tier.store.fault = every_30th
    await tier.caught_up()


async def test_an_empty_listing_proves_nothing_where_the_oldest_versions_are_gone(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a claim is left, so no pack is known; it says what was removed while it is listed."""
    tier.files.claim(2)
    name = tier.files.place.key(f"man/{5:020d}")
    tier.store.objects = {name: (tier.files.root / name).read_bytes()}
    looks = 0

    async def shows_nothing(*_: object) -> None:
        nonlocal looks
        looks += 1

    with monkeypatch.context() as patch:
        patch.setattr(reader, "first_version", shows_nothing)
        await tier.caught_up()
        await tier.until(lambda: looks >= 3 * PATIENCE.looks)
        assert isinstance(await tier.read(5), Trouble)
        assert tier.reader.index.readable_from == 0
    await tier.until(lambda: tier.reader.readable.is_shortened)


@pytest.mark.parametrize("meanwhile", ["read anew", "removed"])
async def test_a_pack_that_is_not_there_any_more_when_its_index_is_not_either(
    tier: Tier, meanwhile: str
) -> None:
    """A read outlasts the index that it began with; what it finds is no news of the next one."""
    await tier.caught_up()
    held, honest = asyncio.Event(), tier.store.get_range

    async def slow(*args: object, **options: object) -> bytes | None:
        await held.wait()
        return await honest(*args, **options)

    tier.store.get_range = slow
    reading = asyncio.create_task(tier.read(0))
    await asyncio.sleep(0.01)
    del tier.store.objects[tier.name(0)]
    if meanwhile == "read anew":
        tier.reader._begin_again(removed_below=0)
    else:
        index = tier.reader.index
        index.losses.removed_below = tier.packs[1].key.lo
        index.remove_below(tier.packs[1].key.lo)
    held.set()
    answer = await reading
    assert isinstance(answer, Trouble)
    assert tier.name(0) in answer.reason
    assert tier.reader.index.losses.packs == {}


async def test_a_version_that_is_missing_in_the_middle_hides_what_is_behind_it_only(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TROUBLE_S", 0.01)
    monkeypatch.setattr(reader, "SILENT_S", 0.0)
    name = tier.files.place.key(f"man/{3:020d}")
    sound = tier.store.objects.pop(name)
    tier.reader.start()
    await tier.until(lambda: "version 4" in tier.reader.readable.complaint)
    await tier.until(lambda: not tier.reader.index.waiting)
    assert isinstance(await tier.read(0), Messages)
    behind = Local(Offset(tier.files.state.end), 12)
    answer = await tier.reader.read(ORDERS, Wanted(5, 32, 1 << 20, None), behind)
    assert isinstance(answer, Trouble)
    assert not answer.lasting
    tier.store.objects[name] = sound
    await tier.until(lambda: tier.reader.index.covered == tier.files.state.end)
    await tier.until(lambda: not tier.reader.readable.complaint)


async def test_packs_without_any_version_are_not_an_empty_tier(tier: Tier) -> None:
    for name in [one for one in tier.store.objects if "/man/" in one]:
        del tier.store.objects[name]
    tier.reader.start()
    await tier.until(lambda: "holds no manifest version, though" in tier.reader.reason)


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


async def test_of_damaged_runs_a_bounded_number_is_remembered(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "DAMAGED_MAX", 1)
    await tier.caught_up()
    for pack in (0, 1):
        tier.flip(pack, tier.footer(pack).runs[0].pos + 90)
        assert isinstance(await tier.read(4 * pack), Trouble)
    assert [tier.files.place.key(key) for key, _ in tier.reader._damaged] == [tier.name(1)]


async def test_a_store_that_does_not_answer_is_complained_of_only_if_that_lasts(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TROUBLE_S", 0.01)
    await tier.caught_up()
    tier.store.fault = lambda _operation, _key: Fault.LOST
    tier.reader.poke()
    await tier.until(lambda: bool(tier.reader.reason))
    assert not tier.reader.readable.complaint
    monkeypatch.setattr(reader, "SILENT_S", 0.02)
    await tier.until(lambda: "is not followed" in tier.reader.readable.complaint)


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


async def test_nothing_is_deleted_by_what_is_remembered_of_a_store_that_shows_nothing(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory was unmounted while it was followed."""
    monkeypatch.setattr(reader, "TROUBLE_S", 0.01)
    await tier.caught_up()
    await tier.until(lambda: tier.reader.readable_end == tier.files.state.end)
    tier.reader._seen = lambda: "this broker has read versions there"
    objects, tier.store.objects = tier.store.objects, {}
    tier.reader.poke()
    await tier.until(lambda: "shows no version from 4 on" in tier.reader.reason)
    assert tier.reader.readable_end == 0
    assert isinstance(await tier.read(0), Trouble)
    tier.store.objects = objects
    await tier.until(lambda: tier.reader.readable_end == tier.files.state.end)


async def test_new_packs_are_followed(tier: Tier) -> None:
    await tier.caught_up()
    tier.files.append([Sent("orders", 0, b"later")])
    for path in tier.files.root.rglob("*"):
        if path.is_file():
            tier.store.objects[str(path.relative_to(tier.files.root))] = path.read_bytes()
    tier.reader.poke()
    async with asyncio.timeout(PATIENCE_S):
        while isinstance(await tier.read(12), Gone):
            await asyncio.sleep(0.001)
    assert decode_records((await tier.read(12)).body)[0].body == b"later"


async def test_a_broken_chain_is_told(tier: Tier) -> None:
    await tier.caught_up()
    name = tier.files.place.key(f"man/{tier.files.state.v + 1:020d}")
    tier.store.objects[name] = b"{"
    tier.reader.poke()
    async with asyncio.timeout(PATIENCE_S):
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
