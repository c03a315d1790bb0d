"""Work of a store that nobody waits for: making its rows durable, verifying old parts of its log.

Each runs in a thread of its own, at most one at a time; the event loop only hears of
failures.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from gantry_protocol.errors import CorruptionError

from gantry_broker.log import CommitLog
from gantry_broker.queues.kv import KeyValue

VERIFY_PAUSE_S = 0.05  # after every 8 MiB: at most 160 MB/s are taken from the disk


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


class Verifier:
    """Compares with its checksums what was too much to read when the log was opened.

    Args:
        log: what to read.
        failed: called on the running loop when there is damage.
    """

    def __init__(self, log: CommitLog, failed: Callable[[CorruptionError], None]) -> None:
        self._log = log
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-verifier", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it has read everything."""
        self._thread.join()

    def stop(self) -> None:
        """End it soon, and wait for that."""
        self._stopping.set()
        self.join()

    def _run(self) -> None:
        try:
            self._log.verify(everything=False, pause=self._pause)
        except CorruptionError as error:
            with suppress(RuntimeError):  # the loop was closed: the process ends anyway
                self._loop.call_soon_threadsafe(self._failed, error)
        except InterruptedError:
            return

    def _pause(self) -> None:
        if self._stopping.wait(VERIFY_PAUSE_S):
            raise InterruptedError
