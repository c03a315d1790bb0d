"""Refusing messages before the disk is full, while everything else goes on.

A full disk ends replication, and with it reads of what came last; so messages are refused from a
high watermark on, and taken again below a lower one. Between the high watermark and the end there
is room for what keeps a group alive: consumer offsets, topics, the log of its master.
"""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gantry_protocol.process import log
from gantry_protocol.settings.defaults import (
    DISK_REFUSE_PERCENT,
    DISK_SPARE_BYTES,
    DISK_TAKE_PERCENT,
)

HOLD_S = 10.0  # for so long after a write that found no room, messages are refused
LOOK_EVERY_S = 0.1  # a fast disk takes 15 MB meanwhile, a tenth of the smallest volume
FILLS_PERCENT = 20.0  # below the mark at which the disk is nearly full, it fills
ROOM_SHARE = 1.25  # of the spare bytes: old messages make room before new ones are refused

_log = log.get("disk")


class Usage(NamedTuple):
    """The use of a disk."""

    used_percent: float
    free_bytes: int


class Watermarks(NamedTuple):
    """The marks at which messages are refused.

    Attributes:
        refuse_at: share of the disk in use, in percent, from which on messages are refused.
        take_below: below this they are taken again.
        spare_bytes: while so much is free nothing is refused, whatever share of a large disk it is.
    """

    refuse_at: float = DISK_REFUSE_PERCENT
    take_below: float = DISK_TAKE_PERCENT
    spare_bytes: int = DISK_SPARE_BYTES

    def refuses(self, usage: Usage, *, refusing: bool) -> bool:
        """Whether messages are refused now, if they were (or were not) until now."""
        mark = self.take_below if refusing else self.refuse_at
        return usage.used_percent >= mark and usage.free_bytes < self.spare_bytes

    def nearly_full(self, usage: Usage, *, ahead_percent: float = 0.0) -> bool:
        """Whether the oldest messages are to make room, before new ones are refused."""
        room = ROOM_SHARE * (2 if ahead_percent else 1) * self.spare_bytes
        return usage.used_percent >= self.take_below - ahead_percent and usage.free_bytes < room


def usage_of(directory: Path) -> Usage:
    """The use of the disk under ``directory``, as ``df`` counts it.

    Raises:
        OSError: it does not say.
    """
    found = os.statvfs(directory)
    used = found.f_blocks - found.f_bfree
    share = used / max(1, used + found.f_bavail)
    return Usage(100.0 * share, found.f_bavail * found.f_frsize)


class DiskSpace:
    """Looks at one disk now and then.

    Args:
        directory: on the disk.
        watermarks: when to refuse.
        look: how full it is.
        now_s: the steady clock.

    Attributes:
        usage: at the last look.
        refusing: whether messages are refused.
        has_room: whether somebody may hand a mastership over to here for want of room: below the
            mark from which on messages are taken again, so that it is not handed back soon.
        turn: held by the group that makes room now.
        watermarks: when to refuse, from the next look on.
    """

    def __init__(
        self,
        directory: Path,
        watermarks: Watermarks,
        look: Callable[[Path], Usage] = usage_of,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.usage = Usage(0.0, 0)
        self.refusing = False
        self.has_room = False  # until the disk has said so
        self.turn = asyncio.Lock()
        self._directory = directory
        self.watermarks = watermarks
        self._look = look
        self._now_s = now_s
        self._met_full_s: float | None = None  # when a write found no room
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look now, and from now on."""
        self.look()
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self.start)

    def met_full(self) -> None:
        """A write found no room, whatever the disk says of itself: a quota may be the reason."""
        if self._met_full_s is None or self._now_s() >= self._met_full_s + HOLD_S / 2:
            self._met_full_s = self._now_s()
            self.look()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def is_nearly_full(self) -> bool:
        """Whether the oldest messages are to make room."""
        return self.watermarks.nearly_full(self.usage)

    @property
    def fills(self) -> bool:
        """Whether that is not far."""
        return self.watermarks.nearly_full(self.usage, ahead_percent=FILLS_PERCENT)

    def look(self) -> None:
        """Look once; a disk that does not say changes nothing."""
        try:
            self.usage = self._look(self._directory)
        except OSError as error:
            _log.warning("the disk does not say how full it is", reason=error)
            return
        was, marks = self.refusing, self.watermarks
        met_full = self._met_full_s is not None and self._now_s() < self._met_full_s + HOLD_S
        self.refusing = met_full or marks.refuses(self.usage, refusing=was)
        self.has_room = not met_full and not marks.refuses(self.usage, refusing=True)
        if self.refusing and not was:
            _log.error(
                "messages are refused, the disk is nearly full",
                used_percent=round(self.usage.used_percent, 1),
                until_below=marks.take_below,
            )
        elif was and not self.refusing:
            _log.info("messages are taken again", used_percent=round(self.usage.used_percent, 1))
