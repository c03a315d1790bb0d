"""The one thread that appends to the log, with group commit.

Writes are queued; the thread takes everything that waits, makes one batch of it, and confirms the
newest ticket when that is durable. What arrives meanwhile is the next batch, so batches grow with
the load by themselves (thesis §10.2.1). Confirmations come in the order of submission.

A disk that fails ends the thread: ``failed`` is called once and nothing is confirmed any more. The
owner must end the process, because memory and disk no longer agree on what is durable.
"""

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from gantry_protocol.process.sync_times import SyncTimes

from gantry_controller.wal.format import Write
from gantry_controller.wal.wal import Wal


class WalWriter:
    """Owns a log and its thread.

    Args:
        wal: the log; nobody else may use it from now on.
        durable: called in the thread with the newest ticket that is durable.
        failed: called in the thread when the disk fails.
        times: where the thread notes how long each batch took; anybody may read them.
    """

    def __init__(
        self,
        wal: Wal,
        *,
        durable: Callable[[int], None],
        failed: Callable[[OSError], None],
        times: SyncTimes | None = None,
    ) -> None:
        self.batches = 0  # syncs so far; written by the thread, read by anybody
        self._times = SyncTimes() if times is None else times
        self.log_bytes = wal.size_bytes  # likewise
        self._wal = wal
        self._durable = durable
        self._failed = failed
        self._queue: SimpleQueue[tuple[int, Write] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="wal", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, ticket: int, write: Write) -> None:
        """Queue ``write``; tickets grow."""
        self._queue.put((ticket, write))

    def stop(self) -> None:
        """Finish what is queued, confirm it, and close the log. Blocks."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._write_one_batch():
                pass
        except OSError as error:
            self._failed(error)
        finally:
            self._wal.close()

    def _write_one_batch(self) -> bool:
        """Wait for work, take all there is, make it durable. False when stopped."""
        items = [self._queue.get()]
        items += [self._queue.get() for _ in range(self._queue.qsize())]
        work = [item for item in items if item is not None]
        if work:
            begun_s = time.monotonic()
            self._wal.append([write for _, write in work])
            self._times.note(time.monotonic() - begun_s)
            self.batches += 1
            self.log_bytes = self._wal.size_bytes
            self._durable(work[-1][0])
        return len(work) == len(items)
