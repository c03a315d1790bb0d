"""Seeds of retention without a tier: nothing is forgotten, and nobody is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.queues import MessageStore
from sim.kernel.world import Violation
from sim.tier.own_retention_world import OwnRetentionWorld

SEEDS = range(5)
STEPS = 250
SEEDS_MAX = 30


def run(seed: int, directory: Path) -> OwnRetentionWorld:
    world = OwnRetentionWorld(seed, directory)
    try:
        world.run(STEPS)
    finally:
        world.close()
    return world


def test_nothing_is_forgotten_and_nobody_left_behind(tmp_path: Path) -> None:
    reached: dict[str, int] = {}
    for seed in SEEDS:
        for name, count in run(seed, tmp_path / str(seed)).counters.items():
            reached[name] = reached.get(name, 0) + count
    assert {"trim", "state", "reset", "rebuilt", "wiped", "elected", "sent on"} <= reached.keys()


def dies(directory: Path) -> str:
    """The first violation of any seed."""
    for seed in range(SEEDS_MAX):
        try:
            run(seed, directory / str(seed))
        except Violation as found:
            print(f"died at seed {seed}: {str(found)[:160]}")
            return str(found)
    pytest.fail(f"{SEEDS_MAX} seeds lived with the planted bug")


def test_cutting_before_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning of the log goes, and with it what was said there and is in force."""
    monkeypatch.setattr(MessageStore, "whole_from", property(lambda self: self.log.end))
    assert dies(tmp_path).startswith(("whole", "once"))
