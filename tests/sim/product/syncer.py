"""Linux AIO's place: syncs that the kernel carries out while the event loop goes on."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sim.product.machines import Thread, current, running

if TYPE_CHECKING:
    from gantry_broker.log.kernel_syncs import OnSynced


class SimSyncer:
    """As ``gantry_broker.log.kernel_syncs.KernelSyncer``; one seed in three has no such kernel."""

    def __init__(self) -> None:
        self._process = current()
        if self._process.world.stream(f"aio/{self._process.machine.address}").random() < 0.3:
            raise OSError("this system has no Linux AIO")
        self.fileno = 1_000_000 + self._process.pid
        self._ended: list[tuple[OnSynced, OSError | None]] = []
        self._watchers: list[tuple[Thread, int]] = []
        self._process.globals[f"syncer/{self.fileno}"] = self

    def submit(self, descriptor: int, done: OnSynced) -> None:
        process = self._process
        file = process.files.get(descriptor)
        if file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        volume = file.volume
        process.world.at(volume.due_us(), self._synced, file, volume.writes, done)

    def _synced(self, file: object, newest: int, done: OnSynced) -> None:
        if self._process.is_dead:
            return
        error = None
        try:
            file.volume.settle(file.inode, newest)  # type: ignore[attr-defined]
        except OSError as failed:
            error = failed
        self._ended.append((done, error))
        self._process.loop.make_readable(self.fileno)
        for thread, token in self._watchers:
            thread.wake(token)
        self._watchers.clear()

    def wait(self) -> None:
        """Until something has ended."""
        while not self._ended:
            thread = running()
            assert thread is not None
            self._watchers.append((thread, thread.token))
            thread.wait()

    def reap(self) -> None:
        ended, self._ended = self._ended, []
        for done, error in ended:
            done(error)


class SelectModule:
    """``select``, as ``kernel_syncs`` waits with it."""

    POLLIN = 1

    class poll:  # noqa: N801 - the name in ``select``
        """Waits for one descriptor of the world."""

        def register(self, descriptor: int, _: int) -> None:
            self._syncer: SimSyncer = current().globals[f"syncer/{descriptor}"]

        def poll(self) -> None:
            self._syncer.wait()
