"""Syncs that the kernel carries out: when it is asked, who takes the end in, what an error does."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, LogFailedError, sums
from gantry_broker.log import disk as disk_module
from gantry_broker.log.checkpoint import load
from gantry_broker.log.disk import SYNCFS_FROM, Disks
from gantry_broker.log.kernel_syncs import KernelSyncer
from gantry_protocol.types import Offset
from support import logs
from support.patience import PATIENCE_S
from support.syncers import FakeSyncer, refused


@pytest.fixture(autouse=True)
def no_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "CHECKPOINT_INTERVAL_S", 1000)


@pytest.fixture
def syncer() -> FakeSyncer:
    return FakeSyncer()


@pytest.fixture
def disks(syncer: FakeSyncer) -> Iterator[Disks]:
    made = Disks(lambda: syncer)
    yield made
    made.close()


async def flushed(*written: CommitLog) -> None:
    waiting = [asyncio.get_running_loop().create_future() for _ in written]
    for log, future in zip(written, waiting, strict=True):
        log.flush_soon(future.set_result)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*waiting)


def open_files() -> list[str]:
    held = list(Path("/proc/self/fd").iterdir())
    return [str(one.readlink()) for one in held if one.is_symlink()]


async def begun(root: Path, disks: Disks, count: int = 1) -> list[CommitLog]:
    """Logs whose file is on the disk: a new file is the thread's."""
    opened = [CommitLog.open(root / str(one), 1 << 20, disks=disks) for one in range(count)]
    for log in opened:
        logs.append(log, 0)
        await flushed(log)
    return opened


async def syncing(root: Path, disks: Disks) -> CommitLog:
    """A log with a sync under way."""
    (log,) = await begun(root, disks)
    logs.append(log, 1)
    log.flush_soon(lambda _: None)
    return log


async def test_the_kernel_syncs_what_grows(tmp_path: Path) -> None:
    try:
        KernelSyncer()
    except OSError as error:
        pytest.skip(str(error))
    disks = Disks()
    before = open_files()
    opened = await begun(tmp_path, disks, 3)
    (disk,) = disks.writers
    assert (disk.thread_syncs, disk.kernel.syncs) == (3, 0)
    for number in range(1, 5):
        for log in opened:
            logs.append(log, number)
        await flushed(*opened)
        assert all(log.flushed == log.end for log in opened)
    assert (disk.thread_syncs, disk.kernel.syncs, disk.jobs) == (3, 12, 15)
    assert (sum(disk.thread_times.counts), sum(disk.kernel.times.counts)) == (3, 12)
    assert disk.kernel.is_used
    for log in opened:
        log.close()
    await asyncio.to_thread(disks.close)
    await asyncio.sleep(0)
    assert len(open_files()) <= len(before)


async def test_the_real_kernel_tells_of_a_file_it_cannot_sync() -> None:
    try:
        syncer = KernelSyncer()
    except OSError as error:
        pytest.skip(str(error))
    end, other = os.pipe()
    with pytest.raises(OSError, match="EINVAL"):
        syncer.submit(end, lambda _: pytest.fail("it was never begun"))
    os.close(end)
    os.close(other)


def test_the_result_of_an_operation_is_its_error(tmp_path: Path) -> None:
    try:
        syncer = KernelSyncer()
    except OSError as error:
        pytest.skip(str(error))
    told: list[OSError | None] = []
    syncer._note(told.append, 0)
    syncer._note(told.append, (1 << 64) - errno.EIO)
    syncer.reap()
    first, second = told
    assert first is None
    assert second is not None
    assert second.errno == errno.EIO


async def test_an_error_of_the_kernel_poisons_the_log_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: set[int] = set()

    def sync(descriptor: int) -> None:
        if descriptor in broken:
            broken.clear()  # it is told once
            raise OSError(errno.EIO, "Input/output error")

    syncer = FakeSyncer(sync, is_held=True)
    disks = Disks(lambda: syncer)
    complaints: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: complaints.append(context["exception"])
    )
    hit, other = await begun(tmp_path, disks, 2)
    promised = hit.flushed
    broken.add(hit._segments.at(Offset(0), flushed=hit.end).descriptor)
    for log in (hit, other):
        logs.append(log, 1)
    hit.flush_soon(lambda _: pytest.fail("what the disk lost is not flushed"))
    behind = asyncio.create_task(flushed(other))
    await asyncio.sleep(0)
    syncer.let_go()
    await behind
    assert other.flushed == other.end
    assert [type(one) for one in complaints] == [LogFailedError]
    assert hit.flushed == promised
    for call in (lambda: logs.append(hit, 2), hit.flush, lambda: hit.flush_soon(print)):
        with pytest.raises(LogFailedError):
            call()
    hit.raise_confirm_floor(promised)
    for log in (hit, other):
        log.close()
    assert load(hit.directory / "checkpoint").confirm_floor == 0, "nothing is promised any more"
    disks.close()


async def test_where_there_is_none_the_thread_syncs(tmp_path: Path) -> None:
    disks = Disks(refused)
    (log,) = await begun(tmp_path, disks)
    for number in range(1, 4):
        logs.append(log, number)
        await flushed(log)
    (disk,) = disks.writers
    assert (disk.thread_syncs, disk.kernel.syncs, disk.kernel.is_used) == (4, 0, False)
    log.close()
    disks.close()


async def test_a_refused_sync_is_the_threads_and_the_kernel_is_asked_no_more(
    tmp_path: Path, syncer: FakeSyncer, disks: Disks
) -> None:
    (log,) = await begun(tmp_path, disks)
    logs.append(log, 1)
    await flushed(log)
    syncer.refusal = OSError(errno.EAGAIN, "no room")
    for number in range(2, 5):
        logs.append(log, number)
        await flushed(log)
        assert log.flushed == log.end
    (disk,) = disks.writers
    assert (disk.kernel.syncs, syncer.offered) == (1, 2)
    log.close()


@pytest.mark.parametrize("is_here", [True, False], ids=["on the loop", "in a thread"])
async def test_who_blocks_takes_in_what_the_kernel_has_ended(
    tmp_path: Path, syncer: FakeSyncer, disks: Disks, is_here: bool
) -> None:
    asyncio.get_running_loop().set_debug(True)  # it complains of calls from other threads
    mine, other = await begun(tmp_path, disks, 2)
    told: list[str] = []
    for log in (mine, other):
        logs.append(log, 1)
    mine.flush_soon(lambda _: told.append("mine"))
    other.flush_soon(lambda _: told.append("other"))
    logs.append(mine, 2)
    if is_here:
        mine.flush()
    else:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(mine.flush).result(5)
    assert mine.flushed == mine.end
    assert told == [], "callbacks never run inside"
    await asyncio.sleep(0.01)
    assert sorted(told) == ["mine", "other"]
    assert other.flushed == other.end
    mine.close()
    other.close()


async def test_a_cut_waits_for_the_kernel(tmp_path: Path, syncer: FakeSyncer, disks: Disks) -> None:
    (log,) = await begun(tmp_path, disks)
    to = log.end
    logs.append(log, 1)
    told: list[int] = []
    log.flush_soon(told.append)
    log.truncate(to)
    assert (log.end, log.flushed, told) == (to, to, [])
    await asyncio.sleep(0.01)
    assert told == [to]
    log.close()
    again = CommitLog.open(log.directory, 1 << 20)
    assert again.end == to
    again.close()


async def test_a_log_that_failed_is_closed_only_after_its_sync(
    tmp_path: Path, syncer: FakeSyncer, disks: Disks
) -> None:
    log = await syncing(tmp_path, disks)
    (disk,) = disks.writers
    log._failed(OSError(errno.EIO, "a write"))
    log.close()
    assert disk.kernel.under_way == 0


async def test_an_end_may_be_heard_of_after_the_last_log_is_closed(
    tmp_path: Path, syncer: FakeSyncer, disks: Disks
) -> None:
    """The loop may have the readable descriptor in its queue for what was taken in already."""
    log = await syncing(tmp_path, disks)
    (disk,) = disks.writers
    await asyncio.to_thread(log.close)
    await asyncio.to_thread(disks.close)
    disk.kernel._on_readable()
    assert disk.kernel.under_way == 0


async def test_many_at_once_are_the_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncer = FakeSyncer(is_held=True)
    disks = Disks(lambda: syncer)
    opened = await begun(tmp_path, disks, SYNCFS_FROM + 3)
    (disk,) = disks.writers
    for log in opened:
        logs.append(log, 1)
    waiting = asyncio.create_task(flushed(*opened))
    await asyncio.sleep(0)
    assert disk.kernel.under_way == SYNCFS_FROM - 1
    syncer.let_go()
    await waiting
    assert disk.kernel.syncs == SYNCFS_FROM - 1
    for log in opened:
        log.close()
    disks.close()


async def test_who_comes_while_the_thread_syncs_shares_its_next(
    tmp_path: Path, disks: Disks, syncer: FakeSyncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = await begun(tmp_path, disks)
    started, go = threading.Semaphore(0), threading.Semaphore(0)
    fdatasync = os.fdatasync

    def slow(descriptor: int) -> None:
        started.release()
        assert go.acquire(timeout=PATIENCE_S)
        fdatasync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", slow)
        new = CommitLog.open(tmp_path / "new", 1 << 20, disks=disks)
        logs.append(new, 0)
        busy = asyncio.create_task(flushed(new))
        await asyncio.to_thread(started.acquire)
        logs.append(log, 1)
        behind = asyncio.create_task(flushed(log))
        await asyncio.sleep(0)
        assert syncer.offered == 0
        go.release(2)
        await asyncio.gather(busy, behind)
    logs.append(log, 2)
    await flushed(log)
    assert syncer.offered == 1, "and is the kernel's again when the thread has none"
    log.close()
    new.close()


async def test_what_stands_in_two_files_is_the_threads(
    tmp_path: Path, disks: Disks, syncer: FakeSyncer
) -> None:
    """One sync of the kernel covers one file, and the newer one needs its directory, too."""
    log = CommitLog.open(tmp_path / "log", logs.SEGMENT_BYTES, disks=disks)
    logs.append(log, 0)
    await flushed(log)
    number = 0
    while len(log.starts) == 1:
        number += 1
        logs.append(log, number)
    (disk,) = disks.writers
    await flushed(log)
    assert (disk.thread_syncs, syncer.offered) == (2, 0)
    log.close()


async def test_a_checkpoint_promises_nothing_that_was_flushed_after_it_began(
    tmp_path: Path, disks: Disks, syncer: FakeSyncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread syncs the sums of the first record while the kernel ends with the second."""
    (log,) = await begun(tmp_path, disks)
    first = log.flushed
    started, go = threading.Semaphore(0), threading.Semaphore(0)
    fdatasync = os.fdatasync
    synced: list[str] = []

    def slow(descriptor: int) -> None:
        if threading.current_thread().name == "log-writer":
            synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().suffix)
            started.release()
            assert go.acquire(timeout=PATIENCE_S)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    monkeypatch.setattr(disk_module, "CHECKPOINT_INTERVAL_S", 0)
    log.raise_confirm_floor(first)
    (disk,) = disks.writers
    with disk._condition:  # the thread meant to sleep longer
        disk._condition.notify_all()
    assert await asyncio.to_thread(started.acquire, timeout=PATIENCE_S)
    monkeypatch.setattr(disk_module, "CHECKPOINT_INTERVAL_S", 1000)
    logs.append(log, 1)
    await flushed(log)
    assert syncer.offered == 1
    log.raise_confirm_floor(log.end)
    go.release()
    assert await asyncio.to_thread(
        started.acquire, timeout=PATIENCE_S
    )  # the checkpoint is written, and about to be synced
    assert load(log.directory / "checkpoint").confirm_floor == first
    go.release(1000)
    await asyncio.to_thread(log.close)
    assert load(log.directory / "checkpoint").confirm_floor == log.end
    assert synced == [sums.SUFFIX, "", sums.SUFFIX, ""], "the next one rests on the newer sums"


async def test_files_are_given_back_however_many_a_log_goes_through(
    tmp_path: Path, disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "CHECKPOINT_INTERVAL_S", 0)
    log = CommitLog.open(tmp_path / "log", logs.SEGMENT_BYTES, disks=disks)
    for number in range(200):
        logs.append(log, number)
        await flushed(log)
        log.raise_confirm_floor(log.flushed)
    assert len(log.starts) > 3
    with log._writer.paused():
        assert len([path for path in open_files() if path.endswith(sums.SUFFIX)]) <= 1
    log.close()
    assert not [path for path in open_files() if path.startswith(f"{log.directory}/")]


@pytest.mark.parametrize("is_here", [True, False], ids=["on the loop", "in a thread"])
async def test_the_loop_watches_nothing_after_the_end(
    tmp_path: Path, disks: Disks, syncer: FakeSyncer, is_here: bool
) -> None:
    (log,) = await begun(tmp_path, disks)
    logs.append(log, 1)
    await flushed(log)
    log.close()
    if is_here:
        disks.close()
    else:
        await asyncio.to_thread(disks.close)
    assert not asyncio.get_running_loop().remove_reader(syncer.fileno)
