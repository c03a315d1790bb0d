"""Older copies after an outage of all brokers; more: ``gantry_lab simulate --world restored``."""

from __future__ import annotations

import pytest
from sim.restored_world import RestoredWorld


@pytest.mark.parametrize("seed", [2, 4])
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    world = RestoredWorld(seed, rounds=2)
    world.run_seed()
    assert world.world.counters["restored.round"] == 2
    assert world.acknowledgements > 20
