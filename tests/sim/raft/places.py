"""Raft worlds that are made for one kind of trouble.

What a seed of the full swarm draws shifts with every change of the code, so a bug that only one
seed in a hundred meets is looked for in a world where its trouble is common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.kernel.disk import DiskOptions
from sim.kernel.nemesis import NemesisOptions
from sim.kernel.world import MS, SECOND
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
}
