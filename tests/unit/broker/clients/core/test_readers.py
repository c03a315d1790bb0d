"""Pulls that a replica may answer, and how long before it asks the master about a client."""

from __future__ import annotations

import pytest
from gantry_broker.clients.core.readers import (
    CONTROLLERS_SILENT_MS,
    LEASE_S,
    MASTER_SILENT_MS,
    PLACES_MAX,
    Held,
    Leases,
    Ties,
    may_answer,
)

PLACE = ("group", "orders", 0)
FRESH = Ties(
    is_counted=True,
    is_sound=True,
    master_silent_ms=MASTER_SILENT_MS,
    controllers_silent_ms=CONTROLLERS_SILENT_MS,
)


@pytest.mark.parametrize(
    ("readers", "offset", "can_wait", "may"),
    [
        pytest.param(2, 10, False, True, id="its first record"),
        pytest.param(2, 19, False, True, id="its last record"),
        pytest.param(2, 20, True, True, id="its end, by a pull that can wait"),
        pytest.param(2, 20, False, False, id="its end, by one that cannot: there may be more"),
        pytest.param(2, 21, True, False, id="beyond what it has: it may be there all the same"),
        pytest.param(2, 9, True, False, id="below what it has"),
        pytest.param(2, -1, True, False, id="no offset at all"),
        pytest.param(1, 15, True, False, id="the master alone serves reads"),
        pytest.param(0, 15, True, False, id="likewise"),
    ],
)
def test_a_replica_answers_from_the_part_that_it_has(readers, offset, can_wait, may) -> None:
    assert may_answer(readers, Held(10, 20), offset, can_wait=can_wait) is may


def test_in_a_queue_that_it_does_not_know_it_waits_at_the_beginning_only() -> None:
    assert may_answer(2, Held(0, 0), 0, can_wait=True)
    assert not may_answer(2, Held(0, 0), 1, can_wait=True)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"is_counted": False}, id="the master does not count on it"),
        pytest.param({"is_sound": False}, id="its log is damaged"),
        pytest.param({"master_silent_ms": MASTER_SILENT_MS + 1}, id="the master is silent"),
        pytest.param(
            {"controllers_silent_ms": CONTROLLERS_SILENT_MS + 1},
            id="there may be another master, of whom it was not told",
        ),
    ],
)
def test_a_replica_that_is_out_of_touch_is_not_fresh(change: dict[str, object]) -> None:
    assert FRESH.is_fresh
    assert not FRESH._replace(**change).is_fresh  # type: ignore[arg-type]


def test_the_master_is_asked_once_when_a_lease_ends() -> None:
    leases = Leases()
    assert leases.holds(PLACE, 100.0)
    assert leases.holds(PLACE, 100.0 + LEASE_S - 1)
    assert not leases.holds(PLACE, 100.0 + LEASE_S)
    assert leases.holds(PLACE, 100.0 + LEASE_S)
    assert leases.holds(PLACE, 100.0 + 2 * LEASE_S - 1)
    assert not leases.holds(PLACE, 100.0 + 2 * LEASE_S)


def test_who_asked_at_the_wrong_place_asks_the_master_next() -> None:
    leases = Leases()
    assert leases.holds(PLACE, 100.0)
    leases.end(PLACE)
    assert not leases.holds(PLACE, 100.0)
    assert leases.holds(PLACE, 100.0)


def test_leases_are_bounded() -> None:
    leases = Leases()
    for number in range(3 * PLACES_MAX):
        assert leases.holds(("group", "orders", number), 100.0)
        leases.end(("group", "orders", number))
    assert len(leases) <= PLACES_MAX
