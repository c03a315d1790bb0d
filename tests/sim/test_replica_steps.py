"""Steps of the brokers of simulated seeds: each ring is the same when it is taken once more."""

from __future__ import annotations

import logging
from typing import Any

import gantry_broker.decisions.rings
import pytest
from gantry_protocol.steps.ring import StepRing
from sim.product.run import run
from support.replica_steps import again


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> list[StepRing]:
    """Those of all brokers that run."""
    logging.getLogger("gantry").setLevel("CRITICAL")
    made: list[StepRing] = []

    def ring(bytes_max: int) -> StepRing:
        made.append(StepRing(bytes_max // 16))
        return made[-1]

    monkeypatch.setattr(gantry_broker.decisions.rings, "StepRing", ring)
    return made


@pytest.mark.parametrize(("kind", "seed"), [("product", 0), ("readers", 0)])
def test_the_rings_of_a_seed_are_found_again(rings: list[Any], kind: str, seed: int) -> None:
    run(seed, kind=kind)
    assert len(rings) >= 3
    assert sum(len(again(ring).stretches) for ring in rings) > len(rings)
    assert sum(ring.entries + ring.dropped for ring in rings) > 200
