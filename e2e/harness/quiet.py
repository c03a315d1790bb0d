"""How quiet the machine was: which share of its processors went to others while figures were made.

Others are whatever is neither a node of the test cluster, nor its Docker engine, nor the test run
itself, and the hypervisor that gives a virtual machine's time away (steal). Figures made beside
them say how busy the machine was, so their limits are not judged then; see `report.Row.verdict`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

OTHERS_MAX = 0.1
"""Share of all processors that others may take before a figure says more of them than of us.

On two cores that is a fifth of one: the tests around a quiet run (shells, cron, a terminal) stay
below 0.03, and one process that computes without a pause takes 0.5.
"""
_ENGINE = frozenset({"dockerd", "containerd", "containerd-shim", "docker-proxy"})
_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq of /proc/stat
_STEAL = 7


class Used(NamedTuple):
    """Processor time until a moment, in seconds of one processor, and the moment."""

    at_s: float
    busy_s: float
    stolen_s: float
    ours_s: float


def others_share(before: Used, after: Used, processors: int) -> float:
    """The share of all processors, 0 to 1, that others had between two moments."""
    wall_s = (after.at_s - before.at_s) * processors
    if wall_s <= 0:
        return 0.0
    ours = after.ours_s - before.ours_s
    others = after.busy_s - before.busy_s - ours + after.stolen_s - before.stolen_s
    return min(max(others / wall_s, 0.0), 1.0)


def is_quiet(others: float | None) -> bool:
    """Whether limits may be judged; None means that nobody could tell."""
    return others is not None and others <= OTHERS_MAX


class Watch:
    """Laps of a run: what others had since the last one.

    Args:
        proc: where the kernel tells of processes.
        cgroups: where it tells of control groups, version 1 or 2.
    """

    def __init__(self, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._cgroups = cgroups
        self._processors = os.cpu_count() or 1
        self._last = self.used()

    def lap(self) -> float | None:
        """The share of others since the last lap; None where the kernel does not tell."""
        before, self._last = self._last, self.used()
        if before is None or self._last is None:
            return None
        return others_share(before, self._last, self._processors)

    def used(self) -> Used | None:
        """Processor time until now; None where the kernel or the nodes cannot be read."""
        try:
            total = [
                int(word) for word in (self._proc / "stat").read_text().split("\n")[0].split()[1:]
            ]
            nodes_s = self._nodes_s()
        except (OSError, ValueError, IndexError):
            return None
        if nodes_s is None:
            return None
        spent = os.times()
        own_s = spent.user + spent.system + spent.children_user + spent.children_system
        return Used(
            time.monotonic(),
            sum(total[column] for column in _BUSY) / _TICKS,
            total[_STEAL] / _TICKS,
            nodes_s + self._engine_s() + own_s,
        )

    def _nodes_s(self) -> float | None:
        """What all containers of the Docker engine used: the nodes with everything in them."""
        first = [*self._cgroups.glob("cpu*acct/docker/*/cpuacct.usage")]
        if first:
            return sum(int(file.read_text()) for file in {f.resolve() for f in first}) / 1e9
        second = [
            *self._cgroups.glob("docker/*/cpu.stat"),
            *self._cgroups.glob("system.slice/docker-*.scope/cpu.stat"),
        ]
        if not second:
            return None
        return sum(int(file.read_text().split()[1]) for file in second) / 1e6

    def _engine_s(self) -> float:
        """What the engine's own processes used."""
        ticks = 0
        for stat in self._proc.glob("[0-9]*/stat"):
            try:
                name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue  # it has ended
            if name in _ENGINE or name.startswith("containerd-shim"):
                words = rest.split()
                ticks += int(words[11]) + int(words[12])
        return ticks / _TICKS
