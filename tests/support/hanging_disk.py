"""A process whose disk hangs without an error: ``python hanging_disk.py FILE COMMAND …``.

It is ``gantry COMMAND …``, and while FILE exists no sync of it ends, whether a thread or the kernel
carries it out. It needs no privileges and no file system of its own: what stands still is where the
product meets the disk (``os.fsync``, ``os.fdatasync``, ``os.pwritev`` with ``RWF_DSYNC``,
``KernelSyncer``); all above it is real.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from gantry_broker.log.kernel_syncs import KernelSyncer, OnSynced

POLL_S = 0.01


def hang(until_gone: Path) -> None:
    """From now on syncs wait for the file to go."""

    def wait() -> None:
        while until_gone.exists():
            time.sleep(POLL_S)

    real_fsync, real_fdatasync, real_submit = os.fsync, os.fdatasync, KernelSyncer.submit
    real_pwritev = os.pwritev

    def fsync(descriptor: int) -> None:
        wait()
        real_fsync(descriptor)

    def fdatasync(descriptor: int) -> None:
        wait()
        real_fdatasync(descriptor)

    def pwritev(descriptor: int, buffers: Any, offset: int, flags: int = 0) -> int:
        if flags & os.RWF_DSYNC:
            wait()
        return real_pwritev(descriptor, buffers, offset, flags)

    def submit(self: KernelSyncer, descriptor: int, done: OnSynced) -> None:
        if not until_gone.exists():
            real_submit(self, descriptor, done)
            return

        def later() -> None:
            wait()
            real_submit(self, descriptor, done)

        threading.Thread(target=later, daemon=True).start()

    os.fsync, os.fdatasync, os.pwritev = fsync, fdatasync, pwritev  # type: ignore[assignment]
    KernelSyncer.submit = submit  # type: ignore[method-assign]


if __name__ == "__main__":
    from gantry_cli.main import main

    hang(Path(sys.argv.pop(1)))
    main()
