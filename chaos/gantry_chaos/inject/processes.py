"""The first process of a container on this machine, and its namespaces.

Pods of kind run in containers of containers, but their processes are visible here. A namespace is
named by what `readlink /proc/PID/ns/net` says, which stays the same when a container in the pod is
killed and cannot point at another pod when a process id is taken again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gantry_chaos.errors import InjectionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROC = Path("/proc")
_NSPID = re.compile(r"^NSpid:\s+(.+)$", re.MULTILINE)


class Process(NamedTuple):
    """A process as /proc shows it: its cgroups and its status."""

    pid: int
    cgroup: str
    status: str


def first_process(container_id: str, processes: Iterable[Process]) -> int:
    """The process id, here, of a container's first process.

    Raises:
        InjectionError: no process belongs to the container.
    """
    inside = [process for process in processes if container_id in process.cgroup]
    for process in inside:
        found = _NSPID.search(process.status)
        if found and found[1].split()[-1] == "1":
            return process.pid
    raise InjectionError(
        f"None of {len(inside)} processes of container {container_id[:12]} on this machine is its "
        "first one; faults are injected on the machine that runs kind, as root."
    )


def all_processes() -> Iterator[Process]:
    """Every process that can be read; those that end meanwhile are left out."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                yield Process(
                    int(entry.name),
                    (entry / "cgroup").read_text(),
                    (entry / "status").read_text(),
                )
            except OSError:
                continue


def network_namespace(pid: int) -> str:
    """The network namespace of a process, `net:[4026532]`.

    Raises:
        InjectionError: the process is gone.
    """
    try:
        return str((PROC / str(pid) / "ns" / "net").readlink())
    except OSError as error:
        raise InjectionError(f"Process {pid} is gone: {error.strerror}.") from error


def process_in(netns: str) -> int | None:
    """Some process in a network namespace; None: the namespace is gone."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                if str((entry / "ns" / "net").readlink()) == netns:
                    return int(entry.name)
            except OSError:
                continue
    return None
