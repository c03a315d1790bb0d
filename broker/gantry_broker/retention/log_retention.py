"""``LogRetention``: how old the files of a log are and how full its disk is, for ``retention``.

For groups without a tier. Rules protected: a file is as old as the first message of the next one,
by store times, which never fall along a log; so a copy ages like its original. A clock that jumps
ahead while the process runs makes nothing old. Groups on one disk take turns to give way, a file
each, and look at the disk in between.

What it refuses: to wait for a disk on the event loop; files are looked at in a thread.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from gantry_protocol.types import Offset

from gantry_broker.log.segments import segment_path
from gantry_broker.log.store_time import store_time_at
from gantry_broker.retention.core.pins import Pins
from gantry_broker.retention.core.rules import HOUR_MS, Decision, Facts, RetentionBounds, decide
from gantry_broker.retention.disk_space import DiskSpace
from gantry_broker.retention.loop import LOOK_S, LoopHost, RetentionLoop

BUSY_LOOK_S = 0.1  # between two decisions while the disk fills
FILES_IN_A_LOOK = 16  # that give way
CLOCK_SLACK_S = 600.0  # that a clock may run ahead of the time that has passed here


class RetentionHost(LoopHost, Protocol):
    """The part of a group that the retention needs."""

    def pins(self) -> Pins:
        """Those who need the log, and from where on."""


class SteadyClock:
    """Milliseconds since 1970 that do not jump ahead."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        passed: Callable[[], float] = time.monotonic,
    ) -> None:
        """What the wall says now is believed."""
        self._wall, self._passed = wall, passed
        self._ahead_s = wall() - passed() + CLOCK_SLACK_S

    def now_ms(self) -> int:
        """The wall clock's time, as far as so much time can have passed."""
        return int(1000 * min(self._wall(), self._passed() + self._ahead_s))


class LogRetention(RetentionLoop):
    """See the module.

    Args:
        host: the group.
        kept: how much is to be kept.
        disk: where the log is.
        failed: called with an error that ends the process.
        clock: how late it is.
    """

    def __init__(
        self,
        host: RetentionHost,
        kept: RetentionBounds,
        disk: DiskSpace,
        failed: Callable[[BaseException], None],
        clock: SteadyClock | None = None,
    ) -> None:
        """Nothing is deleted before ``start``."""
        super().__init__(host, failed)
        self.kept = kept
        self._host = host
        self._disk = disk
        self._clock = clock or SteadyClock()
        self._expired_to = Offset(0)
        self._second: tuple[Offset, int | None] | None = None  # the second file, and its first time

    @property
    def next_cut_ms(self) -> int | None:
        """The time of the next cut, ms since 1970; None while that is not known."""
        if self.kept.hours is None or self._second is None or self._second[1] is None:
            return None
        return self._second[1] + int(self.kept.hours * HOUR_MS)

    @property
    def is_stuck(self) -> bool:
        """Whether the disk is nearly full and nothing may go."""
        return bool(self.reason) and self.kept.gives_way and self._disk.is_nearly_full

    @property
    def _pause_s(self) -> float:
        return BUSY_LOOK_S if self._disk.fills else LOOK_S

    async def look(self) -> None:
        """Decide, and carry it out; again while the disk is nearly full and files go."""
        await self._look_at_ages()
        if not (self.kept.gives_way and self._disk.is_nearly_full):
            await super().look()
            return
        for _ in range(FILES_IN_A_LOOK):
            trims = self.trims
            async with self._disk.turn:
                self._disk.look()
                await super().look()
                self._disk.look()
            if self.trims == trims or not self._disk.is_nearly_full:
                return

    def _decide(self) -> Decision:
        store = self._host.store
        log, pins = store.log, self._host.pins()
        return decide(
            Facts(
                kept=self.kept,
                starts=log.starts,
                log_start=log.log_start,
                end=log.end,
                confirm=store.dispatched,
                whole_from=store.whole_from,
                expired_to=self._expired_to,
                disk_is_full=self._disk.is_nearly_full,
                disk_fills=self._disk.fills,
                needed=pins.needed,
                copied=pins.copied,
                state_bytes=self._state_bytes,
                state_end=self._state_end,
                writes=self._may_write,
            )
        )

    async def _look_at_ages(self) -> None:
        """Find the oldest file that is not wholly old; one file is looked at once, as a rule."""
        log = self._host.store.log
        later = log.starts[1:]
        self._expired_to = log.log_start
        if self.kept.hours is None or not later:
            self._second = None
            return
        if self._second is None or self._second[0] != later[0] or self._second[1] is None:
            first_ms = await asyncio.to_thread(first_time, log.directory, later[0])
            self._second = (later[0], first_ms)
        old_ms = self._clock.now_ms() - int(self.kept.hours * HOUR_MS)
        if self._second[1] is not None and self._second[1] <= old_ms:
            found = await asyncio.to_thread(_last_old, log.directory, later, old_ms)
            self._expired_to = max(found, log.log_start)


def first_time(directory: Path, start: Offset) -> int | None:
    """The store time of a file's first message, ms since 1970; None where that is not known."""
    try:
        return store_time_at(_File(segment_path(directory, start), start), start)
    except OSError:
        return None  # it is gone, or nothing of it is on the disk yet


def _last_old(directory: Path, later: Sequence[Offset], old_ms: int) -> Offset:
    """The newest of these files whose first message is old: all before it is older still."""

    def age(start: Offset) -> int:
        found = first_time(directory, start)
        return old_ms + 1 if found is None else found

    return later[max(0, bisect_right(later, old_ms, key=age) - 1)]


class _File:
    """One file of a log, as ``store_time_at`` reads a log."""

    def __init__(self, path: Path, start: Offset) -> None:
        self.log_start = start
        self.end = Offset(start + path.stat().st_size)
        self._path = path

    def read(self, offset: Offset, max_bytes: int) -> bytes:
        """Bytes from ``offset`` on, maybe fewer than asked."""
        with self._path.open("rb", buffering=0) as file:
            file.seek(offset - self.log_start)
            return file.read(max_bytes)
