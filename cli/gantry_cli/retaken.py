"""Recorded steps of cores in a support bundle, taken once more, and what is said of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from gantry_broker.decisions.replay import REPLICA
from gantry_controller.decisions.replay import RAFT
from gantry_protocol.steps.files import StepsRead, steps_of
from gantry_protocol.steps.plain import NotStepsError, shown
from gantry_protocol.steps.replay import CoreKind, StretchOutcome, retaken

from gantry_cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gantry_operator.support.replay import Recorded

MACHINES = {machine.core: machine for machine in (RAFT, REPLICA)}
_PROCESSES = {RAFT.core: "controllers", REPLICA.core: "brokers"}


class StepsFile(msgspec.Struct, frozen=True):
    """A file of steps.

    Attributes:
        machine: which took them.
    """

    place: str
    machine: CoreKind
    recording: StepsRead


class StepsSum(msgspec.Struct):
    """The steps of all files: how many, and how many came out the same.

    Attributes:
        differing: stretches in which one came out otherwise.
        left: steps behind such a one, which follow from another state.
    """

    total: int = 0
    same: int = 0
    differing: int = 0
    left: int = 0


def steps_files(found: Iterable[Recorded]) -> list[StepsFile]:
    """The files of steps among those of a bundle.

    Raises:
        NotStepsError: one cannot be read by this version.
    """
    return [_file(one) for one in found if one.folder in MACHINES]


def _file(found: Recorded) -> StepsFile:
    recording = steps_of(found.data, found.place)
    if recording.heading.core != found.folder:
        raise NotStepsError(f"{found.place} holds steps of {shown(recording.heading.core)}.")
    return StepsFile(found.place, MACHINES[found.folder], recording)


def show_steps(
    files: list[StepsFile], *, only: bool, output: str, say: Callable[[str], None]
) -> StepsSum:
    """Takes the steps once more and shows each stretch of them.

    Raises:
        NotStepsError: one cannot be read by this version.
    """
    total = StepsSum()
    for file in files:
        heading, here = file.recording.heading, file.machine.fingerprint()
        if output == "text" and heading.code != here:
            say(
                f"{file.place}: recorded by version {heading.version} with other code of the core "
                f"({heading.code}, here {here}); what differs may be what was changed since."
            )
        if output == "text" and heading.ended:
            say(f"{file.place}: the recording had ended before: {heading.ended}")
        for outcome in retaken(file.machine, file.recording, file.place):
            _count(total, outcome)
            if outcome.difference is None and only:
                continue
            if output == "json":
                print_json(_as_json(file, outcome))
            else:
                _show(file, outcome, say)
    return total


def sum_of(files: list[StepsFile], total: StepsSum) -> str:
    """The last line about steps."""
    versions = ", ".join(sorted({file.recording.heading.version for file in files}))
    counts = Counter(_PROCESSES[file.machine.core] for file in files)
    by = " and ".join(f"{count} {name}" for name, count in sorted(counts.items(), reverse=True))
    text = f"{total.total} steps of {by} of version {versions}: "
    text += f"{total.same} the same, {total.differing} otherwise"
    return f"{text}, {total.left} not compared behind these." if total.left else f"{text}."


def _count(total: StepsSum, outcome: StretchOutcome) -> None:
    total.total += outcome.steps
    same = outcome.steps
    if outcome.difference is not None:
        same = outcome.difference.number - outcome.number
        total.differing += 1
        total.left += outcome.steps - same - 1
    total.same += same


def _show(file: StepsFile, outcome: StretchOutcome, say: Callable[[str], None]) -> None:
    last = outcome.number + outcome.steps - 1
    found = outcome.difference
    word = "the same" if found is None else "otherwise"
    of = f" {shown(outcome.of)}" if outcome.of else ""
    say(f"{outcome.at} {file.place}{of}: steps {outcome.number} to {last}: {word}")
    if found is not None:
        say(
            f"  differs at step {found.number} ({found.given}), {found.path}: recorded "
            f"{found.recorded}, now {found.now}"
        )


def _as_json(file: StepsFile, outcome: StretchOutcome) -> dict[str, object]:
    found = outcome.difference
    return {
        "file": file.place,
        "process": file.recording.heading.process,
        "group": outcome.of,
        "first": outcome.number,
        "at": outcome.at,
        "steps": outcome.steps,
        "differences": [] if found is None else [found._asdict()],
    }
