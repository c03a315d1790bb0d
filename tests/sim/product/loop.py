"""The event loop of a simulated process: asyncio's contract on virtual time and simulated TCP.

Callbacks of one loop keep their order, as asyncio promises; which process runs next, and how long
threads and the network take, comes from the seed. What the product does not use raises
``NotImplementedError``.
"""

from __future__ import annotations

import asyncio
import socket
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from sim.kernel.world import Violation, cancel
from sim.product.tcp import Listener, SimServer, connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.product.machines import Process


class _Handle(asyncio.Handle):
    """The same as asyncio's without its debugging: most of what a run does is made here."""

    __slots__ = ()
    _repr = _source_traceback = None

    def __init__(self, callback: Any, args: Any, loop: Any, context: Any) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False


class _TimerHandle(asyncio.TimerHandle):
    """A handle that takes its timer out of the world's queue when it is cancelled."""

    __slots__ = ("timer",)
    _repr = _source_traceback = None

    def __init__(self, when: float, callback: Any, args: Any, loop: Any, context: Any) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._when = when
        self._scheduled = True


class _Task(asyncio.Task[Any]):
    """A task whose place in a set follows from its number, not from where it lies in memory.

    Task groups and others keep their tasks in sets, and cancel them in that order.
    """

    def __init__(self, *args: Any, number: int, **named: Any) -> None:
        self._number = number
        super().__init__(*args, **named)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.AbstractEventLoop):
    """See the module.

    Attributes:
        main_task: of the program.
        readers: callbacks of descriptors that the world makes readable.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.main_task: asyncio.Task[None] | None = None
        self.readers: dict[int, asyncio.Handle] = {}
        self.signals: dict[int, Callable[[], object]] = {}
        self._handler: Callable[[Any, dict[str, Any]], None] | None = None
        self._tasks = 0  # ever made

    # ---- scheduling

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        process = self.process
        process.ready.append(handle)
        if process._waits is not None:
            process.wake_main()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        when = self.process.monotonic_s() + delay
        return self.call_at(when, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when, callback, args, self, context)
        process = self.process
        # As with a real selector, never early, and up to a millisecond late.
        due_us = max(0, process.us_until(when)) + 1 + process.below_200()
        handle.timer = process.world.after(due_us, self._due, handle)
        return handle

    def _due(self, handle: asyncio.TimerHandle) -> None:
        handle._scheduled = False  # type: ignore[attr-defined]
        process = self.process
        if process.is_dead or handle._cancelled:  # type: ignore[attr-defined]
            return
        process.ready.append(handle)
        if process._waits is not None:
            process.wake_main()

    def _timer_handle_cancelled(self, handle: _TimerHandle) -> None:
        cancel(handle.timer)

    def time(self) -> float:
        return self.process.monotonic_s()

    # ---- what asyncio itself asks

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.process.is_dead

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> Any:
        self._tasks += 1
        task = _Task(coro, number=self._tasks, loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # as a killed process does
        return task

    def failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        """A callback has raised, as ``Handle._run`` takes it."""
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error
        told = f"Exception in callback {handle!r}"
        self.call_exception_handler({"message": told, "exception": error, "handle": handle})

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Violation):
            raise error
        if self._handler is not None:
            self._handler(self, context)
            return
        failures.append((self.process.name, context))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def set_exception_handler(self, handler: Any) -> None:
        self._handler = handler

    def get_exception_handler(self) -> Any:
        return self._handler

    async def shutdown_asyncgens(self) -> None:
        """Nothing is left to end."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Threads end by themselves."""

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        self.signals[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self.signals.pop(sig, None) is not None

    def signal(self, sig: int) -> None:
        """A signal has come (called by the world)."""
        handler = self.signals.get(sig)
        if handler is not None:
            self.call_soon(handler)

    # ---- threads

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        if executor is not None:
            return asyncio.wrap_future(executor.submit(func, *args), loop=self)
        future = self.create_future()
        context = Context()

        def work() -> None:
            try:
                result = context.run(func, *args)
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                self.call_soon(_settle, future, None, error)
            else:
                self.call_soon(_settle, future, result, None)

        self.process.spawn("executor", work)
        return future

    # ---- sockets

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        found = self.process.machine.network.names.get(host)
        await asyncio.sleep(0.0005)
        if found is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port or 0))]

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:  # type: ignore[override]
        listening = options.pop("sock")
        listener = Listener(self.process, listening, protocol_factory)
        return SimServer(listener, listening)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:  # type: ignore[override]
        sock = options.pop("sock", None)
        if sock is not None:
            return sock.hand_over(protocol_factory)
        endpoint = await connect(self.process, host, port)
        return endpoint.hand_over(protocol_factory)

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self.readers[fd] = asyncio.Handle(callback, args, self)

    def remove_reader(self, fd: Any) -> bool:
        return self.readers.pop(fd, None) is not None

    def make_readable(self, fd: int) -> None:
        """A descriptor of the world has something (called by stand-ins)."""
        handle = self.readers.get(fd)
        if handle is not None:
            self.call_soon(handle._run)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


failures: list[tuple[str, dict[str, Any]]] = []  # what event loops could tell nobody
