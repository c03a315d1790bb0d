"""One session of pytest for all bugs that the tests of one file must find.

Its tests are collected once, pass without a bug once, and are run from the first one for each bug
until one fails. A session for each bug would spend most of its time on beginning.
"""

from __future__ import annotations

import contextlib
import gc
import io
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol
from sim.mutants.planting import Edit, StaleMutant, planted

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from pathlib import Path

TEST_ENDS_WITHIN_S = 10.0
"""With a bug planted; one that dies of it on a busy machine is dead for no reason, not alive."""
ARGUMENTS = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"),
    *("--hypothesis-profile", "any-example"),
)


class Found:
    """What the tests found of one bug.

    Attributes:
        words: the test that failed and why; empty while none did.
        wrong: the reason why this proves nothing; empty where it proves something.
        cpu_s: processor time from the planting to the finding.
    """

    def __init__(self) -> None:
        self.words = ""
        self.wrong = ""
        self.cpu_s = 0.0


class Batch:
    """A plugin that runs the collected tests in its own order.

    Args:
        bugs: by name: the edits, and the beginning of the ids of the tests that must find them.

    Attributes:
        found: by name.
        has_ended: whether all of them were planted.
    """

    def __init__(self, bugs: Mapping[str, tuple[tuple[Edit, ...], str]]) -> None:
        self.found = {name: Found() for name in bugs}
        self.has_ended = False
        self._bugs = bugs
        self._has_bug = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of pytest's own loop."""
        if session.testsfailed:  # while it collected
            return True
        gc.freeze()  # what lives now is no garbage of a test
        try:
            self._judge(session)
            self.has_ended = True
        finally:
            gc.unfreeze()
        return True

    def _judge(self, session: pytest.Session) -> None:
        tests = {
            name: [item for item in session.items if is_of(item.nodeid, where)]
            for name, (_, where) in self._bugs.items()
        }
        asked = {item.nodeid: item for items in tests.values() for item in items}
        broken = self._run(list(asked.values()), failures=len(asked))
        for name, (edits, where) in self._bugs.items():
            found = self.found[name]
            failing = [item.nodeid for item in tests[name] if item.nodeid in broken]
            if failing:
                found.wrong = f"it fails without it: {broken[failing[0]]}"
                continue
            if not tests[name]:
                found.wrong = f"there is no test {where}"
                continue
            began_s = time.process_time()
            try:
                with planted(edits):
                    self._has_bug = True
                    found.words = next(iter(self._run(tests[name]).values()), "")
            except StaleMutant as error:
                found.wrong = str(error)
            finally:
                self._has_bug = False
            found.cpu_s = time.process_time() - began_s

    def _run(self, items: list[pytest.Item], failures: int = 1) -> dict[str, str]:
        """Run them until so many fail; returns what failed, in words, by the test's id."""
        found: dict[str, str] = {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            reports = runtestprotocol(item, log=False, nextitem=following)
            failed = [report for report in reports if report.failed]
            if failed:
                last = failed[0].longreprtext.strip().splitlines()[-1]
                found[item.nodeid] = f"{item.nodeid} - {last}"[:200]
                if len(found) == failures:
                    break
        with _not_blamed():
            items[0].session._setupstate.teardown_exact(None)
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """A test that a bug keeps waiting fails: without it each takes a fraction of a second."""
        if not self._has_bug:
            return (yield)

        def end(*_: object) -> None:
            pytest.fail(f"it has waited for {TEST_ENDS_WITHIN_S:g} s")

        before = signal.signal(signal.SIGALRM, end)
        # Again and again: the code may catch what its signal raises.
        signal.setitimer(signal.ITIMER_REAL, TEST_ENDS_WITHIN_S, TEST_ENDS_WITHIN_S)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def is_of(test: str, where: str) -> bool:
    """Whether the id of a test is ``where``, or below it: of a file, a class, with parameters."""
    return test == where or test.startswith((where + "::", where + "["))


def play(
    file: Path, root: Path, bugs: Mapping[str, tuple[tuple[Edit, ...], str]]
) -> dict[str, Found]:
    """Plant each bug and have the tests of ``file`` look for it.

    Args:
        file: of unit tests.
        root: of the repository, to which the ids of tests are relative.
        bugs: as in ``Batch``.
    """
    batch, output = Batch(bugs), io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
        contextlib.chdir(root),
    ):
        code: int
        try:
            code = pytest.main([*ARGUMENTS, str(file)], [batch])
        except (ExceptionGroup, pytest.PytestUnraisableExceptionWarning):
            if not batch.has_ended:
                raise
            code = pytest.ExitCode.OK  # what bugs had left open was held until now
    sys.last_value = sys.last_traceback = None  # for a debugger; they hold what a test had open
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        for found in batch.found.values():
            found.wrong = found.wrong or f"{file.name} did not run:\n{output.getvalue()}"
    return batch.found


@contextlib.contextmanager
def _not_blamed() -> Iterator[None]:
    """A bug leaves sockets and tasks behind; they end here, and no later test fails of them."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook = before
