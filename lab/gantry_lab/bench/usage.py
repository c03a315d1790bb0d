"""Usage of a process, as its kernel tells: processors, memory, disks."""

from __future__ import annotations

import os
from pathlib import Path

from gantry_protocol.errors import GantryError

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """CPU seconds of one process, its threads included; a hundredth is the finest step.

    Raises:
        GantryError: it has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError as error:
        raise GantryError(f"The process {pid} has ended.") from error
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mb(pid: int) -> float:
    """Memory of one process that is in RAM, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_mb(pid: int) -> float:
    """The most memory that one process has had in RAM so far, in MB.

    Raises:
        GantryError: it has ended.
    """
    try:
        facts = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        kib = next(int(row.split()[1]) for row in facts.splitlines() if row.startswith("VmHWM:"))
    except (OSError, StopIteration) as error:
        raise GantryError(f"The process {pid} has ended.") from error
    return kib * 1024 / 1e6


def bytes_read(pid: int) -> int:
    """Bytes that a process has had read from disks; the kernel's own memory does not count.

    Raises:
        GantryError: the kernel does not say.
    """
    try:
        facts = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError as error:
        raise GantryError(f"What process {pid} reads is not known: {error}.") from error
    return next(int(row.split()[1]) for row in facts.splitlines() if row.startswith("read_bytes:"))
