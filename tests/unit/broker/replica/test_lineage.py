"""Lineage: H2 of the data plane, upstream's consistent-point samples, and properties."""

from __future__ import annotations

import pytest
from gantry_broker.replica.lineage import Lineage, LineageError, consistent_point
from gantry_protocol.types import Epoch, EpochEntry, Offset
from hypothesis import given
from hypothesis import strategies as st
from support.replicas import entries, lineage


def point(mine: Lineage, my_end: int, theirs: Lineage, their_end: int) -> int | None:
    return consistent_point(mine, Offset(my_end), theirs, Offset(their_end))


@pytest.mark.parametrize(
    ("mine", "my_end", "theirs", "their_end", "expected"),
    [
        # EpochFileCacheTest.testFindConsistentPointSample1 … 4
        pytest.param([(1, 100), (2, 200), (3, 300)], 500, [(1, 100), (2, 200), (3, 300)], 450, 450,
                     id="same epochs, shorter end"),
        pytest.param([(1, 100), (2, 300), (3, 500)], 700, [(1, 100), (2, 300), (3, 500)], 600, 600,
                     id="open ends"),
        pytest.param([(1, 100), (2, 300), (3, 500)], 700, [(1, 200), (2, 500)], 600, None,
                     id="nothing in common"),
        pytest.param([(1, 100), (2, 300), (3, 500)], 700,
                     [(1, 100), (2, 300), (3, 500), (4, 700)], 900, 700, id="one more epoch"),
        pytest.param([], 0, [(1, 0)], 50, None, id="empty replica"),
        pytest.param([(1, 0), (2, 100)], 150, [(1, 0), (3, 100)], 140, 100,
                     id="same start, other epoch"),
        pytest.param([(1, 0), (2, 100)], 100, [(1, 0), (3, 120)], 140, 100,
                     id="epoch that wrote nothing"),
        pytest.param([(1, 0), (2, 100), (3, 120)], 130, [(1, 0), (3, 120)], 130, 130,
                     id="newest common epoch decides"),
    ],
)  # fmt: skip
def test_consistent_point(
    mine: list[tuple[int, int]],
    my_end: int,
    theirs: list[tuple[int, int]],
    their_end: int,
    expected: int | None,
) -> None:
    assert point(lineage(*mine), my_end, lineage(*theirs), their_end) == expected
    assert point(lineage(*theirs), their_end, lineage(*mine), my_end) == expected


def test_empty_epoch_is_dropped_and_the_new_one_never_refused() -> None:
    """KAFKA-7415: broker A led epoch 2 from 100 and replicated nothing but its heartbeat.

    B, promoted to 3 at 100, must not keep 2@100, or its own records pass for A's and
    the point for A comes out at 140 instead of 100.
    """
    promoted = lineage((1, 0), (2, 100)).with_epoch(EpochEntry(Epoch(3), Offset(100)))
    assert promoted == lineage((1, 0), (3, 100))
    assert point(lineage((1, 0), (2, 100)), 150, promoted, 140) == 100


def test_with_epoch_drops_everything_at_or_above_its_start() -> None:
    old = lineage((1, 0), (2, 50), (4, 80))
    assert old.with_epoch(EpochEntry(Epoch(5), Offset(50))) == lineage((1, 0), (5, 50))


@pytest.mark.parametrize("pairs", [[(2, 0), (1, 5)], [(1, 5), (2, 5)], [(0, 0)], [(1, -1)]])
def test_entries_that_do_not_rise_are_refused(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(LineageError):
        lineage(*pairs)


def test_an_older_epoch_cannot_follow() -> None:
    with pytest.raises(LineageError):
        lineage((3, 0)).with_epoch(EpochEntry(Epoch(2), Offset(10)))


@pytest.mark.parametrize(
    ("end", "cut", "recovered"),
    [
        (0, [], [(1, 0)]),
        (50, [(1, 0)], [(1, 0), (2, 50)]),
        (51, [(1, 0), (2, 50)], [(1, 0), (2, 50)]),
        (90, [(1, 0), (2, 50)], [(1, 0), (2, 50), (4, 90)]),
    ],
)
def test_cut_and_recovery_differ_only_in_an_epoch_that_begins_at_the_end(
    end: int, cut: list[tuple[int, int]], recovered: list[tuple[int, int]]
) -> None:
    whole = lineage((1, 0), (2, 50), (4, 90))
    assert whole.cut(Offset(end)) == lineage(*cut)
    assert whole.recovered(Offset(end)) == lineage(*recovered)


@pytest.mark.parametrize(
    ("offset", "epoch", "boundary"),
    [(0, None, 10), (9, None, 10), (10, 1, 50), (49, 1, 50), (50, 3, None), (999, 3, None)],
)
def test_entry_and_boundary_of_an_offset(
    offset: int, epoch: int | None, boundary: int | None
) -> None:
    found = lineage((1, 10), (3, 50)).entry_at(Offset(offset))
    assert (None if found is None else found.epoch) == epoch
    assert lineage((1, 10), (3, 50)).boundary_after(Offset(offset)) == boundary


steps = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 20)), max_size=8)


@given(steps)
def test_appending_epochs_keeps_the_lineage_rising(moves: list[tuple[int, int]]) -> None:
    current, epoch = Lineage(), 0
    for jump, start in moves:
        epoch += jump
        current = current.with_epoch(EpochEntry(Epoch(epoch), Offset(start)))
        assert current.last == EpochEntry(Epoch(epoch), Offset(start))
        starts = [entry.start_offset for entry in current.entries]
        assert starts == sorted(set(starts))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], Lineage, list[int], Lineage]:
    """Two logs as a group makes them: each master starts from one of the two, writes, copies.

    A record is its epoch, so bytes are equal exactly where epochs are: one master per epoch.
    """
    logs: list[list[int]] = [[], []]
    lines = [Lineage(), Lineage()]
    for epoch in range(1, draw(st.integers(1, 7))):
        master = draw(st.integers(0, 1))
        other = 1 - master
        lines[master] = lines[master].with_epoch(
            EpochEntry(Epoch(epoch), Offset(len(logs[master])))
        )
        logs[master] += [epoch] * draw(st.integers(0, 4))
        if draw(st.booleans()):
            _follow(logs, lines, other, master, draw(st.integers(0, len(logs[master]))))
        if draw(st.booleans()):
            lost = draw(st.integers(0, len(logs[master])))
            del logs[master][lost:]
            lines[master] = lines[master].recovered(Offset(lost))
    return logs[0], lines[0], logs[1], lines[1]


def _follow(
    logs: list[list[int]], lines: list[Lineage], other: int, master: int, up_to: int
) -> None:
    found = point(lines[other], len(logs[other]), lines[master], len(logs[master])) or 0
    del logs[other][found:]
    lines[other] = lines[other].cut(Offset(found))
    for offset in range(found, up_to):
        entry = lines[master].entry_at(Offset(offset))
        assert entry is not None
        if lines[other].last != entry:
            lines[other] = lines[other].with_epoch(entry)
        logs[other].append(logs[master][offset])


@given(histories())
def test_logs_are_equal_up_to_the_consistent_point(
    history: tuple[list[int], Lineage, list[int], Lineage],
) -> None:
    log_a, line_a, log_b, line_b = history
    found = point(line_a, len(log_a), line_b, len(log_b)) or 0
    assert log_a[:found] == log_b[:found]
    assert found == (point(line_b, len(log_b), line_a, len(log_a)) or 0)


def test_entries_are_values() -> None:
    assert lineage((1, 0)) == Lineage(entries((1, 0)))
    assert hash(lineage((1, 0))) == hash(lineage((1, 0)))
    assert repr(lineage((1, 0), (2, 7))) == "Lineage(1@0, 2@7)"
