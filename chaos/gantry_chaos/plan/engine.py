"""Plays a time line: chooses targets, injects, proves, heals.

The rule protected here: whatever ends a run, no fault outlives it. The undo of each fault is in the
journal before the fault is injected; a run that ends early heals what is open, and `heal` does the
same for a run whose process was killed. An undo that fails does not keep others from being run.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol

import msgspec
from gantry_protocol.errors import GantryError

from gantry_chaos.errors import InjectionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_chaos.core.actions import Action, Injection, Undo
    from gantry_chaos.core.timeline import Fault, Timeline
    from gantry_chaos.plan.journal import Journal


class Executor(Protocol):
    """Brings actions about."""

    def perform(self, action: Action) -> None:
        """Do it, or raise `InjectionError`."""
        ...

    def undo(self, part: Undo) -> None:
        """Run a part of an undo; raise `InjectionError` if a check finds that it did not work."""
        ...


class Backend(Executor, Protocol):
    """A kind of cluster that faults can be injected into."""

    def prepare(self, fault: Fault, random: Random) -> Injection:
        """Choose the targets of `fault` and say what is to be done; nothing is changed yet."""
        ...

    def prove(self, fault: Fault) -> str:
        """The reason why the fault does not bite; empty if it does. Asked before the heal."""
        ...

    def ended(self, fault: Fault) -> str:
        """`fault` was healed: end what was started for it; why it is still felt, or empty."""
        ...


class Clock(Protocol):
    """Time and waiting."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Band(msgspec.Struct, frozen=True):
    """A fault as it really was: on the clock of the run, with its targets and its proof.

    Attributes:
        invalid: why it did not bite; empty if it did. A run with such a fault proves nothing.
    """

    fault: str
    targets: tuple[str, ...]
    start_s: float
    end_s: float
    invalid: str = ""


def run(
    timeline: Timeline,
    backend: Backend,
    journal: Journal,
    clock: Clock,
    *,
    seed: int,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Band]:
    """Play `timeline` to its end; the faults as they were, in the order of their heals.

    Args:
        timeline: what is to happen.
        backend: where.
        journal: of this run; what is open in it is healed at the end, too.
        clock: of the caller; bands are on it.
        seed: decides which pods are chosen; the same seed chooses the same of the same pods.
        tell: gets a sentence for every step.

    Raises:
        GantryError: a fault could not be injected or healed; all others were healed.
    """
    began_s = clock.now()
    begun: dict[str, tuple[float, Injection]] = {}
    verdicts: dict[str, str] = {}
    bands: list[Band] = []
    try:
        for step in timeline.steps():
            clock.sleep(max(0.0, began_s + step.at_s - clock.now()))
            fault = step.fault
            match step.kind:
                case "inject":
                    injection = backend.prepare(fault, Random(f"{seed}/{fault.id}"))  # noqa: S311
                    tell(f"{fault.id}: {', '.join(injection.targets)}")
                    begun[fault.id] = (clock.now(), injection)
                    _inject(fault, injection, backend, journal)
                case "prove":
                    verdicts[fault.id] = _verdict(backend.prove, fault)
                case "heal":
                    start_s, injection = begun[fault.id]
                    _heal(fault.id, injection.undo, backend, journal)
                    end_s, after = clock.now(), _verdict(backend.ended, fault)
                    invalid = " ".join(filter(None, (verdicts[fault.id], after)))
                    tell(f"{fault.id}: {invalid or 'it bit, and is healed.'}")
                    bands.append(Band(fault.id, injection.targets, start_s, end_s, invalid))
        clock.sleep(max(0.0, began_s + timeline.end_s - clock.now()))
    finally:
        heal(journal, backend)
    return bands


def heal(journal: Journal, executor: Executor) -> list[str]:
    """Undo every open fault of a journal, the newest first; which ones there were.

    Raises:
        InjectionError: some could not be undone; they stay open, all others are healed.
    """
    healed: list[str] = []
    failed: list[str] = []
    for begin in reversed(journal.open_faults):
        try:
            _heal(begin.fault, begin.undo, executor, journal)
        except GantryError as error:
            failed.append(f"{begin.fault}: {error}")
        else:
            healed.append(begin.fault)
    if failed:
        raise InjectionError(
            f"{len(failed)} faults of {journal.path} are not healed: {' '.join(failed)}"
        )
    return healed


def _verdict(ask: Callable[[Fault], str], fault: Fault) -> str:
    """What a proof says; one that could not be taken says so, and the fault is healed anyway."""
    try:
        return ask(fault)
    except GantryError as error:
        return f"There is no proof: {error}"


def _inject(fault: Fault, injection: Injection, executor: Executor, journal: Journal) -> None:
    journal.begin(fault.id, injection.targets, injection.undo)
    for action in injection.actions:
        executor.perform(action)
    journal.injected(fault.id)


def _heal(fault: str, undo: tuple[Undo, ...], executor: Executor, journal: Journal) -> None:
    for part in undo:
        executor.undo(part)
    journal.healed(fault)
