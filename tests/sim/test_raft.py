"""The Raft world: safety under faults, progress after them, replay.

More seeds: ``gantry_lab simulate``. Bugs planted here: ``test_mutants``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sim.kernel.disk import DiskOptions
from sim.kernel.nemesis import NemesisOptions
from sim.kernel.world import MS, SECOND
from sim.raft.places import PLACES
from sim.raft.scripts import SCRIPTS
from sim.raft.world import RaftOptions, RaftWorld, run_seed

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(24)
TESTS = Path(__file__).resolve().parents[1]
RARE_EVENTS = (
    "raft.compacted",
    "raft.installed",
    "shipment.resumed",
    "raft.members",
    "read.follower",
    "raft.cut",
    "raft.leader-lost",
    "raft.quorum-lost",
    "raft.wiped",
    "raft.counted",
    "client.overloaded",
    "disk.stall",
    "fault.power_cut_all",
)


@cache
def outcome(seed: int) -> tuple[int, dict[str, int]]:
    """Reads checked and rare events of a seed; a seed is run once, whoever asks."""
    world = run_seed(seed)
    return world.invariants.reads_checked, world.world.counters


@pytest.mark.parametrize("seed", SEEDS)
def test_seed_is_safe_and_makes_progress(seed: int) -> None:
    outcome(seed)


def test_the_seeds_reach_what_they_are_for() -> None:
    outcomes = [outcome(seed) for seed in SEEDS]
    seen: dict[str, int] = {}
    for _, counters in outcomes:
        for name, count in counters.items():
            seen[name] = seen.get(name, 0) + count
    assert sum(reads for reads, _ in outcomes) > 300
    assert [name for name in RARE_EVENTS if not seen.get(name)] == []


def test_equal_seeds_replay_in_processes_of_different_hash_seeds() -> None:
    """Determinism: nothing depends on the order of a set of strings, or on the process."""
    script = "from sim.raft.world import run_seed; print(run_seed(11).world.trace_hash)"

    def trace_hash(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(TESTS)}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    here = run_seed(11).world.trace_hash
    assert [trace_hash("1"), trace_hash("2")] == [here, here]


@pytest.mark.parametrize("name", PLACES)
def test_worlds_made_for_trouble_are_safe(name: str) -> None:
    for seed in range(3):
        PLACES[name](seed).run()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_script(script: Callable[[], None]) -> None:
    script()


def quiet_world(seed: int, members: int = 3) -> RaftWorld:
    """No faults but those a test causes; a fast disk."""
    world = RaftWorld(
        seed,
        RaftOptions(members=members),
        disk=DiskOptions(sync_us=(100, 1_000)),
        nemesis=NemesisOptions(faults=["heal"]),
    )
    world.boot()
    world.start_clients()
    assert world.world.run(for_us=5 * SECOND, until=lambda: len(world.acked) > 20)
    return world


@pytest.mark.parametrize("seed", range(10))
def test_writes_go_on_within_a_second_of_the_leader_being_killed(seed: int) -> None:
    """The closed connection and the refused one end the wait for the election time-out."""
    world = quiet_world(seed)
    for _ in range(3):
        leader = world.leader()
        assert leader is not None
        machine = world.network.machines[leader.host.name]
        machine.kill()
        acked = len(world.acked)
        began_us = world.world.now_us
        assert world.world.run(for_us=SECOND, until=lambda acked=acked: len(world.acked) > acked)
        assert world.world.now_us - began_us < 600 * MS
        machine.boot()
        world.world.run(for_us=SECOND)


def test_a_lost_volume_heals_by_itself_and_two_do_not() -> None:
    world = quiet_world(1)
    victim = next(machine for machine in world.machines if machine.actor is not world.leader())
    victim.wipe()
    victim.boot()
    assert world.world.run(
        for_us=5 * SECOND, until=lambda: world.invariants.durable[victim.name].is_voter
    )
    for machine in world.machines[:2]:
        machine.wipe()
        machine.boot()
    acked = len(world.acked)
    world.world.run(for_us=20 * SECOND)
    assert len(world.acked) == acked, "a minority with data must not go on alone"
    assert not any(world.invariants.durable[m.name].is_voter for m in world.machines[:2])


def test_a_new_quorum_waits_for_all_of_its_members() -> None:
    world = RaftWorld(2, RaftOptions(members=3), nemesis=NemesisOptions(faults=["heal"]))
    world.start_clients()
    for machine in world.machines[:2]:
        machine.boot()
    world.world.run(for_us=10 * SECOND)
    assert world.leader() is None
    world.machines[2].boot()
    assert world.world.run(for_us=5 * SECOND, until=lambda: len(world.acked) > 0)
