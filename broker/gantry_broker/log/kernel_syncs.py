"""Syncs that the kernel carries out while the event loop goes on, without a thread that waits.

A thread that waits for the disk has to win the interpreter's lock again after each wait, against a
loop that takes it for every callback: a sync of 0.2 ms then takes 2 ms (docs/adr/0037). Here the
loop hands a file to the kernel (``IOCB_CMD_FDSYNC`` of Linux AIO, since 4.18) and hears of the end
by an eventfd that it watches like a socket.

Rules protected: a sync counts as done only when the kernel says so of this very operation, with
its error; and whoever takes an end in finishes the job before anybody can wait for it once more.
"""

import asyncio
import os
import select
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gantry_protocol.process import log
from gantry_protocol.process.sync_times import BOUNDS_S, SyncTimes

if TYPE_CHECKING:
    from gantry_broker.log.writer import FlushJob, Writer

_MAX_AT_ONCE = 32  # of one context; ``disk`` hands over fewer

_log = log.get("disk")

OnSynced = Callable[[OSError | None], None]


class Syncer(Protocol):
    """Syncs files without waiting for them."""

    @property
    def fileno(self) -> int:
        """Readable when something has ended."""

    def submit(self, descriptor: int, done: OnSynced) -> None:
        """Begin to sync the data of a file; ``reap`` calls ``done`` with what went wrong.

        Raises:
            OSError: it was not begun, and will not be; nothing is known of the file.
        """

    def reap(self) -> None:
        """Tell of everything that has ended; does not wait."""


class KernelSyncer:
    """Linux AIO.

    Raises:
        OSError: the kernel gives no context (``EAGAIN``: the limit ``fs.aio-max-nr`` is reached).
    """

    def __init__(self) -> None:
        """No operation yet."""
        try:
            from caio import linux_aio  # for Linux only
        except ImportError as error:
            raise OSError("this system has no Linux AIO") from error
        if linux_aio is None:
            raise OSError("the kernel or its filter of system calls refuses Linux AIO")
        try:
            self._context = linux_aio.Context(_MAX_AT_ONCE)
        except SystemError as error:
            raise OSError(*error.args) from error
        self._fdsync = linux_aio.Operation.fdsync
        self._ended: list[tuple[OnSynced, int]] = []

    @property
    def fileno(self) -> int:
        """Its eventfd."""
        return self._context.fileno

    def submit(self, descriptor: int, done: OnSynced) -> None:
        """See ``Syncer``."""
        operation = self._fdsync(descriptor)
        operation.set_callback(partial(self._note, done))
        try:
            count = self._context.submit(operation)
        except (OverflowError, ValueError, SystemError) as error:
            raise OSError(str(error)) from error
        if count != 1:
            raise OSError("the kernel took no operation")

    def reap(self) -> None:
        """See ``Syncer``."""
        with suppress(BlockingIOError):  # somebody else was told
            self._context.poll()
        while self._context.process_events(_MAX_AT_ONCE) == _MAX_AT_ONCE:
            pass
        ended, self._ended = self._ended, []
        for done, result in ended:
            done(None if result == 0 else _error_of(result))

    def _note(self, done: OnSynced, result: int) -> None:
        """Called from inside C code, which would swallow an error: only notes."""
        self._ended.append((done, result))


def _error_of(result: int) -> OSError:
    """The error in the result of an operation, which comes as an unsigned 64-bit number."""
    number = (1 << 64) - result
    return OSError(number, os.strerror(number))


class KernelSyncs:
    """The syncs of one device that one event loop has handed to the kernel.

    Args:
        make: a syncer, made at the first sync.
        finish: the sync of a log has ended so; returns its job, of which nobody was told yet.
        post: lets the loops of jobs take notice, from any thread.

    Attributes:
        syncs: how many were handed over.
        times: how long those took that have ended, until it was taken in.
    """

    def __init__(
        self,
        make: Callable[[], Syncer],
        finish: Callable[["Writer", OSError | None], "FlushJob"],
        post: Callable[[list["FlushJob"]], None],
    ) -> None:
        """No syncer yet."""
        self.syncs = 0
        self.times = SyncTimes()
        self._make = make
        self._finish = finish
        self._post = post
        self._is_refused = False
        self._syncer: Syncer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # One at a time waits for an end and takes it in: two would take them from each other.
        self._reaping = threading.Lock()
        self._under_way: dict[Writer, float] = {}  # since when, by the monotonic clock
        self._done: list[FlushJob] = []  # finished by the present reaping

    @property
    def is_used(self) -> bool:
        """Whether the kernel took the last sync that it was offered."""
        return self._syncer is not None and not self._is_refused

    @property
    def under_way(self) -> int:
        """Syncs that have not ended."""
        return len(self._under_way)

    def take(self, writer: "Writer", loop: asyncio.AbstractEventLoop, descriptor: int) -> bool:
        """Sync a job that this one file makes durable; False if it has to go another way.

        Only on ``loop``. The first refusal is final: what the kernel does not know or does not
        allow now it will not later, and asking costs each sync a system call.
        """
        if self._is_refused or (self._loop is not None and self._loop is not loop):
            return False
        try:
            if self._syncer is None:
                self._syncer = self._make()
            self._under_way[writer] = time.monotonic()
            self._syncer.submit(descriptor, partial(self._ended, writer))
        except OSError as error:
            self._under_way.pop(writer, None)
            self._refused(error)
            return False
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self._syncer.fileno, self._on_readable)
            _log.info("the kernel syncs commit logs, no thread waits for it")
        self.syncs += 1
        return True

    def wait_for(self, writer: "Writer") -> None:
        """Block until no sync of ``writer`` is under way, on the loop's thread or another."""
        while writer in self._under_way:
            with self._reaping:
                if writer not in self._under_way:
                    return
                assert self._syncer is not None
                end = select.poll()  # ``select`` knows no descriptors from 1024 on
                end.register(self._syncer.fileno, select.POLLIN)
                end.poll()
                jobs = self._reap()
            self._post(jobs)

    def close(self) -> None:
        """Watch nothing any more; no sync is under way. From any thread."""
        if self._syncer is None or self._loop is None:
            return
        syncer, self._syncer = self._syncer, None
        self._is_refused = True
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            _unwatch(self._loop, syncer)
        else:
            with suppress(RuntimeError):  # a closed loop watches nothing
                self._loop.call_soon_threadsafe(_unwatch, self._loop, syncer)

    def _refused(self, error: OSError) -> None:
        _log.info("threads sync commit logs, the kernel does not by itself", reason=error)
        self._is_refused = True
        if self._loop is None:
            self._syncer = None

    def _on_readable(self) -> None:
        if not self._reaping.acquire(blocking=False):
            return  # a waiter takes it in and posts
        try:
            jobs = self._reap()
        finally:
            self._reaping.release()
        assert self._loop is not None
        settle(self._loop, jobs)

    def _reap(self) -> list["FlushJob"]:
        syncer = self._syncer
        if syncer is None:
            return []  # closed, and the loop hears late of an end that was taken in before
        syncer.reap()
        done, self._done = self._done, []
        return done

    def _ended(self, writer: "Writer", error: OSError | None) -> None:
        self._done.append(self._finish(writer, error))
        took_s = time.monotonic() - self._under_way.pop(writer)
        # As `SyncTimes.note`, without the call: every send comes by here.
        self.times.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.times.total_s += took_s


def _unwatch(loop: asyncio.AbstractEventLoop, syncer: Syncer) -> None:
    """Only now may ``syncer`` give its descriptor back: the loop must not watch its successor."""
    loop.remove_reader(syncer.fileno)


def settle(loop: asyncio.AbstractEventLoop, jobs: list["FlushJob"]) -> None:
    """On the loop: a failure of one log must not keep the others from hearing of their own."""
    for job in jobs[1:]:
        loop.call_soon(job.settled, job)
    if jobs:
        jobs[0].settled(jobs[0])
