"""One child process: started, watched through a pidfd, signalled as a group.

The exit is noticed by the event loop at once, without threads or polling. A pidfd refers to this
very process, so a signal can never reach a stranger that got the same pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantry_local.kubelet.environment import Launch

_LAUNCHER = Path(__file__).with_name("launch.py")


class Process:
    """A running container.

    Attributes:
        exited: Resolves to the exit code: negative signal numbers as in ``subprocess``.
    """

    def __init__(self, launch: Launch, *, directory: Path, log_file: Path) -> None:
        """Start the process; must be called on the main thread, which its life is tied to.

        Raises:
            OSError: no process could be started.
        """
        loop = asyncio.get_running_loop()
        command = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), *launch.argv]
        # Appending, so that the log can be truncated under the writer when it is rotated.
        with log_file.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603 - running what the pod says is the point
                command,
                cwd=directory,
                env=launch.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._child.pid
        self.exited: asyncio.Future[int] = loop.create_future()
        self._pidfd = os.pidfd_open(self.pid)
        loop.add_reader(self._pidfd, self._on_exit, loop)

    def _on_exit(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._pidfd)
        # Grandchildren must not outlive the container. Before the child is reaped its pid, and so
        # the number of its group, cannot belong to anybody else.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._child.wait()  # a zombie by now: returns at once
        os.close(self._pidfd)
        if not self.exited.done():
            self.exited.set_result(code)

    @property
    def running(self) -> bool:
        """Whether the exit has not been noticed yet."""
        return not self.exited.done()

    def signal(self, number: int) -> None:
        """Send a signal; a process that is gone is fine."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def stop(self, grace_s: float) -> int:
        """SIGTERM, up to ``grace_s`` seconds, SIGKILL; returns the exit code."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                return await self.ended()
        except TimeoutError:
            self.signal(signal.SIGKILL)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for the exit code; a cancelled waiter leaves the process alone."""
        return await asyncio.shield(self.exited)
