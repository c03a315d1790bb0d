"""Disks of nodes in this process that a test can make silent: writes neither end nor fail."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_controller.wal import wal

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


class SilentDisks:
    """By directory; those never named answer.

    Attributes:
        waiting: writes that a silent disk holds.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._open: dict[Path, threading.Event] = {}
        self._write = wal.write_durably

    def silence(self, directory: Path) -> None:
        """From now on nothing in ``directory`` becomes durable."""
        self._open[directory] = threading.Event()

    def answer(self, directory: Path) -> None:
        """It goes on."""
        self._open.pop(directory).set()

    def answer_all(self) -> None:
        for directory in list(self._open):
            self.answer(directory)

    def write(self, fd: int, data: bytes, offset: int, ahead: int = 0) -> None:
        """Stands where the log's thread meets the disk."""
        path = Path(f"/proc/self/fd/{fd}").readlink()
        for directory, opened in list(self._open.items()):
            if path.is_relative_to(directory):
                self.waiting += 1
                opened.wait()
                self.waiting -= 1
        self._write(fd, data, offset, ahead)


@contextmanager
def silent_disks(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentDisks]:
    """All disks answer in the end, so that nodes can be stopped."""
    disks = SilentDisks()
    monkeypatch.setattr(wal, "write_durably", disks.write)
    try:
        yield disks
    finally:
        disks.answer_all()
