from __future__ import annotations

import msgspec
import pytest
from gantry_broker.tier.stores import StoreUnavailable
from gantry_broker.tier.stores.packs import read_footer, read_run
from gantry_protocol.tier.damage import (
    ForeignObject,
    MissingObject,
    TruncatedObject,
)
from gantry_protocol.tier.footer import TAIL_BYTES
from gantry_protocol.tier.packs import BuiltPack, run_records, verify_pack
from support.memory_store import Fault, MemoryStore
from support.tier_logs import PLACE, Sent, build_log, build_pack

SMALL = build_pack(1000, build_log(1000, [Sent("a", 0, b"one"), Sent("b", 1, b"two"), None]))
LONG = build_pack(1000, build_log(1000, [Sent("a", n % 3, b"x" * 10) for n in range(5000)]))
NAME = PLACE.key(SMALL.key)


class Counting(MemoryStore):
    """Counts ranges."""

    ranges = 0

    async def get_range(
        self, key: str, start: int, length: int, *, timeout_s: float = 20.0
    ) -> bytes | None:
        self.ranges += 1
        return await super().get_range(key, start, length, timeout_s=timeout_s)


@pytest.mark.parametrize(("built", "calls"), [(SMALL, 1), (LONG, 2)], ids=["small", "long"])
async def test_footer_is_one_call_or_two(built: BuiltPack, calls: int) -> None:
    store = Counting()
    store.objects[PLACE.key(built.key)] = built.data
    footer = await read_footer(store, PLACE, built.entry)
    assert footer == verify_pack(built.data, PLACE, built.key)
    assert store.ranges == calls
    bodies = []
    for run in footer.runs:
        data = await read_run(store, PLACE, footer, run)
        bodies += [record.body for record in run_records(data, footer, run, PLACE)]
    assert len(bodies) == built.entry.count


def test_the_long_pack_is_long() -> None:
    assert LONG.entry.size - LONG.entry.hi + LONG.entry.lo > TAIL_BYTES


async def test_missing_pack_is_named() -> None:
    store = MemoryStore()
    footer = verify_pack(SMALL.data, PLACE, SMALL.key)
    for call in (
        read_footer(store, PLACE, SMALL.entry),
        read_run(store, PLACE, footer, footer.runs[0]),
    ):
        with pytest.raises(
            MissingObject, match="is missing, though the manifest lists it"
        ) as found:
            await call
        assert found.value.key == NAME


async def test_cut_pack_is_named_with_its_end() -> None:
    footer = verify_pack(SMALL.data, PLACE, SMALL.key)
    last = footer.runs[-1]
    for size in (0, 5, last.end - 1, len(SMALL.data) - 1):
        store = MemoryStore()
        store.objects[NAME] = SMALL.data[:size]
        with pytest.raises(TruncatedObject, match=f"cut short at byte {size}"):
            await read_footer(store, PLACE, SMALL.entry)
        if size < last.end:
            with pytest.raises(TruncatedObject):
                await read_run(store, PLACE, footer, last)


async def test_pack_of_another_place_is_refused() -> None:
    store = MemoryStore()
    store.objects[NAME] = LONG.data
    entry = msgspec.structs.replace(SMALL.entry, size=LONG.entry.size)
    with pytest.raises(ForeignObject, match="its footer belongs to"):
        await read_footer(store, PLACE, entry)


async def test_no_answer_says_nothing_about_the_pack() -> None:
    store = MemoryStore(lambda _operation, _key: Fault.LOST)
    with pytest.raises(StoreUnavailable):
        await read_footer(store, PLACE, SMALL.entry)
