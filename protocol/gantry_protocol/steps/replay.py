"""Recorded steps, taken once more by the core of this version and compared; pure.

Each stretch begins with the state that was recorded, and goes on from there with the inputs and the
chance that were. It is the same if after each input the same comes out, and if at its end the state
is the one that the next stretch begins with. The first difference ends a stretch: what comes behind
it follows from another state.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gantry_protocol.steps.plain import NotStepsError, Plain, Raised, raised, shown
from gantry_protocol.steps.ring import RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gantry_protocol.steps.files import StepsRead, StretchRead

_NOTHING = msgspec.UNSET

Item = tuple[str, Any, Any, Any]
"""A step: kind, what was given, what chance said, what came out."""


class CoreKind(NamedTuple):
    """A kind of core whose steps can be taken once more.

    Attributes:
        core: its name in headings, and that of its folder in bundles.
        package: the code that decides.
        plain: the form of its values.
        inputs: takes a recorded input by its kind, and gives what came out.
        core_of: a core that goes on from a state, with the chance and a place for people.
        state_of: everything that a core's decisions rest on.
        label: an input in words, by its kind and its plain form.
        items: the steps that a run stands for, of what it was given.
    """

    core: str
    package: str
    plain: Plain
    inputs: Mapping[str, Callable[[Any, Any], Any]]
    core_of: Callable[[StretchRead, SameChance, str], Any]
    state_of: Callable[[Any], Any]
    label: Callable[[str, Any], str]
    items: Callable[[Any], Iterable[Item]] = lambda _: ()

    def fingerprint(self) -> str:
        """Of the code that decides: two processes with the same one do the same."""
        found = hashlib.sha256()
        for file in sorted(resources.files(self.package).iterdir(), key=lambda one: one.name):
            if file.name.endswith(".py"):
                found.update(file.name.encode() + b"\0" + file.read_bytes())
        return found.hexdigest()[:16]


class StepDiffers(NamedTuple):
    """The first step of a stretch at which this version does otherwise.

    Attributes:
        number: of the step, from the start of the process.
        given: its input, in words.
        path: what differs.
    """

    number: int
    given: str
    path: str
    recorded: str
    now: str


class StretchOutcome(NamedTuple):
    """A stretch that was taken once more; no difference: it is the same.

    Attributes:
        of: the group whose core it is; empty where a process has one core.
    """

    number: int
    at: str
    steps: int
    difference: StepDiffers | None
    of: str = ""


class _OtherChanceError(Exception):
    """The core draws what was not drawn."""


class SameChance:
    """Chance that says what it said.

    Attributes:
        left: numbers that are yet to be drawn.
    """

    def __init__(self) -> None:
        self.left: list[int] = []

    def randrange(self, start: int, stop: int) -> int:
        """A number in [start, stop)."""
        found = self._next()
        if not start <= found < stop:
            raise _OtherChanceError(f"draws from {start} to {stop - 1}, and {found} was drawn")
        return found

    def getrandbits(self, k: int, /) -> int:
        """A number in [0, 2**k)."""
        found = self._next()
        if found >> k:
            raise _OtherChanceError(f"draws {k} bits, and {found} was drawn")
        return found

    def _next(self) -> int:
        if not self.left:
            raise _OtherChanceError("draws a number, and none was drawn")
        return self.left.pop(0)


def retaken(machine: CoreKind, recording: StepsRead, place: str) -> Iterator[StretchOutcome]:
    """Each stretch taken once more.

    Raises:
        NotStepsError: one cannot be read by this version.
    """
    stretches = recording.stretches
    for position, stretch in enumerate(stretches):
        after = stretches[position + 1] if position + 1 < len(stretches) else None
        where = f"{place}, {stretch.of}" if stretch.of else place
        try:
            yield _retaken(machine, stretch, after, f"{where}, step {stretch.number}")
        except RecursionError:
            raise NotStepsError(f"{where}, step {stretch.number} is nested too deeply.") from None
        except (TypeError, AttributeError, LookupError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            raise NotStepsError(
                f"{where}, stretch of step {stretch.number} leads to no state of a core ({why})."
            ) from None


def _retaken(
    machine: CoreKind, stretch: StretchRead, after: StretchRead | None, place: str
) -> StretchOutcome:
    chance = SameChance()
    core = machine.core_of(stretch, chance, place)
    difference: StepDiffers | None = None
    for number, step in _each(machine, stretch, place):
        kind, given, drawn, outcome = [*step, None, None, None][:4]
        place_of_step = f"{place}: step {number}"
        taken = machine.inputs.get(kind)
        if taken is None:
            raise NotStepsError(f"{place_of_step}: this version knows no input {shown(kind)}.")
        input_now = machine.plain.read(given, place_of_step)
        chance.left = _numbers(drawn, place_of_step)
        now = machine.plain.written(_taken(core, taken, input_now))
        path = ""
        if chance.left:
            path, outcome, now = "chance", f"{len(drawn)} drawn", f"{len(chance.left)} fewer"
        elif now != outcome:
            path, outcome, now = _differs(outcome, now, "outcome")
        if path:
            label = machine.label(kind, given)
            difference = StepDiffers(number, label, path, shown(outcome), shown(now))
            break
    else:
        difference = _end_differs(machine, core, stretch, after)
    return StretchOutcome(stretch.number, stretch.at, len(stretch.steps), difference, stretch.of)


def _each(machine: CoreKind, stretch: StretchRead, place: str) -> Iterator[tuple[int, list[Any]]]:
    """Each step with its number; those of a run have the same."""
    for number, step in enumerate(stretch.steps, start=stretch.number):
        if step[0] != RUN:
            yield number, step
            continue
        try:
            numbers = machine.plain.read(step[-1], place)
            items = [
                [kind, machine.plain.written(given), drawn, machine.plain.written(outcome)]
                for kind, given, drawn, outcome in machine.items(numbers)
            ]
        except (TypeError, ValueError, LookupError) as error:
            raise NotStepsError(f"{place}: step {number} is no run: {error}.") from None
        for item in items:
            yield number, item


def _end_differs(
    machine: CoreKind, core: Any, stretch: StretchRead, after: StretchRead | None
) -> StepDiffers | None:
    """The state must be the one that the next stretch begins with, unless some are missing."""
    end = stretch.number + len(stretch.steps)
    if after is None or (after.of, after.number) != (stretch.of, end):
        return None
    state = msgspec.json.decode(msgspec.json.encode(machine.state_of(core)))
    if state == after.state:
        return None
    path, recorded, now = _differs(after.state, state, "state")
    return StepDiffers(end - 1, "all before it", path, shown(recorded), shown(now))


def _taken(core: Any, taken: Callable[[Any, Any], Any], given: Any) -> Any:
    try:
        return taken(core, given)
    except _OtherChanceError as error:
        return Raised("chance", str(error))
    except Exception as error:  # noqa: BLE001 - that the core fails is an outcome, too
        return raised(error)


def _numbers(drawn: Any, place: str) -> list[int]:
    if drawn is None:
        return []
    if not isinstance(drawn, list) or not all(isinstance(one, int) for one in drawn):
        raise NotStepsError(f"{place}: {shown(drawn)} was not drawn.")
    return list(drawn)


def _differs(one: Any, other: Any, path: str) -> tuple[str, Any, Any]:
    """The first place at which two plain values differ, and what stands there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            here, there = one.get(key, _NOTHING), other.get(key, _NOTHING)
            if here != there:
                return _differs(here, there, f"{path}.{key}")
    if isinstance(one, list) and isinstance(other, list):
        for number, (here, there) in enumerate(zip(one, other, strict=False)):
            if here != there:
                return _differs(here, there, f"{path}[{number}]")
        shared = min(len(one), len(other))
        rest = one[shared:] or "nothing", other[shared:] or "nothing"
        return f"{path}[{shared}]", rest[0], rest[1]
    return path, "nothing" if one is _NOTHING else one, "nothing" if other is _NOTHING else other
