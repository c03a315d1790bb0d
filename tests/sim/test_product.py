"""Seeds of the product itself: nothing acknowledged is lost, whatever happens to its processes."""

from __future__ import annotations

import logging

import pytest
from sim.kernel.world import Violation
from sim.product import faults
from sim.product.failover import compare, is_worse
from sim.product.kinds import RUNS, ProductRun
from sim.product.run import run

SEEDS = {
    "product": 10,
    "power": 4,
    "restored": 2,
    "tier": 5,
    "quorum": 6,
    "admin": 2,
    "members": 2,
    "retain": 1,
    "doors": 4,
    "stores": 4,
    "rich": 3,
    "consumers": 2,
    "batches": 2,
    "many": 2,
    "snapshots": 3,
    "operator": 2,
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    """What the product says of faults is no news here."""
    logging.getLogger("gantry").setLevel("CRITICAL")


@pytest.mark.parametrize(
    ("kind", "seed"), [(kind, seed) for kind in RUNS for seed in range(SEEDS[kind])]
)
def test_nothing_acknowledged_is_lost(kind: str, seed: int) -> None:
    run(seed, kind=kind)


def test_equal_seeds_are_equal_runs() -> None:
    first, second = run(5), run(5)
    assert first.trace_hash == second.trace_hash
    assert first.counters == second.counters


def test_a_schedule_can_be_written_down() -> None:
    schedule = ProductRun(3).schedule
    assert [faults.Fault.parse(str(fault)) for fault in schedule] == schedule


def test_a_schedule_is_shrunk_to_what_fails() -> None:
    schedule = ProductRun(3).schedule
    needed = {schedule[1], schedule[-1]}
    assert set(faults.shrink(schedule, lambda part: needed <= set(part), runs=500)) == needed


def test_a_violation_names_its_seed() -> None:
    """A minimum that nobody can reach: the group never comes to stand."""
    with pytest.raises(Violation, match="seed 7"):
        run(7, brokers=1)


def test_an_operator_never_makes_a_failover_worse() -> None:
    """The master is killed, under an unkind API server, with the operator and without."""
    compared = compare(range(2))
    assert not is_worse(compared), compared


@pytest.mark.parametrize(
    ("there", "away", "worse"),
    [(0.4, 0.4, False), (0.45, 0.4, False), (0.6, 0.4, True)],
)
def test_a_longer_gap_with_an_operator_is_worse(there: float, away: float, worse: bool) -> None:
    usual = {"median": 0.1}
    assert is_worse({"with": {"max": there, **usual}, "without": {"max": away, **usual}}) is worse
