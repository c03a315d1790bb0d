"""Programs of ``interop/java`` as processes, and the lines that they print."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType

from support import java

WITHIN_S = 300.0  # whatever is waited for
NONE: Mapping[str, str] = MappingProxyType({})


class JavaProgram:
    """One process of the probe, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self.process = process
        self._errors = errors
        self.lines: list[list[str]] = []
        self.read_at_ms: list[float] = []  # by line, since 1970
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                if words := line.split():
                    self.read_at_ms.append(time.time() * 1000)
                    self.lines.append(words)

    def told(self) -> str:
        """For a failure: how much it has said, its last words, and its errors."""
        ended, last = self.process.poll(), self.lines[-1:]
        errors = self._errors.read_text(errors="replace")[-1000:]
        return f"{len(self.lines)} lines, the last {last}, ended {ended}, errors {errors!r}"

    def of_kind(self, kind: str) -> list[list[str]]:
        return [rest for found, *rest in self.lines[:] if found == kind]


def program(home: Path, *args: object) -> AbstractContextManager[JavaProgram]:
    """One of the programs in ``interop/java``."""
    return running(home, java.clients(), "-Xmx64m", "dev.gantry.interop.Probe", *args)


@contextmanager
def running(
    home: Path, classpath: str, *args: object, settings: Mapping[str, str] = NONE
) -> Iterator[JavaProgram]:
    """A Java process with these arguments, and ``settings`` in its environment."""
    command = ["java", "-cp", classpath, f"-Duser.home={home}", *java.SHORT_LIVED]
    with process_of(home, *command, *args, settings=settings) as started:
        yield started


@contextmanager
def process_of(
    home: Path, *args: object, settings: Mapping[str, str] = NONE
) -> Iterator[JavaProgram]:
    """A process of this command, and ``settings`` in its environment."""
    command = ["nice", "-n", "5", *map(str, args)]
    home.mkdir(parents=True, exist_ok=True)
    handle, errors = tempfile.mkstemp(prefix="java-", suffix=".err", dir=home)
    with os.fdopen(handle, "wb") as stderr:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **settings},
        )
    started = JavaProgram(process, Path(errors))
    try:
        yield started
    finally:
        process.kill()
        process.wait()
        started.reader.join()


def until(holds: Callable[[], bool], what: str | Callable[[], str], *programs: JavaProgram) -> None:
    """A failure names ``what``, and how much each program has said, with its last words."""
    deadline_s = time.monotonic() + WITHIN_S
    while not holds():
        if time.monotonic() >= deadline_s:
            said = "\n".join(one.told() for one in programs)
            wanted = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {WITHIN_S} s: {wanted}\n{said}")
        time.sleep(0.2)
