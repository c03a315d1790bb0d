"""Seeds of the tier: safety at every write of the store, progress once the faults have stopped."""

from __future__ import annotations

import pytest
from sim.tier.world import TierMixin, TierWorld, WholeTierWorld

SEEDS = range(24)
WHOLE_SEEDS = range(8)


def run(world: TierMixin, seconds: float = 12) -> TierMixin:
    world.boot()
    world.nemesis.start()
    world.run(seconds)
    world.nemesis.stop()
    world.require_tier_progress()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_the_tier_is_a_prefix_of_what_is_confirmed(seed: int) -> None:
    run(TierWorld(seed))


@pytest.mark.parametrize("seed", WHOLE_SEEDS)
def test_the_same_under_a_quorum_of_controllers(seed: int) -> None:
    run(WholeTierWorld(seed))


def test_equal_seeds_are_equal_runs() -> None:
    first, again = run(TierWorld(7), 6), run(TierWorld(7), 6)
    assert first.world.trace_hash == again.world.trace_hash
    assert first.store.objects == again.store.objects


def test_the_seeds_reach_what_they_are_for() -> None:
    reached: dict[str, int] = {}
    for seed in range(30):
        for name, count in run(TierWorld(seed), 8).world.counters.items():
            reached[name] = reached.get(name, 0) + count
    assert {
        "tier.backoff",
        "tier.draining",
        "tier.fenced",
        "store.late",
        "store.lost_answer",
        "store.outage",
        "fault.zombie",
        "trim",
    } <= reached.keys()
    assert reached["tier.commit"] > 300
