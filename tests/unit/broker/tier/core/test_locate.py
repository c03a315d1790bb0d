"""Where a record of a queue is: against a plain list of everything there is."""

from __future__ import annotations

import pytest
from gantry_broker.tier.core.locate import Beyond, Found, Gone, Queue, RunIndex, RunPlace
from hypothesis import given
from hypothesis import strategies as st

ORDERS = Queue("orders", 0)


def index(*runs: tuple[int, int]) -> RunIndex:
    """Runs of one queue, each in a pack of its own: (first, count)."""
    made = RunIndex()
    for number, (first, count) in enumerate(runs):
        made.add(ORDERS, RunPlace(first=first, count=count, pack=f"pack-{number}", run=number))
    return made


@pytest.mark.parametrize(
    ("offset", "pack", "position"),
    [(5, "pack-0", 0), (9, "pack-0", 4), (10, "pack-1", 0), (12, "pack-1", 2), (20, "pack-2", 0)],
)
def test_a_record_is_found_in_its_run(offset: int, pack: str, position: int) -> None:
    found = index((5, 5), (10, 3), (20, 1)).locate(ORDERS, offset)
    assert isinstance(found, Found)
    assert (found.place.pack, found.position) == (pack, position)


def test_below_the_start_the_next_valid_offset_is_told() -> None:
    assert index((5, 5)).locate(ORDERS, 4) == Gone(next_valid=5)
    assert index((5, 5)).locate(ORDERS, 0) == Gone(next_valid=5)


def test_in_a_gap_the_next_valid_offset_is_told() -> None:
    assert index((5, 5), (20, 1)).locate(ORDERS, 13) == Gone(next_valid=20)


def test_above_the_end_nothing_is_promised() -> None:
    assert index((5, 5)).locate(ORDERS, 10) == Beyond(tier_end=10)


def test_an_unknown_queue_is_not_in_the_tier() -> None:
    assert index((5, 5)).locate(Queue("orders", 1), 5) is None
    assert index((5, 5)).start(Queue("orders", 1)) is None


def test_a_queue_that_begins_anew_forgets_its_namesake() -> None:
    made = index((5, 5), (10, 5), (0, 2))
    assert made.start(ORDERS) == 0
    found = made.locate(ORDERS, 1)
    assert isinstance(found, Found)
    assert found.place.pack == "pack-2"
    assert made.locate(ORDERS, 7) == Beyond(tier_end=2)


def test_a_dropped_pack_leaves_the_index() -> None:
    made = index((5, 5), (10, 5))
    made.drop_packs(["pack-0"])
    assert made.start(ORDERS) == 10
    assert made.locate(ORDERS, 5) == Gone(next_valid=10)
    made.drop_packs(["pack-1"])
    assert made.locate(ORDERS, 10) is None


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=12),
    st.integers(0, 80),
)
def test_every_answer_agrees_with_a_plain_list(gaps: list[tuple[int, int]], offset: int) -> None:
    runs, places, at = [], {}, 0
    for number, (gap, count) in enumerate(gaps):
        at += gap
        runs.append((at, count))
        places |= {at + step: (f"pack-{number}", step) for step in range(count)}
        at += count
    match index(*runs).locate(ORDERS, offset):
        case Found(place=place, position=position):
            assert places[offset] == (place.pack, position)
        case Gone(next_valid=next_valid):
            assert offset not in places
            assert next_valid == min(one for one in places if one > offset)
        case Beyond(tier_end=tier_end):
            assert offset >= tier_end == max(places) + 1
        case None:
            pytest.fail("the queue is there")


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["goes on", "jumps", "anew"])), max_size=8
    ),
    st.randoms(use_true_random=False),
)
def test_a_pack_that_comes_late_takes_its_place(steps, chance) -> None:
    """In whatever order packs can be read: the index is that of the chain's order."""
    places: list[RunPlace] = []
    at = 0
    for number, (count, how) in enumerate(steps):
        at = 0 if how == "anew" else at + 3 * (how == "jumps")
        places.append(RunPlace(first=at, count=count, pack=f"pack-{number}", run=0))
        at += count
    in_order, late = RunIndex(), RunIndex()
    for place in places:
        in_order.add(ORDERS, place)
    missing = {place.pack for place in places if chance.random() < 0.5}
    for place in places:
        if place.pack not in missing:
            late.add(ORDERS, place)
    waiting = [place for place in places if place.pack in missing]
    chance.shuffle(waiting)
    for place in waiting:
        late.insert(ORDERS, place)
    assert late._runs.get(ORDERS, []) == in_order._runs.get(ORDERS, [])
    assert late.size == in_order.size
