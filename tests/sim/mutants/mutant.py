"""A mutant: a bug, the rule it breaks, and what must kill it.

Killers, from the cheapest: a ``Script`` plays one interleaving; ``UnitTests`` are tests; ``Seeds``
are runs of a world, at most so many. Each must pass without the bug, on the very seed that killed.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from gantry_protocol.errors import GantryError
from sim.catalogue import KINDS, play
from sim.mutants.planting import Edit, StaleMutant, planted

TESTS = Path(__file__).resolve().parents[2]
UNIT_TEST_ENDS_WITHIN_S = 10.0
"""With a bug planted; one that dies of it on a busy machine is dead for no reason, not alive."""


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


class _Deadline:
    """Fails a test that a bug keeps waiting: without the bug each takes a fraction of a second."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        def end(*_: object) -> None:
            pytest.fail(f"it has waited for {UNIT_TEST_ENDS_WITHIN_S:g} s")

        before = signal.signal(signal.SIGALRM, end)
        left_s, _ = signal.setitimer(signal.ITIMER_REAL, UNIT_TEST_ENDS_WITHIN_S)  # the gate's
        try:
            return (yield)
        finally:
            signal.signal(signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, left_s)


@dataclass(frozen=True)
class UnitTests:
    """Unit tests: a file below tests/, perhaps with ``::name``."""

    where: str

    def kill(self, edits: tuple[Edit, ...]) -> Death:
        """Raises Alive."""
        death = self.find(edits)
        code, output = self._run()
        if code != pytest.ExitCode.OK:
            raise Alive(f"{self.where} fails without it:\n{output}")
        return death

    def find(self, edits: tuple[Edit, ...]) -> Death:
        """The same where it is known that they pass without the bug. Raises Alive."""
        began_s = time.process_time()
        with planted(edits):
            code, output = self._run(_Deadline())
        spent_s = time.process_time() - began_s
        if code == pytest.ExitCode.OK:
            raise Alive(f"{self.where} passed with it")
        if code != pytest.ExitCode.TESTS_FAILED:
            raise Alive(f"{self.where} did not run:\n{output}")
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return Death(self.where.removeprefix("unit/"), None, failed[0][:200], spent_s)

    def _run(self, *plugins: object) -> tuple[int, str]:
        """In this process, where the bug is; pytest's output is kept out of the way."""
        output = io.StringIO()
        arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
        arguments += ["--hypothesis-profile", "any-example"]
        with contextlib.redirect_stdout(output), contextlib.chdir(TESTS.parent):
            code = pytest.main([*arguments, os.fspath(TESTS / self.where)], plugins)
        sys.last_value = sys.last_traceback = None  # for a debugger; they hold what a test had open
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()  # or the next run is blamed for it
        return code, output.getvalue()


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
        quick: ``make test`` plants it too (well under two seconds).
    """

    name: str
    area: str
    breaks: str
    edits: tuple[Edit, ...]
    killer: Killer
    quick: bool = False

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
