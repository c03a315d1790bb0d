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

from gantry_controller.decisions import told
from gantry_controller.decisions.plain import NotStepsError, read, shown, written
from gantry_controller.decisions.state import core_of, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gantry_controller.decisions.files import StepsRead, StretchRead
    from gantry_controller.raft.core import RaftCore

_NOTHING = msgspec.UNSET


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
    """A stretch that was taken once more; no difference: it is the same."""

    number: int
    at: str
    steps: int
    difference: StepDiffers | None


class _OtherChanceError(Exception):
    """The core draws what was not drawn."""


class _SameChance:
    """Chance that says what it said."""

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


def fingerprint() -> str:
    """Of the code that decides: two processes with the same one do the same."""
    found = hashlib.sha256()
    for file in sorted(resources.files("gantry_controller.raft").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".py"):
            found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def retaken(recording: StepsRead, place: str) -> Iterator[StretchOutcome]:
    """Each stretch taken once more.

    Raises:
        NotStepsError: one cannot be read by this version.
    """
    stretches = recording.stretches
    for position, stretch in enumerate(stretches):
        after = stretches[position + 1] if position + 1 < len(stretches) else None
        try:
            yield _retaken(stretch, after, f"{place}, step {stretch.number}")
        except RecursionError:
            raise NotStepsError(f"{place}, step {stretch.number} is nested too deeply.") from None


def _retaken(stretch: StretchRead, after: StretchRead | None, place: str) -> StretchOutcome:
    chance = _SameChance()
    core = core_of(stretch.state, stretch.sizes, stretch.runs, chance, place)
    for number, step in enumerate(stretch.steps, start=stretch.number):
        kind, given, drawn, outcome = [*step, None, None, None][:4]
        place_of_step = f"{place}: step {number}"
        taken = INPUTS.get(kind)
        if taken is None:
            raise NotStepsError(f"{place_of_step}: this version knows no input {shown(kind)}.")
        input_now = read(given, place_of_step)
        chance.left = _numbers(drawn, place_of_step)
        now = written(_taken(core, taken, input_now))
        path = ""
        if chance.left:
            path, outcome, now = "chance", f"{len(drawn)} drawn", f"{len(chance.left)} fewer"
        elif now != outcome:
            path, outcome, now = _differs(outcome, now, "outcome")
        if path:
            found = StepDiffers(number, _label(kind, given), path, shown(outcome), shown(now))
            return StretchOutcome(stretch.number, stretch.at, len(stretch.steps), found)
    difference = _end_differs(core, stretch, after)
    return StretchOutcome(stretch.number, stretch.at, len(stretch.steps), difference)


def _end_differs(
    core: RaftCore, stretch: StretchRead, after: StretchRead | None
) -> StepDiffers | None:
    """The state must be the one that the next stretch begins with, unless some are missing."""
    end = stretch.number + len(stretch.steps)
    if after is None or after.number != end:
        return None
    state = msgspec.json.decode(msgspec.json.encode(state_of(core)))
    if state == after.state:
        return None
    path, recorded, now = _differs(after.state, state, "state")
    return StepDiffers(end - 1, "all before it", path, shown(recorded), shown(now))


def _taken(core: RaftCore, taken: Callable[[RaftCore, Any], Any], given: Any) -> Any:
    try:
        return taken(core, given)
    except _OtherChanceError as error:
        return told.Raised("chance", str(error))
    except Exception as error:  # noqa: BLE001 - that the core fails is an outcome, too
        return told.raised(error)


INPUTS: dict[str, Callable[[RaftCore, Any], Any]] = {
    "tick": lambda core, _: core.tick(),
    "leader_lost": lambda core, given: core.leader_lost(given),
    "connection_changed": lambda core, given: core.connection_changed(given),
    "say_layout": lambda core, given: core.say_layout(given),
    "propose": lambda core, given: core.propose(told.commands_again(given)),
    "read_index": lambda core, given: core.read_index([None] * given),
    "read_anywhere": lambda core, given: core.read_anywhere([None] * given),
    "set_lease": lambda core, given: core.set_lease(on=given),
    "barrier": lambda core, _: core.barrier(),
    "transfer": lambda core, given: core.transfer(given),
    "add_learner": lambda core, given: core.add_learner(*given),
    "promote": lambda core, given: core.promote(given),
    "remove": lambda core, given: core.remove(given),
    "step": lambda core, given: core.step(told.message_again(given)),
    "persisted": lambda core, given: core.persisted(given),
    "applied": lambda core, given: core.applied(given),
    "compact": lambda core, given: told.result_told(core.compact(*given)),
    "snapshot_offered": lambda core, given: core.snapshot_offered(*given),
    "install": lambda core, given: told.result_told(core.install(given)),
    "snapshot_delivered": lambda core, given: core.snapshot_delivered(*given),
    "digest_taken": lambda core, given: core.digest_taken(given),
    "ready": lambda core, given: told.ready_told(core.ready(given)),
}
"""Every input of a core; what a recorded one is taken by."""


def _numbers(drawn: Any, place: str) -> list[int]:
    if drawn is None:
        return []
    if not isinstance(drawn, list) or not all(isinstance(one, int) for one in drawn):
        raise NotStepsError(f"{place}: {shown(drawn)} was not drawn.")
    return list(drawn)


def _label(kind: str, given: Any) -> str:
    """The kind of an input and what it is about."""
    if isinstance(given, dict) and len(given) == 1:
        ((name, fields),) = given.items()
        if isinstance(fields, dict):
            inner = fields.get("append")
            if isinstance(inner, dict) and isinstance(inner.get("Append"), dict):
                name, fields = "Append", inner["Append"]
            source = fields.get("source")
            return f"{kind} {name}" + ("" if source is None else f" of node {source}")
    return kind


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
