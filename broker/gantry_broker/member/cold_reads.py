"""Reads of records that are not in memory: a few threads wait for the disk, the event loop never.

A pull is first answered from the page cache. What it lacks is read here, with what follows it, so
that a consumer far behind finds its next pulls in memory; then the pull is tried again with what
was read. The threads are the process's, so a disk that is slow, or a consumer that reads all of a
log, delays those who read from the disk and nobody else.

Rules protected: a read is answered once; a file is never read by a descriptor that another thread
may close. What it refuses: more than ``WAITING_MAX`` reads of a group at once ("busy": clients come
back in a while). A file that is gone by then was trimmed, and the second try says what is left.
"""

import asyncio
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeAlias

from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import Offset

from gantry_broker.log import CommitLog
from gantry_broker.log.checked import DamagedError, read_checked
from gantry_broker.log.segments import Stretch
from gantry_broker.store.contract import Refusal

THREADS = 4  # of a process: a disk serves a few readers better than one, and hundreds worse
WAITING_MAX = 512  # reads of a group; each brings at most what one pull may return
READ_AHEAD_BYTES = 1024 * 1024  # asked of the disk beyond a read: a consumer's next few pulls
_ASKED_MAX_BYTES = 8 * 1024 * 1024  # what lies further apart is read piece by piece

Place: TypeAlias = tuple[Offset, int]  # in the log, bytes
Held: TypeAlias = dict[Place, bytes]  # what was read for one pull
ReadParts = Callable[[Sequence[Stretch]], list[bytes]]
Fetched = Callable[[Held | Refusal | None], None]


def read_stretches(stretches: Sequence[Stretch]) -> list[bytes]:
    """Read parts of one file, waiting for the disk; what follows them is on its way then.

    The disk is asked once for all that lies between them, and a while beyond.

    Raises:
        DamagedError: they are not what was flushed.
        OSError: the disk failed, or the file is gone.
    """
    first, last = stretches[0], stretches[-1]
    ahead = last.position + last.size + READ_AHEAD_BYTES - first.position
    descriptor = os.open(first.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ahead <= _ASKED_MAX_BYTES:
            os.posix_fadvise(descriptor, first.position, ahead, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(descriptor)
    return read_checked(first.path, [(stretch.position, stretch.size) for stretch in stretches])


class ColdReads:
    """The reads of one group that wait for the disk.

    Args:
        log: where the records are.
        pool: the process's threads for this.
        read: reads parts of one file, in their order; called in the threads.

    Attributes:
        asked: reads that had to wait, ever.
        refused: reads that were too many, ever.
    """

    def __init__(self, log: CommitLog, pool: Executor, read: ReadParts = read_stretches) -> None:
        """Nobody waits."""
        self.asked = 0
        self.refused = 0
        self._log = log
        self._pool = pool
        self._read = read
        self._numbers = itertools.count()
        self._waiting: dict[int, Fetched] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, places: Sequence[Place], done: Fetched) -> None:
        """Read flushed parts of the log.

        Args:
            places: of records that one pull wants, none over the end of a file.
            done: called once, with what was read (not all of it where a file is gone), with why it
                was not, or with None after ``release``.
        """
        if len(self._waiting) >= WAITING_MAX:
            self.refused += 1
            remark = f"{len(self._waiting)} pulls wait for the disk, try again later"
            done(Refusal(ResponseCode.SYSTEM_BUSY, remark))
            return
        self.asked += 1
        number = next(self._numbers)
        self._waiting[number] = done
        stretches = {
            place: self._log.stretches(place[0], Offset(place[0] + place[1]))[0] for place in places
        }
        self._pool.submit(self._work, asyncio.get_running_loop(), number, stretches)

    def release(self) -> None:
        """Tell whoever waits that nothing comes; what is read meanwhile is dropped."""
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done(None)

    def _work(
        self, loop: asyncio.AbstractEventLoop, number: int, stretches: dict[Place, Stretch]
    ) -> None:
        """In a thread."""
        found: Held | Refusal | DamagedError
        try:
            found = self._read_all(number, stretches)
        except DamagedError as error:
            found = error
        except OSError as error:
            found = Refusal(ResponseCode.SYSTEM_ERROR, f"the disk failed: {error.strerror}")
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(self._finished, number, found)

    def _read_all(self, number: int, stretches: dict[Place, Stretch]) -> Held:
        held: Held = {}
        for _, group in itertools.groupby(stretches.items(), lambda item: item[1].path):
            if number not in self._waiting:
                break  # it was released
            places, parts = zip(*group, strict=True)
            with suppress(FileNotFoundError):
                held.update(zip(places, self._read(parts), strict=True))
        return held

    def _finished(self, number: int, found: Held | Refusal | DamagedError) -> None:
        if isinstance(found, DamagedError):
            found = self._looked_at_again(found)
        done = self._waiting.pop(number, None)
        if done is not None:
            done(found)

    def _looked_at_again(self, error: DamagedError) -> Held | Refusal:
        """What a thread saw may have been cut or repaired meanwhile; the log notes what is not."""
        try:
            self._log.compare(error.damage.start, error.damage.end)
        except DamagedError as again:
            return Refusal(ResponseCode.SYSTEM_ERROR, str(again))
        return {}
