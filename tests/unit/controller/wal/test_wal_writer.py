"""The writer thread: order, group commit, and the end when the disk fails."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gantry_controller.raft.messages import EntryKind, HardState, make_entry
from gantry_controller.wal.format import Write
from gantry_controller.wal.wal import Wal
from gantry_controller.wal.writer import WalWriter
from gantry_protocol.process.sync_times import SyncTimes
from gantry_protocol.types import Index, Term
from support.patience import PATIENCE_S


def write(index: int) -> Write:
    entry = make_entry(EntryKind.COMMAND, Term(1), Index(index), b"v")
    return Write([entry], HardState(Term(1)))


WALS: list[SlowWal] = []


TIMES = SyncTimes()


class SlowWal(Wal):
    """Waits for permission, and remembers how the writes were grouped."""

    def prepare(self, error: OSError | None = None) -> None:
        self.groups: list[int] = []
        self.entered = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)
        self.error = error

    def append(self, writes: list[Write]) -> None:
        self.entered.release()
        assert self.allowed.acquire(timeout=PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.groups.append(len(writes))
        super().append(writes)


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """A test that fails leaves no thread that waits, and complains in another one."""
    yield
    while WALS:
        WALS.pop().allowed.release(100)


def slow_writer(
    tmp_path: Path, error: OSError | None = None
) -> tuple[WalWriter, SlowWal, list[int], list[OSError]]:
    wal, _ = SlowWal.open(tmp_path)
    assert isinstance(wal, SlowWal)
    wal.prepare(error)
    WALS.append(wal)
    durable: list[int] = []
    failed: list[OSError] = []
    writer = WalWriter(wal, durable=durable.append, failed=failed.append, times=TIMES)
    writer.start()
    return writer, wal, durable, failed


def test_what_arrives_during_a_sync_is_the_next_batch(tmp_path: Path) -> None:
    before = sum(TIMES.counts)
    writer, wal, durable, failed = slow_writer(tmp_path)
    writer.submit(1, write(1))
    assert wal.entered.acquire(timeout=PATIENCE_S)
    for ticket in range(2, 7):
        writer.submit(ticket, write(ticket))
    assert durable == []
    wal.allowed.release(10)
    writer.stop()
    assert wal.groups == [1, 5]
    assert durable == [1, 6]
    assert failed == []
    assert writer.batches == 2
    assert sum(TIMES.counts) == before + 2
    _, found = Wal.open(tmp_path)
    assert [entry.index for entry in found.entries] == [1, 2, 3, 4, 5, 6]


def test_failing_disk_confirms_nothing_and_ends_the_thread(tmp_path: Path) -> None:
    error = OSError(errno.EIO, "Input/output error")
    writer, wal, durable, failed = slow_writer(tmp_path, error)
    writer.submit(1, write(1))
    wal.allowed.release(10)
    writer.submit(2, write(2))
    writer.stop()
    assert durable == []
    assert failed == [error]
