"""Recorded steps of cores in a support bundle, taken once more, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_controller.decisions.files import StepsRead, steps_of
from gantry_controller.decisions.replay import StretchOutcome, fingerprint, retaken
from gantry_operator.support.bundle import RAFT

from gantry_cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gantry_operator.support.replay import Recorded


class StepsFile(msgspec.Struct, frozen=True):
    """A file of steps."""

    place: str
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
    return [
        StepsFile(one.place, steps_of(one.data, one.place)) for one in found if one.folder == RAFT
    ]


def show_steps(
    files: list[StepsFile], *, only: bool, output: str, say: Callable[[str], None]
) -> StepsSum:
    """Takes the steps once more and shows each stretch of them.

    Raises:
        NotStepsError: one cannot be read by this version.
    """
    total = StepsSum()
    here = fingerprint()
    for file in files:
        heading = file.recording.heading
        if output == "text" and heading.code != here:
            say(
                f"{file.place}: recorded by version {heading.version} with other code of the core "
                f"({heading.code}, here {here}); what differs may be what was changed since."
            )
        if output == "text" and heading.ended:
            say(f"{file.place}: the recording had ended before: {heading.ended}")
        for outcome in retaken(file.recording, file.place):
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
    text = f"{total.total} steps of {len(files)} controllers of version {versions}: "
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
    say(f"{outcome.at} {file.place}: steps {outcome.number} to {last}: {word}")
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
        "first": outcome.number,
        "at": outcome.at,
        "steps": outcome.steps,
        "differences": [] if found is None else [found._asdict()],
    }
