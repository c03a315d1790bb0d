"""Processes that make packs: the real program, run in a thread of the broker that started it.

It shares nothing with the broker but the memory that it was given. One in five ends before it has
done anything, as one does that the kernel kills for want of memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING

from gantry_broker.tier import pack_process
from sim.kernel.world import MS
from sim.product.machines import current, running

if TYPE_CHECKING:
    from collections.abc import Sequence

KILLED = 0.2
START_US = (20 * MS, 100 * MS)
SYS = SimpleNamespace()  # ``sys`` of the one that runs: none waits for anything


class _Popen:
    """``subprocess.Popen`` of ``gantry_broker.tier.pack_process``."""

    def __init__(self, command: Sequence[str], *, pass_fds: tuple[int], **_: object) -> None:
        self.pid = current().pid  # of whoever may change its priority
        self.returncode: int | None = None
        (self._memory,) = pass_fds
        assert int(command[-1]) == self._memory

    def communicate(self, order: bytes) -> tuple[bytes, bytes]:
        """Run it to its end; in a thread."""
        thread = running()
        assert thread is not None
        rng = thread.process.rng
        thread.sleep_us(rng.randint(*START_US))
        if rng.random() < KILLED:
            thread.process.world.count("pack-process.killed")
            self.returncode = -signal.SIGKILL
            return b"", b""
        said = BytesIO()
        SYS.argv = ["", str(os.dup(self._memory))]
        SYS.stdin, SYS.stdout = SimpleNamespace(buffer=BytesIO(order)), SimpleNamespace(buffer=said)
        pack_process.main()
        thread.process.world.count("pack-process")
        self.returncode = 0
        return said.getvalue(), b""

    def kill(self) -> None:
        """It has ended, or ends unheard."""


SubprocessModule = SimpleNamespace(Popen=_Popen, PIPE=subprocess.PIPE)
