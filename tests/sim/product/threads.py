"""What ``threading``, ``queue`` and ``concurrent.futures`` are in the world.

Each waits by letting other threads run; nothing is taken away from a running thread in between, so
a lock is contended only where its holder waits for a disk or for somebody else.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sim.product.machines import current, running

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.product.machines import Thread as Running


def _us(timeout_s: float | None) -> int | None:
    return None if timeout_s is None else max(0, int(timeout_s * 1e6)) + 2  # never early


class _Waiters:
    """Threads that wait for one thing, first come first served."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Running, int]] = deque()

    def wait(self, timeout_us: int | None = None) -> bool:
        """Whether it was woken in time."""
        thread = running()
        assert thread is not None
        entry = (thread, thread.token)
        self._waiting.append(entry)
        if thread.wait(timeout_us) is not None:
            return True
        if entry in self._waiting:
            self._waiting.remove(entry)
        return False

    def wake(self, count: int) -> None:
        for _ in range(min(count, len(self._waiting))):
            thread, token = self._waiting.popleft()
            thread.wake(token, delay_us=3 + thread.process.rng._randbelow(37))

    def __len__(self) -> int:
        return len(self._waiting)


class Lock:
    """``threading.Lock``."""

    def __init__(self) -> None:
        self._owner: Running | None = None
        self._waiters = _Waiters()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        thread = running()
        if thread is None:  # outside the world nobody contends
            return True
        while self._owner is not None and not self._owner.is_done:
            if not blocking or self._owner is thread:
                assert not blocking, "a thread waits for a lock that it holds"
                return False
            if not self._waiters.wait(_us(timeout) if timeout >= 0 else None) and timeout >= 0:
                return False
        self._owner = thread
        return True

    def release(self) -> None:
        self._owner = None
        self._waiters.wake(1)

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """``threading.Condition``, with the lock that it makes."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = Lock() if lock is None else lock
        self._waiters = _Waiters()
        self.acquire = self._lock.acquire
        self.release = self._lock.release

    def __enter__(self) -> bool:
        return bool(self._lock.acquire())

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        try:
            return self._waiters.wait(_us(timeout))
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        assert timeout is None, "not needed so far"
        while not (found := predicate()):
            self.wait()
        return found

    def notify(self, n: int = 1) -> None:
        self._waiters.wake(n)

    def notify_all(self) -> None:
        self._waiters.wake(len(self._waiters))


class Event:
    """``threading.Event``."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters = _Waiters()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._waiters.wake(len(self._waiters))

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._waiters.wait(_us(timeout))
        return self._is_set


class Thread:
    """``threading.Thread``."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self.daemon = daemon
        self._target = target
        self._arguments = (args, kwargs or {})
        self._ended = Event()
        self._is_started = False

    def start(self) -> None:
        self._is_started = True
        current().spawn(self.name, self._body)

    def run(self) -> None:
        if self._target is not None:
            arguments, named = self._arguments
            self._target(*arguments, **named)

    def _body(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - as ``threading.excepthook``: told, and ended
            from sim.product.loop import failures

            failures.append((current().name, {"message": self.name, "exception": error}))
        finally:
            self._ended.set()

    def is_alive(self) -> bool:
        return self._is_started and not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)


class ThreadingModule:
    """What the product uses of ``threading``."""

    Thread = Thread
    Lock = Lock
    Condition = Condition
    Event = Event

    @staticmethod
    def main_thread() -> Any:
        return current().main

    current_thread = staticmethod(running)


class SimpleQueue:
    """``queue.SimpleQueue``."""

    def __class_getitem__(cls, _: Any) -> type[SimpleQueue]:
        return cls

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiters = _Waiters()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._waiters.wake(1)

    def get(self) -> Any:
        while not self._items:
            self._waiters.wait()
        return self._items.popleft()

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items


class SimFuture(Future):  # type: ignore[type-arg]
    """``concurrent.futures.Future`` whose ``result`` lets others run while it waits."""

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            waiters = _Waiters()
            self.add_done_callback(lambda _: waiters.wake(1))
            waiters.wait(_us(timeout))
        return super().result(0)


class ThreadPoolExecutor:
    """``concurrent.futures.ThreadPoolExecutor``: at most so many pieces of work at a time."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "pool") -> None:
        self._max = max_workers or 8
        self._name = thread_name_prefix
        self._queue: deque[tuple[SimFuture, Callable[[], Any]]] = deque()
        self._busy = 0
        self._is_shut = False
        self._idle = _Waiters()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> SimFuture:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = SimFuture()
        self._queue.append((future, lambda: fn(*args, **named)))
        if self._busy < self._max:
            self._busy += 1
            current().spawn(self._name, self._work)
        return future

    def _work(self) -> None:
        while self._queue:
            future, call = self._queue.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                found = call()
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)
            else:
                future.set_result(found)
        self._busy -= 1
        if not self._busy:
            self._idle.wake(len(self._idle))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut = True
        if cancel_futures:
            while self._queue:
                self._queue.popleft()[0].cancel()
        while wait and self._busy:
            self._idle.wait()
