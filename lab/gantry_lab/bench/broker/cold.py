"""Pulls of what is on the disk only: the kernel is told to forget the files before each run.

Each file is synced, and then given up with `posix_fadvise(POSIX_FADV_DONTNEED)`, which needs no
rights, unlike `drop_caches`; pages that are mapped or under way stay. Rule protected: a figure
counts as one of the disk only if the broker's process is seen to have read there about as much as
it handed out; otherwise the case has no figure.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from gantry_cli.progress import tally
from gantry_protocol.errors import GantryError

from gantry_lab.bench.broker.filling import fill
from gantry_lab.bench.broker.load import Load
from gantry_lab.bench.broker.target import Ours
from gantry_lab.bench.broker.throughput import READERS, TOPIC, reading
from gantry_lab.bench.broker.work import Pulls
from gantry_lab.bench.usage import bytes_read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gantry_cli.client.session import Session

    from gantry_lab.bench.figures import Runs
    from gantry_lab.bench.members import Members
    from gantry_lab.bench.suite import Plan

READ_PATIENCE_S = 600.0
READ_PERCENT_MIN = 80.0  # the rest may be what was read ahead, or what cannot be dropped


async def reads(
    members: Members, client: Session, plan: Plan, log_bytes: int, say: Callable[[str], None]
) -> Runs:
    """The figures of each run: every message is read once, by one consumer per queue.

    Raises:
        GantryError: not even most of it came from the disk.
    """
    target = Ours(members, client)
    queues = (await target.queues(TOPIC))[:READERS]
    await fill(client, TOPIC, log_bytes, tally(say, "bytes written", log_bytes))

    async def once() -> dict[str, float]:
        await asyncio.to_thread(forget, members.data(members.master))
        work = Pulls(TOPIC, queues, len(queues), once=True)
        load = Load(work, [queue.address for queue in queues], len(queues))
        pid = members.pid(members.master)
        read = bytes_read(pid)
        try:
            seen, run = await reading(target, load, READ_PATIENCE_S)
        finally:
            load.close()
        percent = 100 * (bytes_read(pid) - read) / seen.received_bytes
        if percent < READ_PERCENT_MIN:
            raise GantryError(
                f"Only {percent:.0f} % of what was read came from the disk; the file system at "
                f"{members.data(members.master)} keeps its files in memory."
            )
        return {**run, "disk_read_percent": percent}

    return await plan.repeat(once)


def forget(directory: Path) -> None:
    """Let the kernel drop every file below `directory` from its memory; what is dirty is synced."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
