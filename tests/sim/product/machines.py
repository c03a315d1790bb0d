"""Machines, processes and threads of the world in which the product itself runs.

A ``Machine`` is an address, a disk and a wall clock. A ``Process`` is one life of a program on it:
an event loop, threads, open files, sockets. Every thread of a process, its main thread too, is a
greenlet that runs until it waits: for a condition, a lock, a sync, a socket, or the next turn of
the event loop. Then the hub (``world.run``) takes the next event. So only one thread runs at any
time, and the seed alone decides which one is next.

    process.kill()     SIGKILL: no ``finally`` runs; the kernel closes its sockets and files
    process.freeze()   SIGSTOP: nothing runs, the kernel goes on accepting and acknowledging
    machine.cut_power()  all of that at once, and what was not synced is lost (``files``)

Threads of a killed process are never resumed and never collected while the world lasts: collecting
one would run its ``finally`` blocks, which a killed process does not do.
"""

from __future__ import annotations

import asyncio
from asyncio import _set_running_loop  # type: ignore[attr-defined]
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet
from sim.kernel.world import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from random import Random

    from sim.kernel.world import Timer, World
    from sim.product.files import Volume
    from sim.product.loop import SimLoop
    from sim.product.tcp import Endpoint, Listener, Network

EPOCH_S = 1_767_225_600.0  # 2026-01-01: where wall clocks begin
HANDLE_US = 8  # what one callback of the event loop takes, by the virtual clock

_running: Thread | None = None


def running() -> Thread | None:
    """The thread that runs, or None in the hub and outside the world.

    A real thread that something left behind in this process is outside the world as well.
    """
    return _running if _running is None or get_ident() == _hub_thread else None


def current() -> Process:
    """The process that runs.

    Raises:
        AssertionError: none does; a stand-in was called from outside the world.
    """
    assert _running is not None, "a stand-in was called from outside a simulated process"
    return _running.process


class Thread:
    """One thread: runs ``body`` until it waits, and goes on when it is woken.

    Attributes:
        process: whose thread it is.
        is_done: ``body`` returned or raised.
        error: what it raised, if it did.
    """

    __slots__ = ("_body", "_greenlet", "_resumed", "_token", "error", "is_done", "name", "process")

    def __init__(self, process: Process, name: str, body: Callable[[], None]) -> None:
        self.process = process
        self.name = name
        self.is_done = False
        self.error: BaseException | None = None
        self._body = body
        self._greenlet: greenlet | None = None
        self._token = 0
        self._resumed: object = None

    def start(self, delay_us: int = 0) -> None:
        """Begin soon."""
        self._greenlet = greenlet(self._run, hub)
        self.process.world.after(delay_us, self._switch, self._token, None)

    def wait(self, timeout_us: int | None = None) -> object:
        """Wait until ``wake`` or the time-out; returns what it was woken with (None: time-out).

        Only for the running thread itself.
        """
        assert _running is self, "only a thread itself can wait"
        token = self._token
        timer: Timer | None = None
        if timeout_us is not None:
            timer = self.process.world.after(max(0, timeout_us), self._switch, token, None)
        hub.switch()
        if timer is not None:
            timer[2] = None  # cancelled
        return self._resumed

    def sleep_us(self, duration_us: int) -> None:
        """Let so much time pass for this thread."""
        self.wait(duration_us)

    @property
    def token(self) -> int:
        """Names the present wait, for ``wake``."""
        return self._token

    def wake(self, token: int, value: object = True, delay_us: int = 0) -> None:
        """End the wait ``token``, if it still lasts when the time has come."""
        self.process.world.after(delay_us, self._switch, token, value)

    def _switch(self, token: int, value: object) -> None:
        global _running
        process = self.process
        if token != self._token or self.is_done or process.is_dead:
            return
        if process.frozen:
            process.held.append((self, token, value))
            return
        self._token += 1
        self._resumed = value
        assert self._greenlet is not None
        _running = self
        _set_running_loop(process.loop if self is process.main else None)
        try:
            self._greenlet.switch()
        finally:
            _running = None
            _set_running_loop(None)

    def _run(self) -> None:
        try:
            self._body()
        except Violation:
            self.is_done = True
            raise
        except BaseException as error:  # noqa: BLE001 - whoever owns the thread looks at it
            self.error = error
        self.is_done = True
        self.process.ended(self)


class Machine:
    """See the module.

    Attributes:
        address: its IP address.
        volume: its disk.
        life: grows when the power is cut; what belonged to an earlier life is gone.
        is_up: False while it has no power.
        wall_offset_s: how far its wall clock is off.
    """

    def __init__(self, world: World, network: Network, address: str, volume: Volume) -> None:
        self.world = world
        self.network = network
        self.address = address
        self.volume = volume
        self.life = 1
        self.is_up = True
        self.wall_offset_s = 0.0
        self.processes: list[Process] = []
        self.listeners: dict[int, Listener] = {}
        self._port = 32_768
        network.machines[address] = self
        volume.machine = self

    @property
    def directory(self) -> Path:
        """Where its volume is mounted."""
        return self.volume.directory

    def free_port(self) -> int:
        """A port that nobody uses."""
        self._port = self._port + 1 if self._port < 60_000 else 32_768
        return self._port

    def wall_s(self) -> float:
        """Its wall clock."""
        return EPOCH_S + self.world.now_us / 1e6 + self.wall_offset_s

    def cut_power(self) -> None:
        """All processes vanish, nobody is told, and what was not synced is lost."""
        self.world.note(self.address, "power-cut")
        for process in list(self.processes):
            process.kill(silently=True)
        self.is_up = False
        self.life += 1
        self.volume.lose_power()

    def restore_power(self) -> None:
        """The machine is back; no process runs on it yet."""
        self.is_up = True


class Process:
    """One life of a program; see the module.

    Args:
        machine: where it runs.
        name: of the process in traces.
        program: its main coroutine; the process ends when that does.
        exited: called with the error that ended it, or None; not after a kill.
        drift: how much faster than the world its monotonic clock runs.

    Attributes:
        loop: its event loop.
        main: its main thread.
        frozen: SIGSTOP.
        is_dead: it has ended.
        last_look: called before it ends, while what it knows can still be seen.
        files: open descriptors.
    """

    def __init__(
        self,
        machine: Machine,
        name: str,
        program: Callable[[], Coroutine[Any, Any, None]],
        *,
        exited: Callable[[Process, BaseException | None], None],
        drift: float = 0.0,
    ) -> None:
        from sim.product.loop import SimLoop

        self.machine = machine
        self.world = machine.world
        self.name = name
        self.pid = machine.world.counters.get("process", 0) + 1000
        machine.world.count("process")
        self.rng: Random = machine.world.stream(f"process/{self.pid}")
        self._bits = self.rng.getrandbits
        self.is_dead = False
        self.last_look: Callable[[], None] = lambda: None
        self.frozen = False
        self.held: list[tuple[Thread, int, object]] = []
        self.threads: list[Thread] = []
        self.files: dict[int, Any] = {}
        self.endpoints: dict[Endpoint, None] = {}  # in order of their making
        self.listeners: list[Listener] = []
        self.globals: dict[str, Any] = {}  # what a module of the product keeps for its process
        self._rate = 1.0 + drift
        self._born_us = machine.world.now_us
        self._skew_s = 1_000.0 + self.rng.random() * 1e6
        self._exited = exited
        self._program = program
        self.loop: SimLoop = SimLoop(self)
        self.main = Thread(self, "main", self._turns)
        self.threads.append(self.main)
        self._waits: int | None = None  # token of the main thread, while it has no turn to run
        self.ready: deque[asyncio.Handle] = deque()
        machine.processes.append(self)
        self.world.note(machine.address, name, "starts", self.pid)
        self.main.start(1 + self.rng.randrange(2_000))

    # ---- clocks

    def monotonic_s(self) -> float:
        """Its monotonic clock: another origin, a slightly different rate."""
        return self._skew_s + (self.world.now_us - self._born_us) * self._rate / 1e6

    def below_200(self) -> int:
        """Chance: ``rng.randrange(200)``, which most of what is waited for asks for."""
        bits = self._bits
        below = bits(8)
        while below >= 200:
            below = bits(8)
        return below

    def us_until(self, when_s: float) -> int:
        """World time from now until its clock shows ``when_s``."""
        return int((when_s - self.monotonic_s()) * 1e6 / self._rate)

    # ---- life

    def spawn(self, name: str, body: Callable[[], None], *, delay_us: int | None = None) -> Thread:
        """Start a thread."""
        thread = Thread(self, name, body)
        self.threads.append(thread)
        thread.start(self.rng.randrange(5, 60) if delay_us is None else delay_us)
        return thread

    def ended(self, thread: Thread) -> None:
        """A thread has ended by itself."""
        self.threads.remove(thread)
        if thread is self.main and not self.is_dead:
            error = thread.error
            self.world.note(self.machine.address, self.name, "exits", type(error).__name__)
            self._end(silently=False)
            self._exited(self, error)

    def kill(self, *, silently: bool = False) -> None:
        """SIGKILL; with ``silently`` the kernel goes too, and closes nothing."""
        if self.is_dead:
            return
        self.world.note(self.machine.address, self.name, "killed")
        self._end(silently=silently)

    def freeze(self) -> None:
        """SIGSTOP."""
        self.world.note(self.machine.address, self.name, "frozen")
        self.frozen = True

    def thaw(self) -> None:
        """SIGCONT: what came meanwhile is met in its order."""
        self.frozen = False
        held, self.held = self.held, []
        for thread, token, value in held:
            self.world.after(0, thread._switch, token, value)

    def _end(self, *, silently: bool) -> None:
        self.last_look()
        self.is_dead = True
        graveyard.append(self)
        self.machine.processes.remove(self)
        for listener in list(self.listeners):
            listener.close()
        for endpoint in list(self.endpoints):
            endpoint.process_gone(silently=silently)
        self.machine.volume.close_all(self)

    # ---- the main thread

    def wake_main(self) -> None:
        """There is something to run."""
        token, self._waits = self._waits, None
        if token is not None:
            below = self._bits(5)
            while below >= 23:
                below = self._bits(5)
            main = self.main
            self.world.after(2 + below, main._switch, token, True)

    def _turns(self) -> None:
        """The event loop: turn after turn, as ``asyncio.BaseEventLoop.run_forever`` has them."""
        loop = self.loop
        task = loop.create_task(self._program())
        loop.main_task = task
        ready, main, world = self.ready, self.main, self.world
        while not task.done():
            count = len(ready)
            if not count:
                self._waits = main.token
                main.wait()
                self._waits = None
                continue
            for _ in range(count):
                handle = ready.popleft()
                if not handle._cancelled:
                    try:  # as ``handle._run()``
                        handle._context.run(handle._callback, *handle._args)
                    except BaseException as error:  # noqa: BLE001 - it is looked at there
                        loop.failed(handle, error)
            if self.is_dead or self.frozen or not world.pass_time(HANDLE_US * count):
                world.after(HANDLE_US * count, main._switch, main._token, None)
                hub.switch()
        task.result()


hub: greenlet = getcurrent()
_hub_thread = get_ident()
graveyard: list[Process] = []  # see the module


def enter_world() -> None:
    """Make the caller the hub; before ``world.run``."""
    global hub, _hub_thread
    hub, _hub_thread = getcurrent(), get_ident()
