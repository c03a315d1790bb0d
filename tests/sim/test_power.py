"""Power cuts of all nodes at once; more: ``gantry_lab simulate --world power --seeds 50``."""

from __future__ import annotations

import pytest
from sim.power_world import PowerWorld


@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    world = PowerWorld(seed, cuts=5)
    world.run_seed()
    assert world.world.counters["power.cut-all"] == 5
    assert world.acknowledgements > 20


def test_equal_seeds_are_equal_runs() -> None:
    def trace(seed: int) -> str:
        world = PowerWorld(seed, cuts=2)
        world.run_seed()
        return world.world.trace_hash

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)
