"""Cores of the simulator whose steps are recorded, and the same steps taken once more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import sim.raft.process
from gantry_controller.decisions.files import StepsRead, steps_of, written_file
from gantry_controller.decisions.recorded import RecordedCore
from gantry_controller.decisions.replay import StepDiffers, fingerprint, retaken
from gantry_controller.decisions.ring import StepRing


@contextlib.contextmanager
def recorded_cores(bytes_max: int = 1 << 30) -> Iterator[list[tuple[RecordedCore, StepRing]]]:
    """Every core that a simulated process makes inside is recorded; these are they."""
    made: list[tuple[RecordedCore, StepRing]] = []

    def core(*args: Any, **start: Any) -> RecordedCore:
        ring = StepRing(bytes_max)
        found = RecordedCore(*args, ring=ring, time=lambda: "2026-11-30T00:00:00+00:00", **start)
        made.append((found, ring))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim.raft.process, "RaftCore", core)
        yield made


def file_of(ring: StepRing, process: str = "controller-0") -> bytes:
    return written_file(ring.held(), process=process, version="0.1.0", code=fingerprint())


def differences(recording: StepsRead) -> list[StepDiffers]:
    return [one.difference for one in retaken(recording, "file") if one.difference is not None]


def first_difference(recording: StepsRead) -> StepDiffers | None:
    found = (one.difference for one in retaken(recording, "file"))
    return next((one for one in found if one is not None), None)


def again(ring: StepRing) -> StepsRead:
    """Raises AssertionError: a step is another one when it is taken from a file."""
    assert ring.ended == ""
    recording = steps_of(file_of(ring), "file")
    assert sum(len(one.steps) for one in recording.stretches) == ring.entries
    found = differences(recording)
    assert found == [], found[0]
    return recording
