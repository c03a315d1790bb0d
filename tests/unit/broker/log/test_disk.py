"""One thread for many logs: what one wake-up covers, and whom an error is blamed on."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, LogFailedError
from gantry_broker.log import disk as disk_module
from gantry_broker.log.checkpoint import load
from gantry_broker.log.disk import SYNCFS_FROM, Disks
from gantry_protocol.types import Offset
from support import logs
from support.patience import PATIENCE_S
from support.syncers import refused

LOGS = SYNCFS_FROM + 2


@pytest.fixture
def disks() -> Iterator[Disks]:
    made = Disks(refused)  # the thread's work alone; the kernel's is in test_kernel_syncs.py
    yield made
    made.close()


def open_logs(root: Path, disks: Disks, count: int = LOGS) -> list[CommitLog]:
    return [CommitLog.open(root / str(one), 1 << 20, disks=disks) for one in range(count)]


class Gate:
    """Counts syncs, and holds each until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.together = 0
        self.single = 0
        self.started = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.together_ok = True
        self.broken: set[int] = set()
        monkeypatch.setattr(disk_module, "syncfs", self._together)
        monkeypatch.setattr(os, "fdatasync", self._single)

    def _pass(self) -> None:
        self.started.release()
        assert self.go.acquire(timeout=PATIENCE_S)

    def _together(self, _descriptor: int) -> bool:
        self._pass()
        self.together += 1
        return self.together_ok

    def _single(self, descriptor: int) -> None:
        if threading.current_thread().name != "log-writer":
            return
        self._pass()
        self.single += 1
        if descriptor in self.broken:
            raise OSError(errno.EIO, "lost")


async def flushed(written: list[CommitLog]) -> None:
    waiting = [asyncio.get_running_loop().create_future() for _ in written]
    for log, future in zip(written, waiting, strict=True):
        log.flush_soon(future.set_result)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*waiting)


def descriptor(log: CommitLog) -> int:
    return log._segments.at(Offset(0), flushed=log.end).descriptor


async def test_all_logs_of_a_wake_up_share_one_sync(
    tmp_path: Path, disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "CHECKPOINT_INTERVAL_S", 1000)
    threads = threading.active_count()
    first, *rest = opened = open_logs(tmp_path, disks)
    assert threading.active_count() == threads + 1
    for log in opened:
        logs.append(log, 1)
    with monkeypatch.context() as patch:
        gate = Gate(patch)
        busy = asyncio.create_task(flushed([first]))
        await asyncio.to_thread(gate.started.acquire)
        behind = asyncio.create_task(flushed(rest))
        await asyncio.sleep(0)
        gate.go.release(2)
        await asyncio.gather(busy, behind)
        assert (gate.single, gate.together) == (1, 1)
    (writer,) = disks.writers
    assert (writer.syncs, writer.jobs) == (2, LOGS)
    for log in opened:
        assert log.flushed == log.end
        log.close()


async def test_an_error_is_blamed_on_the_log_it_hit_and_ends_no_other(
    tmp_path: Path, disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "CHECKPOINT_INTERVAL_S", 1000)
    complaints: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context["exception"]))
    hit, first, *rest = opened = open_logs(tmp_path, disks)
    for log in opened:
        logs.append(log, 1)
    with monkeypatch.context() as patch:
        gate = Gate(patch)
        gate.together_ok, gate.broken = False, {descriptor(hit)}
        busy = asyncio.create_task(flushed([first]))
        await asyncio.to_thread(gate.started.acquire)  # what comes now is synced together
        hit.flush_soon(lambda _: pytest.fail("what the disk lost is not flushed"))
        behind = asyncio.create_task(flushed(rest))
        await asyncio.sleep(0)
        gate.go.release(1000)
        await asyncio.gather(busy, behind)
        assert hit.flushed == 0
        assert gate.together == 1
        assert [type(one) for one in complaints] == [LogFailedError]
        # ``syncfs`` tells of a lost write once, to whoever asks first: it is not asked again.
        asked = gate.together
        for log in (first, *rest):
            logs.append(log, 2)
        await flushed([first, *rest])
        assert gate.together == asked
    for log in opened:
        log.close()


def test_a_disk_that_failed_is_not_asked_again(tmp_path: Path, disks: Disks) -> None:
    """Not within the job in which it failed, either: neither noted as flushed nor promised."""
    (log,) = open_logs(tmp_path, disks, 1)
    done: list[str] = []
    log._writer.guarded(lambda: done.append("before"))
    log._writer.fail(OSError(errno.EIO, "lost"))
    log._writer.guarded(lambda: done.append("after"))
    assert done == ["before"]
    log.close()


async def test_a_checkpoint_promises_only_what_was_synced_before_it(
    tmp_path: Path, disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    opened = open_logs(tmp_path, disks)
    pwrite = os.pwrite

    def noting(descriptor: int, data: bytes, at: int) -> int:
        if bytes(data[:4]) == b"GCKP":
            order.append("checkpoint")
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", noting)
    monkeypatch.setattr(disk_module, "syncfs", lambda _: order.append("sync") or True)
    for log in opened:
        logs.append(log, 1)
    await flushed(opened)
    order.clear()  # of what was written before there was anything to promise
    for log in opened:
        log.raise_confirm_floor(log.end)
    monkeypatch.setattr(disk_module, "CHECKPOINT_INTERVAL_S", 0)
    async with asyncio.timeout(PATIENCE_S):
        while any(load(log.directory / "checkpoint").confirm_floor < log.end for log in opened):
            await asyncio.sleep(0.001)
        while order[-1] != "sync":
            await asyncio.sleep(0.001)
    assert order[0] == "sync"
    monkeypatch.undo()
    for log in opened:
        log.close()


def test_real_syncfs_reports_success_on_a_sound_disk(tmp_path: Path) -> None:
    if disk_module._SYNCFS is None:
        pytest.skip("this kernel does not say how syncfs went")
    root = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "file").write_bytes(b"x")
    assert disk_module.syncfs(root)
    os.close(root)
    assert not disk_module.syncfs(root)
