"""Seeds of the whole world: a quorum of controllers and a group of brokers, all faults at once."""

from __future__ import annotations

import pytest
from sim.kernel.world import MS
from sim.whole_world import WholeWorld

SEEDS = range(8)


def run(seed: int, seconds: float = 12) -> WholeWorld:
    world = WholeWorld(seed)
    world.boot()
    world.nemesis.start()
    world.run(seconds)
    world.nemesis.stop()
    world.require_progress()
    return world


def calm(seed: int) -> WholeWorld:
    """A system without faults that has come to rest."""
    world = WholeWorld(seed, swarm=False)
    world.boot()
    world.require_progress()
    return world


def acknowledged_again(world: WholeWorld, within_ms: int) -> None:
    before = world.acknowledgements
    assert world.world.run(for_us=within_ms * MS, until=lambda: world.acknowledgements > before), (
        f"nothing acknowledged within {within_ms} ms"
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    run(seed)


def test_equal_seeds_are_equal_runs() -> None:
    assert run(3, 5).world.trace_hash == run(3, 5).world.trace_hash


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_master_is_replaced_within_a_second(seed: int) -> None:
    world = calm(seed)
    master = world.master()
    assert master is not None
    world.network.machines[master.host.name].kill()
    acknowledged_again(world, 1_000)


@pytest.mark.parametrize("seed", range(3))
def test_writes_go_on_without_the_leading_controller(seed: int) -> None:
    world = calm(seed)
    leader = world.leader()
    assert leader is not None
    world.network.machines[leader.host.name].kill()
    acknowledged_again(world, 100)


@pytest.mark.parametrize("seed", range(3))
def test_master_and_leading_controller_die_together(seed: int) -> None:
    world = calm(seed)
    master, leader = world.master(), world.leader()
    assert master is not None
    assert leader is not None
    world.network.machines[leader.host.name].kill()
    world.network.machines[master.host.name].kill()
    acknowledged_again(world, 5_000)
