"""The log in memory: cut only at conflicts, confirmed in order, handed out when durable."""

from __future__ import annotations

import random

import pytest
from gantry_controller.raft.log import RaftLog
from gantry_controller.raft.messages import Entry, EntryKind, make_entry
from gantry_protocol.types import Index, Term


def entries(first: int, *terms: int) -> list[Entry]:
    return [
        make_entry(EntryKind.COMMAND, Term(term), Index(first + place), b"v")
        for place, term in enumerate(terms)
    ]


def log(*terms: int, commit: int = 0) -> RaftLog:
    return RaftLog(entries(1, *terms), Index(commit))


def terms(of: RaftLog) -> list[int | None]:
    return [of.term_at(Index(index)) for index in range(1, of.last_index + 1)]


@pytest.mark.parametrize(
    ("prev", "sent", "after", "cut"),
    [
        pytest.param(3, (2, 2), [1, 1, 2, 2, 2], None, id="behind the end"),
        pytest.param(1, (1,), [1, 1, 2], None, id="there already, and shorter: nothing is cut"),
        pytest.param(1, (1, 2), [1, 1, 2], None, id="there already"),
        pytest.param(1, (1, 2, 2), [1, 1, 2, 2], None, id="overlapping the end"),
        pytest.param(1, (3,), [1, 3], 2, id="a conflict cuts everything behind it"),
        pytest.param(1, (1, 3, 3), [1, 1, 3, 3], 3, id="a conflict in the middle"),
        pytest.param(3, (), [1, 1, 2], None, id="nothing"),
    ],
)
def test_merge(prev: int, sent: tuple[int, ...], after: list[int], cut: int | None) -> None:
    mine = log(1, 1, 2)
    assert mine.merge(Index(prev), entries(prev + 1, *sent)) == cut
    assert terms(mine) == after


def test_a_committed_entry_is_never_cut() -> None:
    mine = log(1, 1, 2, commit=2)
    with pytest.raises(AssertionError, match="contradicts a committed entry"):
        mine.merge(Index(1), entries(2, 3))


@pytest.mark.parametrize(
    ("last_index", "last_term", "expected"),
    [(3, 2, True), (2, 2, False), (9, 1, False), (1, 3, True), (4, 2, True)],
)
def test_up_to_date_compares_terms_first(last_index: int, last_term: int, expected: bool) -> None:
    assert log(1, 1, 2).is_up_to_date(Index(last_index), Term(last_term)) is expected


def test_conflict_hint_equals_a_walk_backwards() -> None:
    rng = random.Random(1)
    for _ in range(300):
        mine = log(*sorted(rng.choices(range(1, 6), k=rng.randint(0, 12))))
        index, term = rng.randint(0, 14), rng.randint(0, 6)
        expected = min(index, mine.last_index)
        while (mine.term_at(Index(expected)) or 0) > term:
            expected -= 1
        assert mine.conflict_hint(Index(index), Term(term)) == expected


@pytest.mark.parametrize(
    ("first", "limit", "expected"),
    [(1, 1, [1]), (1, 36, [1, 2]), (1, 35, [1]), (2, 1000, [2, 3]), (4, 1000, []), (3, 0, [3])],
)
def test_entries_stop_at_the_limit_but_one_always_fits(
    first: int, limit: int, expected: list[int]
) -> None:
    """An entry of one byte takes 18."""
    taken = log(1, 1, 1).entries_from(Index(first), limit)
    assert [entry.index for entry in taken] == expected


def submit(mine: RaftLog) -> list[int]:
    written = [entry.index for entry in mine.submit()]
    mine.batch_submitted()
    return [int(index) for index in written]


def test_batches_are_confirmed_in_order() -> None:
    mine = log(1)
    mine.append(entries(2, 1, 1))
    assert submit(mine) == [2, 3]
    mine.append(entries(4, 1))
    assert submit(mine) == [4]
    assert mine.persisted_index == 1
    mine.batch_persisted()
    assert mine.persisted_index == 3
    mine.batch_persisted()
    assert mine.persisted_index == 4


def test_a_cut_lowers_what_batches_under_way_may_confirm() -> None:
    mine = log(1)
    mine.append(entries(2, 1, 1))
    submit(mine)
    mine.merge(Index(1), entries(2, 2))
    assert submit(mine) == [2]
    mine.merge(Index(1), entries(2, 3, 3, 3))
    assert submit(mine) == [2, 3, 4]
    for durable in (1, 1, 4):
        mine.batch_persisted()
        assert mine.persisted_index == durable


def test_only_committed_and_durable_entries_are_handed_out_a_few_at_a_time() -> None:
    mine = log(1, 1, commit=1)
    mine.append(entries(3, 1, 1, 1))
    assert [entry.index for entry in mine.hand_out(10)] == [1]
    mine.commit_to(Index(5))
    assert [entry.index for entry in mine.hand_out(10)] == [2]
    submit(mine)
    assert not mine.has_more_to_hand_out
    mine.batch_persisted()
    assert mine.has_more_to_hand_out
    mine.applied_index = Index(2)
    assert [entry.index for entry in mine.hand_out(2)] == [3, 4]
    assert mine.hand_out(2) == []
    mine.applied_index = Index(4)
    assert [entry.index for entry in mine.hand_out(2)] == [5]


def test_commit_never_falls_and_never_passes_the_end() -> None:
    mine = log(1, 1, commit=2)
    mine.commit_to(Index(1))
    assert mine.commit_index == 2
    with pytest.raises(AssertionError):
        mine.commit_to(Index(3))
