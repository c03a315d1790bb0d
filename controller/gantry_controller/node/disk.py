"""The log and its thread, as the event loop sees them.

A pass submits what the core wants durable and holds back what peers may learn only then (``held``).
The thread confirms in its own time; the next pass takes note of it and releases what waited.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from gantry_protocol.errors import EXIT_INTERNAL, GantryError
from gantry_protocol.types import Index

from gantry_controller.node.held import Held
from gantry_controller.node.options import NodeOptions
from gantry_controller.raft.core import Ready
from gantry_controller.raft.messages import Message
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
        durable: called on the loop when more has become durable.
        failed: called on the loop when the disk fails; nothing is confirmed any more.

    Attributes:
        held: what waits for the disk.
    """

    def __init__(
        self,
        options: NodeOptions,
        *,
        durable: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._options = options
        self._tell_durable = durable
        self._tell_failed = failed
        self.held = Held()
        self._markers: deque[tuple[int, Index]] = deque()
        self._durable = 0  # newest batch confirmed by the thread
        self._taken = 0  # newest batch reported to the core
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
            wal, durable=self._in_thread_durable, failed=self._in_thread_failed
        )
        self._writer.start()
        return found

    async def close(self) -> None:
        """Finish what was submitted, then close the log."""
        self.held.clear()
        await asyncio.to_thread(self._writer.stop)

    def submit(self, ready: Ready) -> None:
        """Write what ``ready`` wants on disk, and hold back what waits for that."""
        if ready.must_persist:
            assert ready.hard_state is not None
            write = Write(ready.entries, ready.hard_state, ready.markers)
            self._writer.submit(ready.batch, write)
        for marker in ready.markers:
            self._markers.append((ready.batch, marker.index))
        self.held.hold(ready.batch, ready.messages_after_persist)

    def take_durable(self) -> range:
        """Numbers of the batches that have become durable since the last call."""
        batches = range(self._taken + 1, self._durable + 1)
        self._taken = self._durable
        return batches

    def release(self) -> list[Message]:
        """What waited for batches that are durable, and reported, by now."""
        return self.held.release(self._taken)

    def take_marked(self) -> Index | None:
        """The newest snapshot whose marker has become durable since the last call."""
        newest: Index | None = None
        while self._markers and self._markers[0][0] <= self._taken:
            newest = self._markers.popleft()[1]
        return newest

    @property
    def log_bytes(self) -> int:
        """Size of the log's files."""
        return self._writer.log_bytes

    def _open_wal(self) -> tuple[Wal, Recovered]:
        return Wal.open(
            self._options.directory, segment_size_bytes=self._options.segment_size_bytes
        )

    def _in_thread_durable(self, batch: int) -> None:
        self._loop.call_soon_threadsafe(self._on_durable, batch)

    def _in_thread_failed(self, error: OSError) -> None:
        failure = DiskError(
            f"Writing the log in {self._options.directory} failed ({error.strerror or error}); "
            "what is durable is unknown, so this node stops: mend the disk and start it again."
        )
        failure.__cause__ = error
        self._loop.call_soon_threadsafe(self._tell_failed, failure)

    def _on_durable(self, batch: int) -> None:
        self._durable = batch
        self._tell_durable()
