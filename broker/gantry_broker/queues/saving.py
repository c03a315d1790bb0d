"""Work of a store that nobody waits for: writing its checkpoint, verifying old parts of its log.

Each runs in a thread of its own, at most one at a time; the event loop only takes the state and
hears of failures.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gantry_protocol.errors import CorruptionError

from gantry_broker.log import CommitLog
from gantry_broker.queues import state_file
from gantry_broker.queues.queue_set import sync_files

VERIFY_PAUSE_S = 0.05  # after every 8 MiB: at most 160 MB/s are taken from the disk


class StateSaver:
    """Writes checkpoints of derived state.

    Args:
        root: holds the queues and the checkpoint.
        path: the checkpoint.
    """

    def __init__(self, root: Path, path: Path) -> None:
        self._root = root
        self._path = path
        self._thread: threading.Thread | None = None
        self._failure: OSError | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, files: set[Path], data: bytes, dropped: list[Path]) -> None:
        """Sync ``files``, replace the checkpoint by ``data``, then delete what it does not name.

        The one before has ended.

        Raises:
            OSError: the one before failed.
        """
        self.join()
        self._thread = threading.Thread(
            target=self._save, args=(files, data, dropped), name="store-saver", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        """Wait for the checkpoint under way.

        Raises:
            OSError: the disk failed, then or earlier.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def _save(self, files: set[Path], data: bytes, dropped: list[Path]) -> None:
        try:
            sync_files(self._root, files)
            state_file.save(self._path, data)
            for path in dropped:
                path.unlink(missing_ok=True)
        except OSError as error:
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
