"""Raft worlds that are made for one kind of trouble.

What a seed of the full swarm draws shifts with every change of the code, so a bug that only one
seed in a hundred meets is looked for in a world where its trouble is common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.kernel.disk import DiskOptions
from sim.kernel.nemesis import NemesisOptions
from sim.kernel.network import NetworkOptions
from sim.kernel.world import MS, SECOND, World
from sim.raft.process import ProcessKnobs
from sim.raft.world import RaftOptions, RaftWorld

if TYPE_CHECKING:
    from collections.abc import Callable


def killed_while_writing(seed: int) -> RaftWorld:
    """processes are killed and come back at once; the page cache is dirty"""
    return _world(seed, ["kill"], down_us=5 * MS, sync_us=(5 * MS, 300 * MS))


def late_leaders(seed: int) -> RaftWorld:
    """leaders sleep, or are cut off, while others are elected"""
    return _world(seed, ["pause_leader", "isolate_leader", "heal"], election_ticks=5)


def losing_volumes(seed: int) -> RaftWorld:
    """volumes are lost, and links break one way"""
    return _world(seed, ["wipe", "one_way", "split", "heal"], election_ticks=5)


def taking_snapshots(seed: int) -> RaftWorld:
    """snapshots all the time; followers that lag and new volumes need them"""
    rng = World(seed).stream("place")
    return RaftWorld(
        seed,
        RaftOptions(
            election_ticks=rng.choice([5, 10]),
            append_bytes_max=rng.choice([1, 100, 256 * 1024]),
            spares=rng.choice([0, 1]),
            administer_every_us=rng.choice([0, 500]) * MS,
            faulty_us=15 * SECOND,
        ),
        knobs=ProcessKnobs(
            snapshot_entries=rng.choice([3, 10]), snapshot_margin=rng.choice([0, 0, 2])
        ),
        disk=DiskOptions.swarm(rng),
        network=NetworkOptions.swarm(rng),
        nemesis=NemesisOptions(
            faults=["isolate", "split", "kill", "power_cut", "power_cut_all", "wipe", "heal"],
            mean_gap_us=500 * MS,
        ),
    )


def shipping_snapshots(seed: int) -> RaftWorld:
    """snapshots in chunks that get lost, doubled and late, while leaders change and nodes end"""
    # Entries are applied one by one, so that nodes take their snapshots of the same states and a
    # new leader can go on where the old one stopped.
    rng = World(seed).stream("place")
    return RaftWorld(
        seed,
        RaftOptions(
            members=rng.choice([3, 3, 5]),
            election_ticks=5,
            propose_every_us=rng.choice([10, 40]) * MS,
            apply_entries_max=1,
            administer_every_us=rng.choice([0, 500]) * MS,
            faulty_us=15 * SECOND,
        ),
        knobs=ProcessKnobs(
            snapshot_entries=rng.choice([10, 100]), chunk_bytes=rng.choice([4, 10, 40])
        ),
        network=NetworkOptions(
            latency_us=(1_000, 20_000),
            loss_rate=rng.choice([0.0, 0.02, 0.1]),
            duplicate_rate=rng.choice([0.0, 0.1, 0.3]),
            fifo=rng.random() < 0.6,
        ),
        disk=DiskOptions(sync_us=(100, 5_000)),
        nemesis=NemesisOptions(
            faults=["isolate", "isolate_leader", "kill_leader", "wipe", "heal", "heal"],
            mean_gap_us=400 * MS,
        ),
    )


def leased(seed: int) -> RaftWorld:
    """leases are on; leaders sleep or are cut off, nodes restart at once, clocks differ"""
    return RaftWorld(
        seed,
        RaftOptions(
            election_ticks=10,
            propose_every_us=30 * MS,
            read_every_us=10 * MS,
            switch_lease_every_us=2 * SECOND,
            clock_drift=0.05,
            faulty_us=15 * SECOND,
        ),
        disk=DiskOptions(sync_us=(100, 2_000)),
        nemesis=NemesisOptions(
            faults=["pause_leader", "isolate_leader", "one_way", "kill", "heal"],
            mean_gap_us=300 * MS,
            down_us=20 * MS,
        ),
    )


def splits(seed: int) -> RaftWorld:
    """partitions leave followers with a leader that was replaced; all nodes answer reads"""
    return RaftWorld(
        seed,
        RaftOptions(
            members=5,
            election_ticks=5,
            read_every_us=5 * MS,
            ask_leader_rate=0.3,
            faulty_us=10 * SECOND,
        ),
        disk=DiskOptions(sync_us=(100, 2_000)),
        nemesis=NemesisOptions(faults=["split", "split", "heal"], mean_gap_us=300 * MS),
    )


def late_answers(seed: int) -> RaftWorld:
    """messages arrive late, twice and out of order, and all nodes answer reads"""
    return RaftWorld(
        seed,
        RaftOptions(propose_every_us=20 * MS, read_every_us=10 * MS, faulty_us=4 * SECOND),
        network=NetworkOptions(
            latency_us=(200, 8_000), spike_rate=0.1, spike_us=60 * MS, duplicate_rate=0.3
        ),
        disk=DiskOptions(sync_us=(100, 2_000)),
        nemesis=NemesisOptions(faults=["heal"]),
    )


def changing_members(seed: int) -> RaftWorld:
    """members come and go all the time, under partitions and kills"""
    rng = World(seed).stream("place")
    return RaftWorld(
        seed,
        RaftOptions(
            members=rng.choice([2, 3, 3, 4]),
            spares=2,
            administer_every_us=rng.choice([100, 400]) * MS,
            priorities=rng.choice([(0,), (0, 1)]),
            election_ticks=rng.choice([5, 10]),
            append_bytes_max=rng.choice([1, 256 * 1024]),
            read_every_us=20 * MS,
            faulty_us=15 * SECOND,
        ),
        disk=DiskOptions.swarm(rng),
        network=NetworkOptions.swarm(rng),
        nemesis=NemesisOptions(
            faults=["isolate_leader", "split", "kill_leader", "bounce", "one_way", "heal"],
            mean_gap_us=500 * MS,
        ),
    )


def _world(
    seed: int,
    faults: list[str],
    *,
    election_ticks: int = 20,
    down_us: int = SECOND,
    sync_us: tuple[int, int] = (100, 2_000),
) -> RaftWorld:
    return RaftWorld(
        seed,
        RaftOptions(election_ticks=election_ticks, read_every_us=20 * MS, faulty_us=15 * SECOND),
        disk=DiskOptions(sync_us=sync_us),
        nemesis=NemesisOptions(faults=faults, mean_gap_us=300 * MS, down_us=down_us),
    )


PLACES: dict[str, Callable[[int], RaftWorld]] = {
    "raft-kills": killed_while_writing,
    "raft-late-leaders": late_leaders,
    "raft-volumes": losing_volumes,
    "raft-members": changing_members,
    "raft-snapshots": taking_snapshots,
    "raft-shipments": shipping_snapshots,
    "raft-leases": leased,
    "raft-late-answers": late_answers,
    "raft-splits": splits,
}
