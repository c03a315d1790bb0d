"""Pulls of what is on the disk only: the kernel is told to forget the files before each run.

Each file is synced, and then given up with `posix_fadvise(POSIX_FADV_DONTNEED)`, which needs no
rights, unlike `drop_caches`; pages that are mapped or under way stay. Rule protected: a figure
counts as one of the disk only if the broker's process is seen to have read there about as much as
it handed out; otherwise the case has no figure.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from typing import TYPE_CHECKING

from gantry_cli.progress import tally
from gantry_protocol.errors import GantryError

from gantry_lab.bench.broker.target import ProcessGroup
from gantry_lab.bench.broker.throughput import READERS, TOPIC, fill, load_of
from gantry_lab.bench.broker.work import Pulls
from gantry_lab.bench.stage import figures
from gantry_lab.bench.usage import bytes_read

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

READ_PATIENCE_S = 600.0
READ_PERCENT_MIN = 80.0  # the rest may be what was read ahead, or what cannot be dropped


async def reads(stage: BenchStage) -> Runs:
    """The figures of each run: every message is read once, by one consumer per queue.

    Raises:
        GantryError: not even most of it came from the disk.
    """
    async with stage.group(1) as (members, client):
        queues = (await ProcessGroup(members, client).queues(TOPIC))[:READERS]
        size = stage.wish.log_bytes
        await fill(client, TOPIC, size, tally(stage.say, "bytes written", size))

        async def once() -> dict[str, float]:
            await asyncio.to_thread(forget, members.data(members.master))
            work = Pulls(TOPIC, queues, len(queues), once=True)
            pid = members.pid(members.master)
            used, read = [members.cpu_s()], bytes_read(pid)
            with closing(load_of(work, queues, len(queues))) as load:
                seen = await load.finish(READ_PATIENCE_S)
            used.append(members.cpu_s())
            percent = 100 * (bytes_read(pid) - read) / seen.received_bytes
            if percent < READ_PERCENT_MIN:
                raise GantryError(
                    f"Only {percent:.0f} % of what was read came from the disk; the file system at "
                    f"{members.data(members.master)} keeps its files in memory."
                )
            return figures(seen, used, ProcessGroup.roles) | {"disk_read_percent": percent}

        return await stage.repeat(once)


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
