"""The log and its thread, as the event loop sees them.

A pass submits what the core wants durable. The thread confirms in its own time, and the next pass
takes note of it. What may leave then is decided in ``raft.after_persist``.
"""

import asyncio
from collections.abc import Callable

from gantry_protocol.errors import EXIT_INTERNAL, GantryError
from gantry_protocol.process.sync_times import SyncTimes

from gantry_controller.node.options import NodeOptions
from gantry_controller.raft.core import Ready
from gantry_controller.wal.format import Write
from gantry_controller.wal.recovery import Recovered
from gantry_controller.wal.wal import Wal
from gantry_controller.wal.writer import WalWriter


class DiskError(GantryError):
    """The log could not be written; the process must end, since what is durable is unknown."""

    exit_code = EXIT_INTERNAL


class Disk:
    """See the module.

    Args:
        options: where the log is.
        durable: called on the loop with the newest batch that is durable.
        failed: called on the loop when the disk fails; nothing is confirmed any more.

    Attributes:
        sync_times: how long the disk took for each batch.
    """

    def __init__(
        self,
        options: NodeOptions,
        *,
        durable: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._options = options
        self.sync_times = SyncTimes()
        self._tell_durable = durable
        self._tell_failed = failed
        self._loop: asyncio.AbstractEventLoop
        self._writer: WalWriter

    @property
    def batches(self) -> int:
        """Syncs so far."""
        return self._writer.batches

    async def open(self) -> Recovered:
        """Recover the log and start its thread.

        Raises:
            CorruptionError: the log is damaged; nothing was changed.
            DataDirError: it was written by a newer program.
        """
        self._loop = asyncio.get_running_loop()
        wal, found = await asyncio.to_thread(self._open_wal)
        self._writer = WalWriter(
            wal,
            durable=self._in_thread_durable,
            failed=self._in_thread_failed,
            times=self.sync_times,
        )
        self._writer.start()
        return found

    async def close(self) -> None:
        """Finish what was submitted, then close the log."""
        await asyncio.to_thread(self._writer.stop)

    def submit(self, ready: Ready) -> None:
        """Write what ``ready`` wants on disk."""
        if ready.must_persist:
            assert ready.hard_state is not None
            write = Write(ready.entries, ready.hard_state, ready.markers)
            self._writer.submit(ready.batch, write)

    @property
    def log_bytes(self) -> int:
        """Size of the log's files."""
        return self._writer.log_bytes

    def _open_wal(self) -> tuple[Wal, Recovered]:
        return Wal.open(
            self._options.directory, segment_size_bytes=self._options.segment_size_bytes
        )

    def _in_thread_durable(self, batch: int) -> None:
        self._loop.call_soon_threadsafe(self._tell_durable, batch)

    def _in_thread_failed(self, error: OSError) -> None:
        failure = DiskError(
            f"Writing the log in {self._options.directory} failed ({error.strerror or error}); "
            "what is durable is unknown, so this node stops: mend the disk and start it again."
        )
        failure.__cause__ = error
        self._loop.call_soon_threadsafe(self._tell_failed, failure)
