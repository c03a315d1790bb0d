"""Seeds of the replica world: safety at every step, progress once the faults have stopped."""

from __future__ import annotations

import pytest
from gantry_broker.replica import DEFAULT_LIMITS
from sim.kernel.world import MS, SECOND
from sim.replica_world import ReplicaWorld

SEEDS = range(16)


def run(seed: int, seconds: float = 12) -> ReplicaWorld:
    world = ReplicaWorld(seed)
    world.boot()
    world.nemesis.start()
    world.run(seconds)
    world.nemesis.stop()
    world.require_progress()
    return world


def calm(seed: int = 1, **sizes: int) -> ReplicaWorld:
    """A group without faults that has come to rest."""
    world = ReplicaWorld(seed, swarm=False, **sizes)
    world.boot()
    world.require_progress()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    run(seed)


def test_who_is_behind_a_log_that_was_cut_begins_anew() -> None:
    """By the retention's own rule, while replicas are away, wiped and killed amid it."""
    reached: dict[str, int] = {}
    for seed in (1, 4, 7, 35):
        world = ReplicaWorld(seed, cuts=True)
        world.boot()
        world.nemesis.start()
        world.run(12)
        world.nemesis.stop()
        world.require_progress()
        for name, count in world.world.counters.items():
            reached[name] = reached.get(name, 0) + count
    assert reached["trim"] > 100
    assert {"reset.behind", "reset.empty"} <= reached.keys()


def test_equal_seeds_are_equal_runs() -> None:
    assert run(5, 6).world.trace_hash == run(5, 6).world.trace_hash


def test_the_seeds_reach_what_they_are_for() -> None:
    reached: dict[str, int] = {}
    epochs = 0
    for seed in range(12):
        world = run(seed, 8)
        epochs += world.durable.group.master_epoch
        for name, count in world.world.counters.items():
            reached[name] = reached.get(name, 0) + count
    assert epochs > 24
    assert {"cut", "fault.wipe", "fault.drain", "fault.power_cut", "fault.pause"} <= reached.keys()


def acknowledged_again(world: ReplicaWorld, within_ms: int) -> None:
    before = world.acknowledgements
    assert world.world.run(for_us=within_ms * MS, until=lambda: world.acknowledgements > before), (
        f"nothing acknowledged within {within_ms} ms"
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_master_is_replaced_within_a_second(seed: int) -> None:
    world = calm(seed)
    master = world.master()
    assert master is not None
    world.network.machines[master.host.name].kill()
    acknowledged_again(world, 500)


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_replica_stalls_writes_only_briefly(seed: int) -> None:
    world = calm(seed)
    master = world.master()
    victim = next(m for m in world.brokers if master is None or m.name != master.host.name)
    victim.kill()
    world.run(0.01)
    acknowledged_again(world, 500)


@pytest.mark.parametrize("seed", range(5))
def test_a_leaving_master_hands_over_without_a_gap_worth_naming(seed: int) -> None:
    world = calm(seed)
    master = world.master()
    assert master is not None
    epoch = world.durable.group.master_epoch
    master.drain()
    world.run(0.01)
    acknowledged_again(world, 250)
    assert world.durable.group.master_epoch == epoch + 1


@pytest.mark.parametrize("whose", ["master", "replica"])
@pytest.mark.parametrize("seed", range(3))
def test_a_disk_ten_times_slower_costs_time_and_no_mastership(seed: int, whose: str) -> None:
    world = calm(seed)
    master = world.master()
    assert master is not None
    machine = next(m for m in world.brokers if (m.name == master.host.name) == (whose == "master"))
    group, before = world.durable.group, world.acknowledgements
    epochs = (group.master_epoch, group.sync_state_set_epoch)
    machine.disk.slowness = 10
    world.run(10)
    assert world.acknowledgements > before + 50
    machine.disk.mend()
    world.require_progress()
    after = world.durable.group
    assert (after.master_epoch, after.sync_state_set_epoch) == epochs, "slow is not gone"


@pytest.mark.parametrize("seed", range(3))
def test_a_master_whose_disk_hangs_is_relieved(seed: int) -> None:
    """It notices by itself; nobody who heartbeats is deposed by others."""
    world = calm(seed)
    master = world.master()
    assert master is not None
    epoch = world.durable.group.master_epoch
    world.network.machines[master.host.name].disk.hang(20 * SECOND)
    world.run(DEFAULT_LIMITS.disk_wait_ms / 1_000 + 0.1)
    acknowledged_again(world, 1_500)
    assert world.durable.group.master_epoch == epoch + 1
    world.run(10)
    assert world.durable.group.master_epoch == epoch + 1, "its successor stays"
    world.require_progress()


def cut_off(world: ReplicaWorld, *names: str) -> None:
    """Nothing passes between these machines and the others."""
    for machine in (*world.brokers, *world.controllers):
        for name in names:
            if machine.name not in names:
                world.network.block(name, machine.name)
                world.network.block(machine.name, name)


@pytest.mark.parametrize("with_a_replica", [False, True], ids=["alone", "with a replica"])
@pytest.mark.parametrize("seed", range(3))
def test_a_master_that_is_cut_off_takes_nothing_while_another_one_serves(
    seed: int, with_a_replica: bool
) -> None:
    """The world complains of writes that a master takes long after another one was promoted."""
    world = calm(seed)
    master = world.master()
    assert master is not None
    beside = next(one.name for one in world.brokers if one.name != master.host.name)
    cut_off(world, master.host.name, *([beside] if with_a_replica else []))
    world.run(4)
    assert not master.accepts_writes()
    if not with_a_replica:  # or nobody has two copies
        acknowledged_again(world, 2_000)
    world.run(6)
    world.network.heal()
    world.require_progress()
    assert master.core is not None
    assert master.core.serving is None


@pytest.mark.parametrize("seed", range(3))
def test_a_master_goes_on_without_controllers_as_long_as_its_members_answer(seed: int) -> None:
    world = calm(seed)
    epoch = world.durable.group.master_epoch
    for machine in world.controllers:
        machine.kill()
    for _ in range(5):
        world.run(2)
        acknowledged_again(world, 500)
    for machine in world.controllers:
        machine.boot()
    world.require_progress()
    assert world.durable.group.master_epoch == epoch


@pytest.mark.parametrize("seed", range(2))
def test_disks_that_all_hang_depose_nobody(seed: int) -> None:
    world = calm(seed)
    master = world.master()
    assert master is not None
    epoch = world.durable.group.master_epoch
    for machine in world.brokers:
        machine.disk.hang(15 * SECOND)
    world.run(12)
    assert world.durable.group.master_epoch == epoch
    assert not master.accepts_writes(), "it keeps the role and takes nothing"
    world.run(3)
    world.require_progress()
    assert world.durable.group.master_epoch == epoch


@pytest.mark.parametrize("seed", range(8))
def test_disks_that_hang_among_other_faults_lose_nothing(seed: int) -> None:
    world = ReplicaWorld(seed)
    rng = world.world.stream("hangs")
    world.boot()
    world.nemesis.start()
    for _ in range(4):
        world.run(3)
        rng.choice(world.brokers).disk.hang(rng.randint(1, 8) * SECOND)
    world.nemesis.stop()
    world.require_progress()


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
@pytest.mark.parametrize("seed", range(3))
def test_clocks_that_jump_by_an_hour_depose_nobody(seed: int, hours: int) -> None:
    world = calm(seed)
    before = world.durable.group
    epochs = (before.master_epoch, before.sync_state_set_epoch)
    for machine in world.brokers:
        machine.jump_clock(hours * 3600 * SECOND)
        world.run(1)
    acknowledged_again(world, 1_000)
    world.require_progress()
    after = world.durable.group
    assert (after.master_epoch, after.sync_state_set_epoch) == epochs, "nobody was blamed"


def test_a_lost_power_supply_loses_nothing() -> None:
    world = calm()
    for machine in world.brokers:
        machine.power_cut()
    world.run(0.5)
    for machine in world.brokers:
        machine.boot()
    world.require_progress()


def test_all_leave_together_and_come_back_as_they_were() -> None:
    world = calm()
    members = world.durable.group.sync_state_set
    for machine in world.brokers:
        broker = world.broker(machine)
        assert broker is not None
        broker.drain()
    world.run(0.3)
    world.require_progress()
    assert world.durable.group.sync_state_set == members


def test_a_sole_broker_goes_on_after_its_own_restart() -> None:
    world = calm(replicas=1, min_in_sync=1)
    machine = world.brokers[0]
    machine.power_cut()
    world.run(0.2)
    machine.boot()
    world.require_progress()
    assert world.durable.group.master_epoch >= 2


def test_writes_stop_below_the_minimum_and_go_on_above_it() -> None:
    world = calm()
    master = world.master()
    assert master is not None
    for machine in world.brokers:
        if machine.name != master.host.name:
            machine.kill()
    world.run(4)
    before = world.acknowledgements
    world.run(2)
    assert world.acknowledgements == before
    assert not master.accepts_writes()
    for machine in world.brokers:
        machine.boot()
    world.run(2 * SECOND / SECOND)
    assert world.acknowledgements > before
