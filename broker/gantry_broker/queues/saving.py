"""Work of a store that nobody waits for: making its rows durable, verifying its log.

Each runs in a thread of its own, at most one at a time; the event loop only hears of
failures.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from gantry_protocol.errors import CorruptionError
from gantry_protocol.process import log as logs
from gantry_protocol.types import Offset

from gantry_broker.log import CommitLog
from gantry_broker.log.checked import DamagedError
from gantry_broker.log.recovery import PAUSE_BYTES
from gantry_broker.log.sums import RangeSum
from gantry_broker.queues.kv import KeyValue

PROGRESS_INTERVAL_S = 5.0  # between log lines while a start replays
VERIFY_PAUSE_S = 0.05  # after every 8 MiB: at most 160 MB/s are taken from the disk
PASS_SHARE = 0.8  # of a period that a pass takes: a disk that is slow has the rest

_log = logs.get("store")


def saying_progress(end: Offset) -> Callable[[Offset], None]:
    """A callback that logs now and then which offset a start has come to, up to ``end``."""
    said_at = time.monotonic()

    def on_step(offset: Offset) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= PROGRESS_INTERVAL_S:
            said_at = time.monotonic()
            _log.info("deriving from the log", offset=offset, end=end)

    return on_step


class Saver:
    """Makes the key-value store durable up to what was written when ``begin`` was called."""

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv
        self._thread: threading.Thread | None = None
        self._failure: OSError | CorruptionError | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it is at work."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self) -> None:
        """Flush in the background; the one before has ended.

        Raises:
            CorruptionError, OSError: the one before failed.
        """
        self.join()
        self._thread = threading.Thread(target=self._flush, name="store-saver", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the one under way.

        Raises:
            CorruptionError: the store is damaged, found then or earlier.
            OSError: the disk failed, then or earlier.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def _flush(self) -> None:
        try:
            self._kv.flush()
        except (OSError, CorruptionError) as error:
            self._failure = error


class Scrubber:
    """Compares the log with its checksums, again and again, in the background.

    First what was too much to read when the log was opened, as fast as the disk should bear; then
    all of it, once in each period. Damage is looked at again on the event loop, since the log may
    be cut meanwhile, and noted there.

    Args:
        log: what to read.
        period_s: in which every byte is read; 0 for the first time only.

    Attributes:
        scanned_bytes: ever.
        passes: that reached the end, ever.
        passed_at_s: when the last one did, by ``time.time``; 0 before the first.
    """

    def __init__(self, log: CommitLog, period_s: float) -> None:
        self.scanned_bytes = 0
        self.passes = 0
        self.passed_at_s = 0.0
        self._log = log
        self._period_s = period_s
        self._pause_s = VERIFY_PAUSE_S
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-scrubber", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it soon, and wait for that."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(InterruptedError):
            self._pass(everything=False)
            while self._period_s and not self._stopping.wait(self._rest_s):
                self._pause_s = pause_s(self._log.end - self._log.log_start, self._period_s)
                self._pass(everything=True)

    @property
    def _rest_s(self) -> float:
        """Until the next pass begins."""
        return max(0.0, self._began_s + self._period_s - time.monotonic())

    def _pass(self, *, everything: bool) -> None:
        self._began_s = time.monotonic()
        try:
            self._log.verify(everything=everything, pause=self._pause, damaged=self._tell)
        except OSError as error:
            _log.warning("a scrub of the log broke off", reason=error.strerror)
            return
        self.passes += 1
        self.passed_at_s = time.time()

    def _pause(self) -> None:
        self.scanned_bytes += PAUSE_BYTES
        if self._stopping.wait(self._pause_s):
            raise InterruptedError

    def _tell(self, entry: RangeSum) -> None:
        with suppress(RuntimeError):  # the loop was closed: the process ends
            self._loop.call_soon_threadsafe(self._look, entry)

    def _look(self, entry: RangeSum) -> None:
        with suppress(DamagedError):
            self._log.compare(entry.start, entry.end)


def pause_s(log_bytes: int, period_s: float) -> float:
    """The time to rest after every ``PAUSE_BYTES``, so that a pass takes most of a period."""
    return max(VERIFY_PAUSE_S, PASS_SHARE * period_s * PAUSE_BYTES / max(log_bytes, PAUSE_BYTES))
