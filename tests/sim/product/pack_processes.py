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
from typing import TYPE_CHECKING, Any

from gantry_broker.tier import pack_process
from sim.kernel.world import MS
from sim.product.machines import current, running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.product.machines import Thread

KILLED = 0.2
START_US = (20 * MS, 100 * MS)


class _Sys:
    """``sys`` of each of them: one that waits for the disk keeps its own beside others."""

    def __init__(self) -> None:
        self.of: dict[object, SimpleNamespace] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of[running()], name)


SYS = _Sys()


class _Popen:
    """``subprocess.Popen`` of ``gantry_broker.tier.pack_process``."""

    def __init__(self, command: Sequence[str], *, pass_fds: tuple[int], **_: object) -> None:
        self.pid = current().pid  # of whoever may change its priority
        self.returncode: int | None = None
        (memory,) = pass_fds
        assert int(command[-1]) == memory
        # Inherited, so it stays what it is when the broker gives up and closes its own: the number
        # is that of another broker's memory then.
        self._memory: int | None = os.dup(memory)

    def communicate(self, order: bytes) -> tuple[bytes, bytes]:
        """Run it to its end; in a thread."""
        thread = running()
        assert thread is not None
        rng = thread.process.rng
        memory, self._memory = self._memory, None
        assert memory is not None
        try:
            thread.sleep_us(rng.randint(*START_US))
            if rng.random() < KILLED:
                thread.process.world.count("pack-process.killed")
                self.returncode = -signal.SIGKILL
                return b"", b""
            return self._run(thread, memory, order)
        finally:
            os.close(memory)

    def _run(self, thread: Thread, memory: int, order: bytes) -> tuple[bytes, bytes]:
        said = BytesIO()
        SYS.of[thread] = SimpleNamespace(
            argv=["", str(os.dup(memory))],
            stdin=SimpleNamespace(buffer=BytesIO(order)),
            stdout=SimpleNamespace(buffer=said),
        )
        try:
            pack_process.main()
        finally:
            del SYS.of[thread]
        thread.process.world.count("pack-process")
        self.returncode = 0
        return said.getvalue(), b""

    def kill(self) -> None:
        """It has ended, or ends unheard."""
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None


SubprocessModule = SimpleNamespace(Popen=_Popen, PIPE=subprocess.PIPE)
