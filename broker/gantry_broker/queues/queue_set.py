"""All consume queues of a store, found by (topic, queue id) and made on first use."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from gantry_protocol.process.files import fsync_directory

from gantry_broker.queues.consume_queue import ConsumeQueue, QueueState, find_damage
from gantry_broker.store.contract import QueueKey

VERIFY_AT_START_BYTES = 256 * 1024 * 1024  # of queue files; beyond it only the newest of each queue


class QueueSet:
    """The queues below one directory, ``<topic>/<queue id>/``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._changed: set[QueueKey] = set()  # appended to since the last checkpoint
        self._trimmed: set[QueueKey] = set()  # since the last checkpoint

    def restore(self, states: Iterable[QueueState]) -> Path | None:
        """Take over what a checkpoint says, unless a file is damaged: that file is returned."""
        states = list(states)
        total_bytes = sum(state.maximum - state.base for state in states) * 20
        newest_only = total_bytes > VERIFY_AT_START_BYTES
        for state in states:
            directory = self._path((state.topic, state.queue_id))
            damaged = find_damage(directory, state, newest_only=newest_only)
            if damaged is not None:
                return damaged
            key = (state.topic, state.queue_id)
            self._queues[key] = ConsumeQueue.restore(directory, state)
        return None

    def clear(self) -> None:
        """Throw all queues away, in memory and on the disk."""
        self._queues.clear()
        self._changed.clear()
        self._trimmed.clear()
        if self._directory.exists():
            shutil.rmtree(self._directory)

    def list_keys(self) -> list[QueueKey]:
        """Every queue that ever had a record."""
        return list(self._queues)

    def get(self, key: QueueKey) -> ConsumeQueue | None:
        """The queue, or None when it has never had a record."""
        return self._queues.get(key)

    def of_topic(self, topic: str) -> Iterator[tuple[int, ConsumeQueue]]:
        """Queue id and queue of everything that ever had a record of ``topic``."""
        return ((key[1], queue) for key, queue in self._queues.items() if key[0] == topic)

    def append(self, key: QueueKey, queue_offset: int, entry: tuple[int, int, int]) -> bool:
        """Add the entry of a record; False when it has the wrong number for its queue."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = ConsumeQueue(self._path(key), queue_offset)
        if queue.max_offset != queue_offset:
            return False
        queue.append(*entry)
        self._changed.add(key)
        return True

    def ensure(self, key: QueueKey, first: int, next_offset: int) -> bool:
        """Make a queue whose records are all in a part of the log that is not here.

        Returns:
            False when it is there and another record comes next in it.
        """
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = ConsumeQueue(self._path(key), next_offset)
        queue.first = min(first, queue.min_offset)
        return queue.max_offset == next_offset

    def trim(self, key: QueueKey, offset: int) -> None:
        """Serve nothing of a queue below ``offset`` from the local log any more."""
        self._queues[key].trim(offset)
        self._trimmed.add(key)

    def drop_files(self) -> list[Path]:
        """Give up files that hold trimmed entries only; see ``ConsumeQueue.drop_files``."""
        dropped = [path for key in self._trimmed for path in self._queues[key].drop_files()]
        self._trimmed.clear()
        return dropped

    def write_out(self) -> None:
        """Write all buffered entries into files."""
        for key in self._changed:
            self._queues[key].write_out()

    def states(self) -> list[QueueState]:
        """What a checkpoint says of all queues; after ``write_out``."""
        return [queue.state(*key) for key, queue in self._queues.items()]

    def take_dirty(self) -> set[Path]:
        """The files to sync for a checkpoint."""
        dirty: set[Path] = set()
        for key in self._changed:
            dirty |= self._queues[key].take_dirty()
        self._changed.clear()
        return dirty

    def _path(self, key: QueueKey) -> Path:
        return self._directory / key[0] / str(key[1])


def sync_files(root: Path, files: set[Path]) -> None:
    """Make queue files durable, with the directories that lead to them; for a thread."""
    directories: set[Path] = set()
    for path in files:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        directories.update(parent for parent in path.parents if parent.is_relative_to(root))
    for directory in sorted(directories, reverse=True):
        fsync_directory(directory)
