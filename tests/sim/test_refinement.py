"""Wrong steps of which nothing came: only the check of single steps sees them in a few seeds."""

from __future__ import annotations

import pytest
from sim.catalogue import KINDS, play
from sim.mutants.catalogue import MUTANTS
from sim.mutants.planting import planted

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("old-term-commit-by-counting", "which is of an older term"),
        ("vote-is-forgotten", "has forgotten its vote"),
        ("vote-before-persist", "not on its disk"),
        ("candidacy-before-persist", "not on its disk"),
        ("vote-without-log-check", "whose log is behind its own"),
        ("truncate-without-conflict", "which nothing contradicts"),
        ("old-term-append", "which no leader of its term sent"),
        ("heartbeat-with-bare-commit", "tells node"),
    ],
)
def test_a_wrong_step_is_seen_when_it_is_made(name: str, step: str) -> None:
    with planted(BY_NAME[name].edits):
        found = next(filter(None, (play(KINDS["raft"], seed).violation for seed in range(6))))
    first = found.splitlines()[0]
    assert "refinement: " in first
    assert step in first
