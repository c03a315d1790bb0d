"""Processes by pid and start time together, so that a recycled pid is never mistaken for one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Final

import msgspec

_SCHEME: Final = "process://"
_START_FIELD: Final = 19  # of /proc/PID/stat, counted after the name (proc(5): field 22)


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process of this boot."""

    pid: int
    start_ticks: int

    def text(self) -> str:
        """As a container id: ``process://PID/START``."""
        return f"{_SCHEME}{self.pid}/{self.start_ticks}"

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return identify(self.pid) == self

    def send(self, number: int) -> bool:
        """Signal this very process; False when it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The handle pins the process; only now does comparing the start time prove anything.
            if not self.alive():
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                return True
            return False
        finally:
            os.close(handle)

    async def gone(self) -> None:
        """Wait until this very process has ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            if self.alive():
                loop.add_reader(handle, ended.set)
                await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a running process; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in {"Z", "X"}:
        return None
    return ProcessIdentity(pid, int(fields[_START_FIELD]))


def parse(text: str) -> ProcessIdentity | None:
    """The identity in a container id; None for anything else."""
    pid, _, ticks = text.removeprefix(_SCHEME).partition("/")
    if not text.startswith(_SCHEME) or not pid.isdigit() or not ticks.isdigit():
        return None
    return ProcessIdentity(int(pid), int(ticks))
