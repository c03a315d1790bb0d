"""The tables of a group as of the head of its tier."""

from __future__ import annotations

import pytest
from gantry_broker.front.core import as_of
from gantry_broker.front.core.as_of import OffsetsBack, Removals
from gantry_broker.store.tables.offsets import GONE
from gantry_broker.store.tables.state_records import StatePiece
from gantry_broker.store.tables.topics import TopicChange
from gantry_protocol.bodies import TopicConfig


def change(version: int, *removed: str, put: str = "") -> TopicChange:
    return TopicChange(version, [TopicConfig(put)] if put else [], list(removed))


def test_records_below_the_last_removal_are_those_of_a_former_topic() -> None:
    removals = Removals()
    removals.take(change(1, put="a"), 10)
    removals.take(change(2, "a", put="a"), 200)
    removals.take(change(3, "a", put="a"), 100)  # whatever comes first
    removals.take(change(4, "gone"), 300)
    assert removals.version == 4
    assert removals.below({"a": 2, "b": 1}, 1000) == {"a": 200}


def test_a_topic_that_was_made_behind_the_head_has_nothing_there() -> None:
    removals = Removals()
    removals.take(change(4, put="a"), 10)
    assert removals.below({"a": 4, "again": 5}, 1000) == {"again": 1000}


def test_the_newest_row_counts() -> None:
    back = OffsetsBack({})
    back.take_rows([("g", "t", 0, 7), ("g", "t", 0, 9), ("h", "t", 0, GONE)], 300)
    back.take_rows([("g", "t", 0, 5), ("g", "t", 1, 3), ("h", "t", 0, 8)], 200)
    assert sorted(back.rows) == [("g", "t", 0, 9, 0), ("g", "t", 1, 3, 0)]


def test_rows_of_a_former_topic_are_passed_over() -> None:
    back = OffsetsBack({"t": 250})
    back.take_rows([("g", "t", 0, 2)], 300)
    back.take_rows([("g", "t", 0, 70), ("g", "t", 1, 80), ("g", "u", 0, 1)], 200)
    assert sorted(back.rows) == [("g", "t", 0, 2, 0), ("g", "u", 0, 1, 0)]


def piece(index: int, count: int, *rows: tuple[str, str, int, int]) -> StatePiece:
    return StatePiece(index, count, 1, offsets=list(rows))


def test_a_whole_state_says_everything_older() -> None:
    back = OffsetsBack({})
    back.take_rows([("g", "t", 0, 9)], 300)
    back.take_piece(piece(1, 2, ("g", "t", 0, 8), ("h", "t", 0, 1)), 200)
    assert not back.is_whole
    back.take_piece(piece(0, 2), 100)
    assert back.is_whole
    assert sorted(back.rows) == [("g", "t", 0, 9, 0), ("h", "t", 0, 1, 0)]


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([(0, 2)], id="its end was never written"),
        pytest.param([(1, 2), (0, 3)], id="of two states"),
        pytest.param([(2, 3), (0, 3)], id="a piece is missing"),
    ],
)
def test_a_part_of_a_state_is_no_whole(pieces: list[tuple[int, int]]) -> None:
    back = OffsetsBack({})
    for at, (index, count) in enumerate(pieces):
        back.take_piece(piece(index, count), 1000 - at)
    assert not back.is_whole


def test_too_many_offsets_are_not_taken_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_of, "OFFSETS_MAX", 2)
    back = OffsetsBack({})
    back.take_rows([("g", "t", number, 1) for number in range(2)], 10)
    assert not back.is_full
    back.take_rows([("g", "t", 3, 1)], 5)
    assert back.is_full
