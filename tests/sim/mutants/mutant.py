"""A mutant: a bug, the rule it breaks, and what must kill it.

Killers, from the cheapest: a ``Script`` plays one interleaving; ``UnitTests`` are tests; ``Seeds``
are runs of a world, at most so many. Each must pass without the bug, on the very seed that killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gantry_protocol.errors import GantryError
from sim.catalogue import KINDS, play
from sim.mutants import batch
from sim.mutants.planting import Edit, StaleMutant, planted

TESTS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Death:
    """How a mutant ended.

    Attributes:
        by: what killed it, for the table.
        seed: of the world that did, or None.
        words: the first line of what was found.
        cpu_s: processor time from the planting to the finding.
    """

    by: str
    seed: int | None
    words: str
    cpu_s: float


class Alive(Exception):  # noqa: N818 - a state of the mutant
    """Nothing noticed the bug, or the killer fails without it; the text says which."""


@dataclass(frozen=True)
class Seeds:
    """Seeds 0 to ``within`` - 1 of a kind of world (``catalogue.KINDS``)."""

    kind: str
    within: int

    def kill(self, edits: tuple[Edit, ...]) -> Death:
        """Raises Alive."""
        kind = KINDS[self.kind]
        began_s = time.process_time()
        for seed in range(self.within):
            with planted(edits):
                violation = play(kind, seed).violation
            if violation is None:
                continue
            if "NameError" in violation:
                raise StaleMutant(f"the replacement names what is not there: {violation}")
            spent_s = time.process_time() - began_s
            without = play(kind, seed).violation
            if without is not None:
                raise Alive(f"{self.kind}, seed {seed}, fails without the bug: {without}")
            return Death(self.kind, seed, _first_line(violation), spent_s)
        raise Alive(f"{self.within} seeds of {self.kind} lived with it")


@dataclass(frozen=True)
class Script:
    """One interleaving, written down (``sim.raft.scripts``)."""

    play: Callable[[], None]

    def kill(self, edits: tuple[Edit, ...]) -> Death:
        """Raises Alive."""
        self.play()
        began_s = time.process_time()
        try:
            with planted(edits):
                self.play()
        except (AssertionError, GantryError) as found:
            spent_s = time.process_time() - began_s
            return Death(f"script {self.play.__name__}", None, _first_line(str(found)), spent_s)
        raise Alive(f"script {self.play.__name__} passed with it")


@dataclass(frozen=True)
class UnitTests:
    """Unit tests: a file below tests/, perhaps with ``::name``."""

    where: str

    def kill(self, edits: tuple[Edit, ...]) -> Death:
        """Raises Alive."""
        return kill_all(self.file, {"the bug": (edits, self)})["the bug"]()

    @property
    def file(self) -> str:
        """Without the name of a test."""
        return self.where.partition("::")[0]


def kill_all(
    file: str, bugs: Mapping[str, tuple[tuple[Edit, ...], UnitTests]]
) -> dict[str, Callable[[], Death]]:
    """Plant bugs that the tests of one file must find, one after another.

    Returns: by name: what gives the death, or raises Alive.
    """
    wanted = {name: (edits, f"tests/{killer.where}") for name, (edits, killer) in bugs.items()}
    found = batch.play(TESTS / file, TESTS.parent, wanted)
    return {name: partial(_death, killer, found[name]) for name, (_, killer) in bugs.items()}


def _death(killer: UnitTests, found: batch.Found) -> Death:
    if found.wrong:
        raise Alive(f"{killer.where}: {found.wrong}")
    if not found.words:
        raise Alive(f"{killer.where} passed with it")
    return Death(killer.where.removeprefix("unit/"), None, found.words, found.cpu_s)


Killer = Seeds | Script | UnitTests


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes:
        name: kebab-case, unique.
        area: of the code, for the table.
        breaks: the rule, as what the wrong program does.
        edits: the bug.
        killer: what must find it.
    """

    name: str
    area: str
    breaks: str
    edits: tuple[Edit, ...]
    killer: Killer

    def kill(self) -> Death:
        """Plant the bug and see it found.

        Raises:
            Alive: it was not.
            StaleMutant: the code has moved on.
        """
        return self.killer.kill(self.edits)


def one_edit(component: str) -> Callable[[str, str, str, str, str, str, UnitTests], Mutant]:
    """Makes mutants of ``component`` that replace one piece of text, from plain values.

    The values: name, area, what it breaks, ``module:function`` below the component, old text, new
    text, killer.
    """

    def make(
        name: str, area: str, breaks: str, where: str, old: str, new: str, killer: UnitTests
    ) -> Mutant:
        return Mutant(name, area, breaks, (Edit(f"{component}.{where}", old, new),), killer)

    return make


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else "an assertion"
