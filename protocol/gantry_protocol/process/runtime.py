"""The life of a long-running process: its start, its stop, and the report of its end.

The main coroutine gets a stop event and returns when it has shut down. SIGTERM and SIGINT set the
event; a second signal cancels the coroutine. An operating error, and what a volume refuses, is one
sentence on stderr, after ``gantry: `` as the command line has it: by that the operator finds it in
a log, and repeats it in a status. Anything unforeseen, in the main coroutine or in any task or
callback, ends the process with its traceback, since a half-dead process is worse than a restarted
one.
"""

import asyncio
import gc
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TextIO

from gantry_protocol.errors import EXIT_INTERNAL, EXIT_OK, GantryError, volume_error
from gantry_protocol.process import descriptors, log

Main = Callable[[asyncio.Event], Coroutine[Any, Any, None]]

_log = log.get("runtime")
COLLECT_AFTER = 50_000, 20, 100
"""Requests under way are no garbage, but each collection would walk them: Python's default is one
after every 700 of their objects. What is in no cycle is freed without any."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_taking: ContextVar[Callable[[], None]] = ContextVar("taking", default=lambda: None)


def run(main: Main, *, stderr: TextIO | None = None) -> int:
    """Run ``main(stop)`` to its end on a fresh event loop and return the process's exit code.

    Args:
        main: called with the stop event inside the loop.
        stderr: where the sentence or the traceback goes; None is the process's stderr.

    Returns:
        0 after a normal end, a ``GantryError``'s own code (2 or 75), 70 for everything unforeseen.
    """
    stream = sys.stderr if stderr is None else stderr
    supervisor = _Supervisor(main)
    descriptors.raise_limit()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(supervisor.run())
    except BaseException as error:  # noqa: BLE001 - the process ends here, whatever it was
        return _report(supervisor.failure or error, stream)
    return EXIT_OK


def take_signals() -> None:
    """Have this process's signals again, after a library has put handlers of its own in place."""
    _taking.get()()


def collect_seldom() -> None:
    """Collect garbage now and then only; what is there by now is never walked again."""
    gc.collect()
    gc.set_threshold(*COLLECT_AFTER)
    gc.freeze()


class _Supervisor:
    """The main task, the signals and the first failure outside the main task."""

    def __init__(self, main: Main) -> None:
        self._main = main
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None  # what a task or callback died of, first one wins

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_unhandled)
        _taking.set(self._take_signals)
        self._take_signals()
        try:
            self._task = asyncio.create_task(self._main(self._stop))
            await self._task
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
        if self.failure is not None:
            raise self.failure

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if not self._stop.is_set():
            _log.info("stopping", signal=name)
            self._stop.set()
        elif self._task is not None:
            _log.warning("stopping at once", signal=name)
            self._task.cancel()

    def _on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        ours = context.keys() & {"task", "future", "handle"}
        if error is None or (isinstance(error, OSError) and not ours):
            # A socket's trouble, such as accept() without free descriptors. The same error in a
            # task of ours may be a disk's, and ends the process.
            _log.warning("event loop trouble", what=context.get("message"), error=error)
            return
        if self.failure is None:
            self.failure = error
        if self._task is not None:
            self._task.cancel()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _report(error: BaseException, stream: TextIO) -> int:
    operating = _operating_error(error)
    if operating is not None:
        print(f"gantry: {operating}", file=stream)
        return operating.exit_code
    if isinstance(error, asyncio.CancelledError):
        return EXIT_OK  # a second signal: asked to stop, and stopped
    traceback.print_exception(error, file=stream)
    return EXIT_INTERNAL


def _operating_error(error: BaseException) -> GantryError | None:
    """The operating error behind ``error``, if there is nothing unforeseen in it."""
    if isinstance(error, GantryError):
        return error
    if isinstance(error, OSError):
        return volume_error(error)
    if isinstance(error, BaseExceptionGroup):
        found = [_operating_error(member) for member in error.exceptions]
        return found[0] if all(member is not None for member in found) else None
    return None
