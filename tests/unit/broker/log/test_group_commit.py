"""Who hears of a flush, when, and what happens when the disk refuses."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from functools import partial
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, LogFailedError
from gantry_broker.log.disk import Disks
from gantry_protocol.types import Offset
from support import logs
from support.patience import PATIENCE_S
from support.syncers import refused


class SlowDisk:
    """Syncs wait until the test lets them go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Semaphore(0)
        self.started = threading.Semaphore(0)
        self.count = 0
        self.error: OSError | None = None
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        if threading.current_thread().name != "log-writer":
            return
        self.count += 1
        self.started.release()
        self.gate.acquire()
        if self.error is not None:
            raise self.error


async def _until(condition) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_callbacks_run_in_order_after_the_sync(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path, logs.SEGMENT_BYTES)
    told: list[tuple[int, int]] = []
    for number in range(5):
        logs.append(log, number)
        log.flush_soon(lambda flushed, number=number: told.append((number, flushed)))
    assert told == []
    await _until(lambda: len(told) == 5)
    assert [number for number, _ in told] == [0, 1, 2, 3, 4]
    assert told[-1][1] == log.flushed == log.end
    log.close()


async def test_one_sync_serves_all_that_came_during_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = Disks(refused)  # so that each sync is seen
    log = CommitLog.open(tmp_path, 1 << 20, disks=disks)
    disk = SlowDisk(monkeypatch)
    told: list[int] = []
    first_end = Offset(logs.append(log, 0)[0] + logs.RECORD_BYTES)
    log.flush_soon(told.append)
    await asyncio.to_thread(disk.started.acquire)
    for number in range(1, 100):
        logs.append(log, number)
        log.flush_soon(told.append)
    assert log.flushed == 0
    disk.gate.release()
    await _until(lambda: told)
    assert told == [first_end]
    disk.gate.release(100)
    await _until(lambda: len(told) == 100)
    assert set(told[1:]) == {log.end}
    assert disk.count == 2
    log.close()
    disks.close()


async def test_nothing_to_flush_is_told_too_but_never_at_once(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path, 1 << 20)
    told: list[int] = []
    log.flush_soon(told.append)
    assert told == []
    await _until(lambda: told == [0])
    log.close()


async def test_a_failed_sync_tells_nobody_and_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommitLog.open(tmp_path, 1 << 20)
    disk = SlowDisk(monkeypatch)
    disk.error = OSError(errno.EIO, "Input/output error")
    disk.gate.release(100)
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: failures.append(context["exception"])
    )
    told: list[int] = []
    logs.append(log, 0)
    log.flush_soon(told.append)
    await _until(lambda: failures)
    assert isinstance(failures[0], LogFailedError)
    assert failures[0].exit_code == 70
    assert "Input/output error" in str(failures[0])
    disk.error = None  # the disk says it is fine again, and is not believed
    for call in (lambda: logs.append(log, 1), lambda: log.flush_soon(told.append), log.flush):
        with pytest.raises(LogFailedError):
            call()
    log.close()
    assert told == []


async def test_a_cut_while_a_sync_is_under_way_tells_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommitLog.open(tmp_path, 1 << 20)
    disk = SlowDisk(monkeypatch)
    told: list[tuple[str, int]] = []
    cut = Offset(logs.append(log, 0)[0] + logs.RECORD_BYTES)
    logs.append(log, 1)
    log.flush_soon(lambda flushed: told.append(("running", flushed)))
    await asyncio.to_thread(disk.started.acquire)
    logs.append(log, 2)
    log.flush_soon(lambda flushed: told.append(("waiting", flushed)))
    disk.gate.release(100)
    log.truncate(cut)
    assert told == [], "callbacks never run inside the cut"
    assert log.end == log.flushed == cut
    await _until(lambda: len(told) == 2)
    assert told == [("running", cut), ("waiting", cut)]
    log.close()


async def test_what_is_written_during_a_sync_is_not_flushed_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommitLog.open(tmp_path, 1 << 20)
    disk = SlowDisk(monkeypatch)
    told: list[int] = []
    first_end = Offset(logs.append(log, 0)[0] + logs.RECORD_BYTES)
    log.flush_soon(told.append)
    await asyncio.to_thread(disk.started.acquire)
    logs.append(log, 1)
    assert len(logs.contents(log)) == log.end, "whoever reads has it written"
    disk.gate.release()
    await _until(lambda: told)
    assert (told, log.flushed) == ([first_end], first_end)
    disk.gate.release(100)
    log.close()


@pytest.mark.parametrize("is_reset", [False, True], ids=["cut", "reset"])
async def test_who_waits_for_nothing_more_is_told_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reset: bool
) -> None:
    log = CommitLog.open(tmp_path, 1 << 20)
    disk = SlowDisk(monkeypatch)
    told: list[tuple[str, int]] = []
    cut = Offset(logs.append(log, 0)[0] + logs.RECORD_BYTES)
    logs.append(log, 1)
    log.flush_soon(lambda flushed: told.append(("running", flushed)))
    await asyncio.to_thread(disk.started.acquire)
    log.flush_soon(lambda flushed: told.append(("waiting", flushed)))
    disk.gate.release(100)
    (log.reset if is_reset else log.truncate)(cut)
    await _until(lambda: len(told) == 2)
    assert told == [("running", cut), ("waiting", cut)]
    log.close()


def test_a_flush_over_two_files_leaves_both_and_their_names_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "log"
    log = CommitLog.open(root, 512)
    synced: set[str] = set()
    real = {name: getattr(os, name) for name in ("fsync", "fdatasync")}

    def noted(name: str, descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real[name](descriptor)

    for name in real:
        monkeypatch.setattr(os, name, partial(noted, name))
    for number in range(4):
        logs.append(log, number, 200)
    log.flush()
    assert len(log.starts) > 1
    assert synced >= {root.name, *(f"{start:020d}" for start in log.starts)}
    log.close()


async def test_confirm_floor_is_durable_soon_without_further_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry_broker.log.disk.CHECKPOINT_INTERVAL_S", 0.01)
    log = logs.filled(tmp_path / "log", 10)
    await asyncio.sleep(0.05)  # the checkpoint of the flush is over, the writer sleeps for good
    log.raise_confirm_floor(log.end)

    def durable() -> bool:
        copy = logs.clone(log.directory, tmp_path / f"copy{os.urandom(4).hex()}")
        opened = CommitLog.open(copy, logs.SEGMENT_BYTES)
        floor = opened.confirm_floor
        opened.close()
        return floor == log.end

    await _until(durable)
    log.close()


def test_the_floor_never_promises_what_is_not_flushed(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 3)
    flushed = log.flushed
    logs.append(log, 3)
    log.raise_confirm_floor(log.end)
    assert log.confirm_floor == flushed
    log.raise_confirm_floor(Offset(10))
    assert log.confirm_floor == flushed
    log.close()
