"""Cores of the simulator whose steps are recorded, and the same steps taken once more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import sim.raft.process
from gantry_controller.decisions.recorded import RecordedCore
from gantry_controller.decisions.replay import RAFT
from gantry_protocol.steps.files import StepsRead, steps_of, written_file
from gantry_protocol.steps.replay import CoreKind, StepDiffers, retaken
from gantry_protocol.steps.ring import StepRing


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
    return file_of_rings(RAFT, {"": ring}, process)


def file_of_rings(machine: CoreKind, rings: Mapping[str, StepRing], process: str) -> bytes:
    held = {of: ring.held() for of, ring in rings.items()}
    return written_file(
        held,
        machine.plain,
        core=machine.core,
        process=process,
        version="0.1.0",
        code=machine.fingerprint(),
    )


def differences(recording: StepsRead, machine: CoreKind = RAFT) -> list[StepDiffers]:
    found = retaken(machine, recording, "file")
    return [one.difference for one in found if one.difference is not None]


def first_difference(recording: StepsRead, machine: CoreKind = RAFT) -> StepDiffers | None:
    found = (one.difference for one in retaken(machine, recording, "file"))
    return next((one for one in found if one is not None), None)


def again(ring: StepRing) -> StepsRead:
    """Raises AssertionError: a step is another one when it is taken from a file."""
    assert ring.ended == ""
    recording = steps_of(file_of(ring), "file")
    assert sum(len(one.steps) for one in recording.stretches) == ring.entries
    found = differences(recording)
    assert found == [], found[0]
    return recording
