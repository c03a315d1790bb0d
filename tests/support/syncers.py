"""Stand-ins for the kernel that syncs files while an event loop goes on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress

from gantry_broker.log.kernel_syncs import OnSynced, Syncer


def refused() -> Syncer:
    """What there is where the kernel knows no such thing: threads sync."""
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


class FakeSyncer:
    """Syncs when somebody takes the end in, by calling `sync` (`os.fdatasync`).

    Whatever that raises is the end. With `is_held` nothing ends before `let_go`.
    With `refusal`, `submit` raises that.
    """

    def __init__(
        self,
        sync: Callable[[int], None] | None = None,
        *,
        is_held: bool = False,
    ) -> None:
        self.fileno = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.refusal: OSError | None = None
        self.is_held = is_held
        self.offered = 0
        self._sync = sync
        self._waiting: list[tuple[int, OnSynced]] = []

    def submit(self, descriptor: int, done: OnSynced) -> None:
        self.offered += 1
        if self.refusal is not None:
            raise self.refusal
        self._waiting.append((descriptor, done))
        if not self.is_held:
            self.let_go()

    def let_go(self) -> None:
        """What waits has ended."""
        self.is_held = False
        os.eventfd_write(self.fileno, 1)

    def reap(self) -> None:
        if self.is_held:
            return
        with suppress(BlockingIOError):
            os.eventfd_read(self.fileno)
        ended, self._waiting = self._waiting, []
        for descriptor, done in ended:
            try:
                (self._sync or os.fdatasync)(descriptor)
            except OSError as error:
                done(error)
            else:
                done(None)

    def __del__(self) -> None:
        os.close(self.fileno)
