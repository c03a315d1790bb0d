"""Where requests about mapped queues are served."""

from __future__ import annotations

import pytest
from gantry_broker.clients.mapped.places import (
    Here,
    Moved,
    Nowhere,
    There,
    Wait,
    open_here,
    place_of_read,
    place_of_send,
    segments_seen,
)
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, MappedQueue, QueueMap, Segment
from gantry_protocol.types import Index

AGAIN = MAPPED_QUEUES_MAX
# 0 stays at a; 1 went from a to b; 2 is about to go from a to b; 3 went away from a and came back.
QUEUES = QueueMap(
    7,
    Index(1),
    (
        MappedQueue((Segment("a", 0, 0),)),
        MappedQueue((Segment("a", 0, 1), Segment("b", 40, 1 + AGAIN)), "", 1),
        MappedQueue((Segment("a", 0, 2),), "b"),
        MappedQueue(
            (Segment("a", 0, 3), Segment("b", 10, 3 + AGAIN), Segment("a", 30, 3 + 2 * AGAIN)),
            "",
            2,
        ),
    ),
)


@pytest.mark.parametrize(
    ("group", "number", "is_static", "place"),
    [
        ("a", 0, True, Here(0)),
        ("a", 1, True, There("b", 1 + AGAIN)),
        ("b", 1, True, Here(1 + AGAIN)),
        ("a", 2, True, Wait()),
        ("b", 2, True, There("a", 2)),
        ("a", 3, True, Here(3 + 2 * AGAIN)),
        ("a", 4, True, Nowhere(is_unknown=True)),
        # Who knows nothing of it sends to a queue that the group takes messages for.
        ("a", 0, False, Here(0)),
        ("a", 1, False, Here(3 + 2 * AGAIN)),
        ("a", 2, False, Wait()),
        ("b", 0, False, Here(1 + AGAIN)),
        ("c", 0, False, Nowhere(is_unknown=False)),
        ("c", 0, True, There("a", 0)),
    ],
)
def test_place_of_a_send(group: str, number: int, place: object, *, is_static: bool) -> None:
    found = place_of_send(QUEUES, group, number, is_static=is_static, turn=0)
    assert found == place
    assert type(found) is type(place)


def test_a_send_to_any_queue_goes_round_those_that_are_here() -> None:
    found = [place_of_send(QUEUES, "a", -1, is_static=True, turn=turn) for turn in range(4)]
    assert found == [Here(0), Here(3 + 2 * AGAIN)] * 2
    elsewhere = {place_of_send(QUEUES, "c", -1, is_static=True, turn=turn) for turn in range(4)}
    assert len(elsewhere) == 4
    leaving = QueueMap(1, Index(1), (MappedQueue((Segment("a", 0, 0),), "b"),))
    for is_static in (True, False):
        found = [place_of_send(leaving, "a", -1, is_static=is_static, turn=0)]
        assert found == [Wait()]
        assert isinstance(found[0], Wait)


@pytest.mark.parametrize(
    ("group", "number", "offset", "is_static", "place"),
    [
        ("a", 1, 39, True, Here(1)),
        ("a", 1, 40, True, There("b", 1 + AGAIN)),
        ("b", 1, 39, True, There("a", 1)),
        ("b", 3, 15, True, Here(3 + AGAIN)),
        ("a", 3, 15, True, There("b", 3 + AGAIN)),
        ("a", 3, 30, True, Here(3 + 2 * AGAIN)),
        ("c", 3, 0, True, There("a", 3)),
        ("a", 9, 0, True, Nowhere(is_unknown=True)),
        ("a", -1, 0, True, Nowhere(is_unknown=True)),
        # Who knows nothing of it reads what this very group has of the queue.
        ("a", 1, 39, False, Here(1)),
        ("a", 1, 40, False, Here(1)),
        ("b", 1, 0, False, Here(1 + AGAIN)),
        ("a", 3, 9, False, Here(3)),
        ("a", 3, 10, False, Moved(30)),
        ("a", 3, 29, False, Moved(30)),
        ("a", 3, 31, False, Here(3 + 2 * AGAIN)),
        ("b", 3, 30, False, Here(3 + AGAIN)),
        ("c", 3, 0, False, Here(3)),
    ],
)
def test_place_of_a_read(
    group: str, number: int, offset: int, place: object, *, is_static: bool
) -> None:
    found = place_of_read(QUEUES, group, number, offset, is_static=is_static)
    assert found == place
    assert type(found) is type(place)


def test_segments_that_a_client_sees() -> None:
    assert len(segments_seen(QUEUES, "c", 3, is_static=True)) == 3
    own = segments_seen(QUEUES, "a", 3, is_static=False)
    assert [segment.start for segment in own] == [0, 30]
    assert segments_seen(QUEUES, "c", 3, is_static=False) == (Segment("c", 0, 3),)
    assert segments_seen(QUEUES, "a", 4, is_static=True) == ()
    assert segments_seen(QUEUES, "a", -1, is_static=False) == ()


def test_queues_that_are_here() -> None:
    assert open_here(QUEUES, "a") == [0, 3]
    assert open_here(QUEUES, "b") == [1]
