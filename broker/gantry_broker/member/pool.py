"""A few threads for all groups of a process, in which each group's work stays in order."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

Work = Callable[[], None]


class InOrder:
    """One owner's work in a pool that others use too: one piece at a time, first come first served.

    So states become durable in their order, nobody waits for them, and hundreds of owners need no
    thread each. What is queued is bounded by the owner, who waits for one before it orders another.
    """

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        """Nothing to do yet."""
        self._pool = pool
        self._condition = threading.Condition()
        self._queue: deque[tuple[Future[None], Work]] = deque()
        self._is_busy = False

    def submit(self, work: Work) -> "Future[None]":
        """Do ``work`` after all that was submitted before; the future has its outcome."""
        future: Future[None] = Future()
        with self._condition:
            self._queue.append((future, work))
            if self._is_busy:
                return future
            self._is_busy = True
        self._pool.submit(self._drain)
        return future

    def wait(self) -> None:
        """Block until all of it is done."""
        with self._condition:
            self._condition.wait_for(lambda: not self._is_busy)

    def _drain(self) -> None:
        while True:
            with self._condition:
                if not self._queue:
                    self._is_busy = False
                    self._condition.notify_all()
                    return
                future, work = self._queue.popleft()
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
                future.set_exception(error)
            else:
                future.set_result(None)
