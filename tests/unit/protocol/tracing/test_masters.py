"""The trace of a change of master: one for all who have a part in it, and in order."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_protocol.tracing.masters import Change, first_write, promoted, seen_by_the_leader
from gantry_protocol.tracing.spans import Span

CHANGE = Change("c", "g", 7)
MS = 1_000_000


def told(**changes: Any) -> list[Span]:
    times = {"heard_ms": 100, "noticed_ms": 160, "proposed_ms": 170, "elected_ms": 175, **changes}
    return seen_by_the_leader(CHANGE, "failover", "connection closed", **times)


def times(spans: list[Span]) -> dict[str, tuple[int, int]]:
    return {span.name: (span.start_ns // MS, span.end_ns // MS) for span in spans}


def test_the_ids_are_the_same_wherever_they_are_made() -> None:
    # Pinned: processes of two versions have parts in one trace.
    assert CHANGE.ids == (0xD27A29FB753311B525D549E7308845F3, 0x789294D7B7BEAC50)
    others = [Change("c", "g", 8), Change("c", "h", 7), Change("d", "g", 7), Change("cg", "", 7)]
    assert len({CHANGE.ids, *(other.ids for other in others)}) == 5
    assert len({CHANGE.ids[0], *(other.ids[0] for other in others)}) == 5


def test_the_leader_and_the_new_master_have_parts_of_one_root() -> None:
    root, *parts = [*told(), promoted(CHANGE, 180, 190), first_write(CHANGE, 190, 250)]
    assert (root.name, root.parent_id) == ("failover", 0)
    assert {(part.trace_id, part.parent_id) for part in parts} == {(root.trace_id, root.span_id)}
    assert len({span.span_id for span in (root, *parts)}) == 6
    assert root.attributes["gantry.reason"] == "connection closed"
    for span in (root, *parts):
        assert span.attributes["gantry.cluster"] == "c"
        assert span.attributes["gantry.broker_group"] == "g"
        assert span.attributes["gantry.master_epoch"] == 7


def test_the_segments_follow_each_other() -> None:
    assert times([*told(), promoted(CHANGE, 180, 190), first_write(CHANGE, 190, 250)]) == {
        "failover": (100, 175),
        "notice": (100, 160),
        "decide": (160, 170),
        "commit": (170, 175),
        "promote": (180, 190),
        "first write": (190, 250),
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (  # by the clock that notices, a moment after it was proposed
            {"proposed_ms": 159},
            {
                "failover": (100, 175),
                "notice": (100, 160),
                "decide": (160, 160),
                "commit": (160, 175),
            },
        ),
        (
            {"proposed_ms": None},
            {"failover": (100, 175), "notice": (100, 160), "decide": (160, 175)},
        ),
        (
            {"heard_ms": None},
            {"failover": (160, 175), "decide": (160, 170), "commit": (170, 175)},
        ),
        (
            {"heard_ms": None, "noticed_ms": None},
            {"failover": (170, 175), "commit": (170, 175)},
        ),
        (
            {"heard_ms": None, "noticed_ms": None, "proposed_ms": None},
            {"failover": (175, 175)},
        ),
    ],
    ids=[
        "noticed late",
        "a broker asked for it",
        "it was never heard",
        "nobody was missed",
        "nothing is known",
    ],
)
def test_what_nobody_saw_is_no_part(
    changes: dict[str, None], expected: dict[str, tuple[int, int]]
) -> None:
    assert times(told(**changes)) == expected


def test_clocks_that_contradict_each_other_make_no_span_that_ends_before_it_begins() -> None:
    span = first_write(CHANGE, 190, 180)
    assert (span.start_ns, span.end_ns) == (190 * MS, 190 * MS)
