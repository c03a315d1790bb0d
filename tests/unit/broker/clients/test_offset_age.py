"""Offsets that nobody uses are forgotten, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from gantry_broker.clients.core.delay.parked import PROGRESS_GROUP
from gantry_broker.clients.offset_age import HOUR_S, OffsetAge
from gantry_broker.store.tables import offsets as tables
from gantry_broker.store.tables.offsets import AGE_GROUP, ConsumerOffsets, decode_rows
from gantry_broker.store.tables.resets import put_reset

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

KEPT = 72


def confirm(offsets: ConsumerOffsets) -> None:
    """What is dirty becomes confirmed."""
    while offsets.is_dirty:
        for record in offsets.take_records()[0]:
            offsets.apply(decode_rows(record.body))


@pytest.fixture
def offsets() -> ConsumerOffsets:
    return ConsumerOffsets()


@pytest.fixture
async def serve(offsets: ConsumerOffsets):
    made: list[OffsetAge] = []

    def begin(*members: str, kept: int = KEPT) -> OffsetAge:
        while made:
            made.pop().close()
        made.append(
            OffsetAge(offsets, lambda group: group in members, lambda: confirm(offsets), kept)
        )
        return made[-1]

    yield begin
    for one in made:
        one.close()


Serve = Callable[..., OffsetAge]


async def hours(count: float) -> None:
    await asyncio.sleep(count * HOUR_S)


def commit(offsets: ConsumerOffsets, group: str, offset: int = 7, queue_id: int = 0) -> None:
    offsets.commit(group, "T", queue_id, offset)
    confirm(offsets)


async def test_what_nobody_uses_is_forgotten_after_its_time_and_not_before(serve, offsets) -> None:
    served = serve()
    commit(offsets, "dead")
    await hours(KEPT - 0.5)
    assert offsets.query("dead", "T", 0) == 7
    await hours(2)
    assert offsets.query("dead", "T", 0) is None
    assert served.expired == 1
    assert "dead" not in {row[0] for row in offsets.all()}


async def test_who_commits_or_is_connected_keeps_its_offsets(serve, offsets) -> None:
    serve("connected")
    commit(offsets, "connected")
    commit(offsets, "<reset>connected")
    commit(offsets, "commits")
    commit(offsets, PROGRESS_GROUP)
    for _ in range(8):
        await hours(KEPT / 2)
        commit(offsets, "commits")  # the same offset
    kept = {row[0] for row in offsets.all()}
    assert kept == {"connected", "<reset>connected", "commits", PROGRESS_GROUP, AGE_GROUP}


async def test_who_was_connected_has_its_whole_time_from_then_on(serve, offsets) -> None:
    serve("g")
    commit(offsets, "g")
    await hours(10 * KEPT)
    serve()
    await hours(KEPT - 25)
    assert offsets.query("g", "T", 0) == 7
    await hours(26)
    assert offsets.query("g", "T", 0) is None


async def test_a_due_reset_goes_with_its_group(serve, offsets) -> None:
    serve()
    put_reset(offsets, "g", "T", 0, 3, due=True)
    confirm(offsets)
    await hours(KEPT + 1)
    assert {row[0] for row in offsets.all()} == {AGE_GROUP}


async def test_nothing_is_forgotten_where_all_is_kept(serve, offsets) -> None:
    serve(kept=0)
    commit(offsets, "g")
    await hours(10 * KEPT)
    assert offsets.query("g", "T", 0) == 7


async def test_many_are_looked_at_in_slices(serve, offsets, monkeypatch) -> None:
    monkeypatch.setattr("gantry_broker.clients.offset_age.SLICE", 10)
    served = serve()
    for number in range(95):
        commit(offsets, f"g{number}")
    await hours(KEPT)
    await asyncio.sleep(0.01)
    assert 0 < served.expired < 95
    await asyncio.sleep(1)
    assert served.expired == 95


async def test_hours_are_counted_on_across_masters(serve, offsets) -> None:
    commit(offsets, "g")
    for _ in range(KEPT + 1):
        serve()
        await hours(1)
    assert offsets.hour == KEPT + 1
    assert offsets.query("g", "T", 0) is None


async def test_who_did_not_see_the_hours_pass_calls_nothing_old(offsets) -> None:
    """As a replica that begins with a state: what it is told first may be anything."""
    offsets.apply([("g", "T", 0, 7), ("h", "T", 0, 1)], again=True)
    offsets.apply([(AGE_GROUP, tables.OFFSETS_TOPIC, 0, 5000)], again=True)
    assert list(offsets.unused(1)) == []
    offsets.apply([(AGE_GROUP, tables.OFFSETS_TOPIC, 0, 5001)])
    assert {key[0] for key, _ in offsets.unused(1)} == {"g", "h"}
    offsets.apply([("g", "T", 0, 7)], again=True)
    assert {key[0] for key, _ in offsets.unused(1)} == {"g", "h"}, "a state is no use"
    offsets.apply([("g", "T", 0, 7)])
    assert {key[0] for key, _ in offsets.unused(1)} == {"h"}


async def test_more_offsets_than_there_is_room_for_are_refused(offsets, monkeypatch) -> None:
    monkeypatch.setattr(tables, "OFFSETS_MAX", 3)
    for number in range(3):
        assert offsets.commit(f"g{number}", "T", 0, 1)
        confirm(offsets)
    assert not offsets.commit("one more", "T", 0, 1)
    assert offsets.commit("g1", "T", 0, 2), "who is known goes on"
    assert offsets.refused == 1
    offsets.forget("g2", "T", 0)
    confirm(offsets)
    assert offsets.commit("one more", "T", 0, 1)
