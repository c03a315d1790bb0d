"""Programs of ``interop/java`` as processes, and the lines that they print."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support import java

WITHIN_S = 300.0  # whatever is waited for


class JavaProgram:
    """One process of the probe, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[list[str]] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            self.lines.extend(line.split() for line in self.process.stdout)

    def of_kind(self, kind: str) -> list[list[str]]:
        return [rest for found, *rest in self.lines[:] if found == kind]


@contextmanager
def program(home: Path, *args: object) -> Iterator[JavaProgram]:
    command = ["nice", "-n", "5", "java", "-cp", java.clients(), f"-Duser.home={home}"]
    command += ["-Xmx64m", *java.SHORT_LIVED, "dev.gantry.interop.Probe", *map(str, args)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    started = JavaProgram(process)
    try:
        yield started
    finally:
        process.kill()
        process.wait()
        started.reader.join()


def until(holds: Callable[[], bool], what: str, *programs: JavaProgram) -> None:
    """A failure names ``what``, and how much each program has said, with its last words."""
    deadline_s = time.monotonic() + WITHIN_S
    while not holds():
        said = [(len(one.lines), *one.lines[-1:]) for one in programs]
        assert time.monotonic() < deadline_s, f"not within {WITHIN_S} s: {what}; said: {said}"
        time.sleep(0.2)
