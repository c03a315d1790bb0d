"""What counts as removed, and when something is asked for again: a story per rule."""

from __future__ import annotations

import pytest
from gantry_broker.tier.core.losses import AT_ONCE, Losses, Patience
from gantry_protocol.tier.keys import Pair
from gantry_protocol.tier.manifests import PackEntry

PATIENCE = Patience(first_s=1.0, last_s=60.0, looks=5, over_s=60.0, removed_s=300.0)


def entry(lo: int) -> PackEntry:
    return PackEntry(
        key=f"pack/{Pair(1, 1)}/{lo:020d}-{lo + 100:020d}-9-{lo:032x}",
        lo=lo,
        hi=lo + 100,
        cls=9,
        epoch_first=1,
        epoch_last=1,
        size=200,
        crc="0badcafe",
        count=1,
        min_ts=1,
        max_ts=2,
    )


def looks(losses: Losses, *seen: int | None, every_s: float, since_s: float = 0.0) -> list[int]:
    """What counts as removed after each listing, which showed nothing older than ``seen``."""
    found: list[int] = []
    for number, there in enumerate(seen):
        losses.looked(there, 0, since_s + number * every_s)
        found.append(losses.removed_below)
    return found


@pytest.mark.parametrize(
    ("seen", "every_s", "removed"),
    [
        pytest.param([300] * 5, 15.0, [0, 0, 0, 0, 300], id="five looks over a minute"),
        pytest.param([300] * 7, 10.0, [0, 0, 0, 0, 0, 0, 300], id="many looks, a minute"),
        pytest.param([300] * 4, 60.0, [0, 0, 0, 0], id="a long time, too few looks"),
        pytest.param([300] * 5, 1.0, [0] * 5, id="many looks, a short time"),
        pytest.param([300, 300, 0, 300, 300], 60.0, [0] * 5, id="it was there in between"),
        pytest.param([300, 300, None, 300, 300], 60.0, [0] * 5, id="nothing was listed once"),
        pytest.param([None] * 9, 60.0, [0] * 9, id="nothing is listed at all"),
        pytest.param([300, 200, 300, 400, 300], 15.0, [0, 0, 0, 0, 200], id="what all lack"),
    ],
)
def test_what_counts_as_removed(seen: list[int | None], every_s: float, removed: list[int]) -> None:
    assert looks(Losses(PATIENCE), *seen, every_s=every_s) == removed


def test_more_is_removed_by_looks_of_its_own() -> None:
    losses = Losses(PATIENCE)
    assert looks(losses, *[300] * 5, every_s=15.0)[-1] == 300
    assert looks(losses, *[400] * 5, every_s=15.0, since_s=100.0) == [300] * 4 + [400]


def test_what_was_there_in_between_is_not_removed_with_what_was_before() -> None:
    losses = Losses(PATIENCE)
    looks(losses, *[300] * 5, every_s=15.0)
    seen = [400, 400, 400, 300, 400, 400]
    assert looks(losses, *seen, every_s=30.0, since_s=100.0) == [300] * 6


@pytest.mark.parametrize(("regained", "removed"), [(0, 0), (300, 300)])
def test_what_was_read_in_between_is_not_removed(regained: int, removed: int) -> None:
    """Looks of a former absence do not count towards the next one; a later pack proves nothing."""
    losses = Losses(PATIENCE)
    looks(losses, *[300] * 4, every_s=15.0)
    losses.note(entry(regained), "missing", 50.0, absent=True, indexed=True)
    losses.read(entry(regained).key)
    assert losses.in_doubt == bool(regained)
    assert looks(losses, 300, every_s=15.0, since_s=3600.0) == [removed]


@pytest.mark.parametrize(("there", "removed"), [(200, 200), (0, 0)])
def test_what_is_restored_counts_again_at_once(there: int, removed: int) -> None:
    losses = Losses(PATIENCE)
    looks(losses, *[300] * 5, every_s=15.0)
    assert losses.looked(there, 0, 100.0)
    assert losses.removed_below == removed


def test_looks_are_spread_and_rare_once_it_is_sure() -> None:
    losses = Losses(PATIENCE)
    waits: list[float] = []
    now_s = 0.0
    for _ in range(8):
        losses.looked(300, 0, now_s)
        before_s = now_s
        while not losses.look_is_due(now_s):
            now_s += 1.0
        waits.append(now_s - before_s)
    assert waits == [12.0] * 6 + [300.0] * 2


def test_a_pack_is_asked_for_again_after_waits_that_double_up_to_a_bound() -> None:
    losses, now_s = Losses(PATIENCE), 0.0
    waits: list[float] = []
    for _ in range(9):
        losses.note(entry(0), "missing", now_s, absent=True, indexed=False)
        assert losses.due(now_s) == []
        waits.append(losses.next_due_s - now_s)
        now_s = losses.next_due_s
        assert [one.entry.lo for one in losses.due(now_s)] == [0]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    losses.read(entry(0).key)
    assert (losses.due(now_s), losses.next_due_s) == ([], float("inf"))


def test_one_round_asks_for_a_bounded_number_the_oldest_first() -> None:
    losses = Losses(PATIENCE)
    for lo in range(0, 100 * (AT_ONCE + 5), 100):
        losses.note(entry(lo), "missing", 0.0, absent=True, indexed=False)
    assert [one.entry.lo for one in losses.due(9.0)] == list(range(0, 100 * AT_ONCE, 100))


@pytest.mark.parametrize(
    ("after", "before", "hidden"),
    [(None, None, 100), (None, 100, None), (100, None, 300), (0, 300, 100), (100, 300, None)],
)
def test_a_record_is_hidden_by_the_packs_between_its_neighbours(
    after: int | None, before: int | None, hidden: int | None
) -> None:
    losses = Losses(PATIENCE)
    for lo in (100, 300):
        losses.note(entry(lo), "missing", 0.0, absent=True, indexed=False)
    losses.note(entry(200), "missing", 0.0, absent=True, indexed=True)
    keys = [None if lo is None else entry(lo).key for lo in (after, before)]
    found = losses.first_hidden(*keys)
    assert (None if found is None else found.entry.lo) == hidden
