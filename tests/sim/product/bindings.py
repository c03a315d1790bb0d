"""Gives the product's modules the world's stand-ins, and takes them away again.

Not one line of the product knows of the simulator. Wherever a module of the product has a name for
``os``, ``time``, ``threading``, a clock or a thread, it has a stand-in of the same shape while a
world runs; so have defaults of its functions that were taken when it was imported. A stand-in that
is called outside a simulated process does what the original does.
"""

from __future__ import annotations

import concurrent.futures
import datetime as dt
import fcntl
import gc
import itertools
import os
import queue
import random
import secrets
import sys
import threading
import time
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gantry_protocol.process.log import Log
from sim.product import kv, threads
from sim.product.bucket import open_store
from sim.product.files import FcntlModule, OsModule, syncfs
from sim.product.loop import failures
from sim.product.machines import current, running
from sim.product.pack_processes import SYS, SubprocessModule
from sim.product.syncer import SelectModule, SimSyncer
from sim.product.tcp import SocketModule

if TYPE_CHECKING:
    from collections.abc import Iterator

WAL_BYTES = 256 * 1024
PACK_THREAD_BYTES = 16 * 1024
POP_TABLE_BYTES = 4 * 1024
LITE_BEHIND_BYTES = 16 * 1024
KEY_BLOCK = 120  # keys of the index that stand together
FEW_NAMES = 3  # of consumer groups of one queue that are packed together
CHECKED_MAX = 24  # pieces of a log that are known to be sound
PRODUCT = ("gantry_protocol", "gantry_controller", "gantry_broker", "gantry_operator", "gantry_cli")


class TimeModule:
    """``time``."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(time, name)
        setattr(self, name, found)  # asked once
        return found

    def monotonic(self) -> float:
        thread = running()
        return time.monotonic() if thread is None else thread.process.monotonic_s()

    perf_counter = monotonic

    def monotonic_ns(self) -> int:
        return int(self.monotonic() * 1e9)

    perf_counter_ns = monotonic_ns

    def clock_gettime_ns(self, clock: int) -> int:
        thread = running()
        return time.clock_gettime_ns(clock) if thread is None else self.monotonic_ns()

    def time(self) -> float:
        thread = running()
        return time.time() if thread is None else thread.process.machine.wall_s()

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def sleep(self, seconds: float) -> None:
        thread = running()
        assert thread is not None
        thread.sleep_us(int(seconds * 1e6))


class _DatetimeType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, dt.datetime)

    def __getattr__(cls, name: str) -> Any:
        return getattr(dt.datetime, name)


class _Datetime(metaclass=_DatetimeType):
    """``datetime.datetime``, whose present is the machine's."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        return dt.datetime(*arguments, **named)  # noqa: DTZ001 - as it was called

    @staticmethod
    def now(zone: dt.tzinfo | None = None) -> dt.datetime:
        return dt.datetime.fromtimestamp(_time.time(), zone)


class DatetimeModule:
    """``datetime``."""

    datetime = _Datetime

    def __getattr__(self, name: str) -> Any:
        return getattr(dt, name)


class RandomModule:
    """``random``: the process's own stream."""

    Random = random.Random

    def __getattr__(self, name: str) -> Any:
        thread = running()
        return getattr(random if thread is None else thread.process.rng, name)

    def random(self) -> float:
        thread = running()
        return random.random() if thread is None else thread.process.rng.random()


def system_random() -> random.Random:
    """``random.SystemRandom``."""
    return random.Random(current().rng.random())


class SecretsModule:
    """``secrets``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(secrets, name)

    def token_bytes(self, count: int = 32) -> bytes:
        return current().rng.randbytes(count)

    def token_hex(self, count: int = 32) -> str:
        return self.token_bytes(count).hex()

    def randbits(self, count: int) -> int:
        thread = running()
        return secrets.randbits(count) if thread is None else thread.process.rng.getrandbits(count)


def _remembered(original: type) -> type:
    """The class, whose instance is found in ``process.globals`` by its name."""

    def remember(self: Any, *arguments: Any, **named: Any) -> None:
        current().globals[original.__name__] = self
        original.__init__(self, *arguments, **named)  # type: ignore[misc]

    return type(original.__name__, (original,), {"__init__": remember})


def _fault_of_ours(_: Any, phrase: str, error: BaseException, **facts: object) -> None:
    """``Log.exception``: a programmer's error that a process has survived; the run has not."""
    thread = running()
    name = "somebody" if thread is None else thread.process.name
    failures.append((name, {"message": f"{phrase} {facts}", "exception": error}))


class _Collector:
    """``gc``: this process collects as it likes."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


_time, _os, _random = TimeModule(), OsModule(), RandomModule()


def _stand_ins() -> dict[int, Any]:
    """Stand-ins by the identity of what they stand for."""
    pairs: list[tuple[Any, Any]] = [
        (time, _time),
        (time.monotonic, _time.monotonic),
        (time.time, _time.time),
        (time.time_ns, _time.time_ns),
        (time.perf_counter, _time.perf_counter),
        (os, _os),
        (dt, DatetimeModule()),
        (random, _random),
        (random.random, _random.random),
        (random.SystemRandom, system_random),
        (secrets, SecretsModule()),
        (fcntl, FcntlModule()),
        (threading, threads.ThreadingModule),
        (threading.Thread, threads.Thread),
        (queue.SimpleQueue, threads.SimpleQueue),
        (concurrent.futures.ThreadPoolExecutor, threads.ThreadPoolExecutor),
        (concurrent.futures.Future, threads.SimFuture),
    ]
    return {id(original): stand_in for original, stand_in in pairs}


def _special() -> list[tuple[str, str, Any]]:
    """Names of single modules: (module, name, stand-in)."""
    import aiohttp.connector  # noqa: F401 - named below
    from gantry_broker.tier.core.losses import Patience
    from gantry_controller.node.options import NodeOptions

    return [
        ("aiohttp.connector", "monotonic", _time.monotonic),
        ("gantry_protocol.process.listening", "socket", SocketModule),
        ("gantry_broker.log.kernel_syncs", "select", SelectModule),
        ("gantry_controller.server", "gc", _Collector()),
        # By its number a front decides when a connection is old: each world counts for itself.
        ("gantry_protocol.remoting.server", "_connection_numbers", itertools.count(1)),
        # Files of the log that end within a run; there is no setting for it.
        (
            "gantry_controller.server",
            "NodeOptions",
            partial(NodeOptions, segment_size_bytes=WAL_BYTES),
        ),
        # Waits for objects of the tier, and what is concluded from them, within a run; likewise.
        (
            "gantry_broker.tier.reader",
            "Patience",
            partial(Patience, last_s=4.0, over_s=5.0, removed_s=4.0, oldest_s=4.0),
        ),
        ("gantry_broker.tier.reader", "DAMAGED_S", 3.0),
        # Packs of a run are small; the larger ones are made by processes as usual.
        ("gantry_broker.tier.packing", "THREAD_MAX_BYTES", PACK_THREAD_BYTES),
        # Tables of what is in flight, and subscriptions written anew, within a run.
        ("gantry_broker.clients.pop.book", "TABLE_BYTES", POP_TABLE_BYTES),
        ("gantry_broker.clients.lite.book", "BEHIND_BYTES", LITE_BEHIND_BYTES),
        # Rows of a run are few: the indexes of keys and of offsets come to have blocks even so.
        ("gantry_broker.queues.key_index", "BLOCK_KEYS", KEY_BLOCK),
        ("gantry_broker.store.tables.compact", "SMALL_MAX", FEW_NAMES),
        ("gantry_broker.store.tables.compact", "FRESH_MAX", FEW_NAMES - 1),
        ("gantry_broker.store.tables.compact", "BLOCK_MAX", FEW_NAMES),
        # Likewise what is known of a log is forgotten within a run, and looked at again.
        ("gantry_broker.log.checked", "KNOWN_MAX", CHECKED_MAX),
        ("gantry_broker.log.checked", "_STRETCHES", 2),
        ("gantry_broker.tier.packing", "subprocess", SubprocessModule),
        ("gantry_broker.tier.pack_process", "sys", SYS),
        ("gantry_broker.queues.kv", "Rdict", kv.Rdict),
        ("gantry_broker.queues.kv", "WriteBatch", kv.WriteBatch),
        ("gantry_broker.queues.kv", "_options", kv.options),
        ("gantry_broker.log.disk", "_SYNCFS", syncfs),
    ]


class Bindings:
    """What was replaced, for the way back."""

    def __init__(self) -> None:
        self._undo: list[tuple[dict[str, Any], str, Any]] = []
        self._defaults: list[tuple[Any, Any, Any]] = []
        self._exception = Log.exception

    def put(self) -> None:
        """Replace."""
        from gantry_broker.door.server import DoorServer
        from gantry_broker.front.server import FrontServer
        from gantry_broker.host.server import BrokerServer
        from gantry_broker.log import kernel_syncs
        from gantry_broker.tier.stores import opening
        from gantry_controller.server import Controller
        from gantry_operator.decisions.serving import Decisions
        from gantry_operator.metrics import Metrics

        stand_ins = _stand_ins()
        stand_ins[id(opening.open_store)] = open_store
        for remembered in (
            BrokerServer,
            FrontServer,
            DoorServer,
            Controller,
            Metrics,
            Decisions,
        ):
            stand_ins[id(remembered)] = _remembered(remembered)
        stand_ins[id(kernel_syncs.KernelSyncer)] = SimSyncer
        modules = [
            module
            for name, module in sorted(sys.modules.items())
            if name.split(".")[0] in PRODUCT and module is not None
        ]
        for module in modules:
            names = vars(module)
            for name, value in list(names.items()):
                stand_in = stand_ins.get(id(value))
                if stand_in is not None:
                    self._set(names, name, stand_in)
        for module_name, name, stand_in in _special():
            self._set(vars(sys.modules[module_name]), name, stand_in)
        Log.exception = _fault_of_ours  # type: ignore[method-assign]
        for function in _functions(frozenset(module.__name__ for module in modules)):
            self._rebind_defaults(function, stand_ins)

    def _set(self, names: dict[str, Any], name: str, value: Any) -> None:
        self._undo.append((names, name, names[name]))
        names[name] = value

    def _rebind_defaults(self, function: Any, stand_ins: dict[int, Any]) -> None:
        before = (function.__defaults__, function.__kwdefaults__)
        defaults, named = before
        changed = False
        if defaults and any(id(value) in stand_ins for value in defaults):
            function.__defaults__ = tuple(stand_ins.get(id(value), value) for value in defaults)
            changed = True
        if named and any(id(value) in stand_ins for value in named.values()):
            function.__kwdefaults__ = {
                name: stand_ins.get(id(value), value) for name, value in named.items()
            }
            changed = True
        if changed:
            self._defaults.append((function, *before))

    def take_away(self) -> None:
        """Put everything back."""
        Log.exception = self._exception  # type: ignore[method-assign]
        for names, name, value in reversed(self._undo):
            names[name] = value
        for function, defaults, named in self._defaults:
            function.__defaults__, function.__kwdefaults__ = defaults, named


@cache
def _functions(modules: frozenset[str]) -> list[Any]:
    """Functions of these modules that have defaults."""
    kind = type(_stand_ins)
    return [
        found
        for found in gc.get_objects()
        if type(found) is kind
        and found.__module__ in modules
        and (found.__defaults__ or found.__kwdefaults__)
    ]


@contextmanager
def bound() -> Iterator[None]:
    """The product runs in the world inside this context."""
    bindings = Bindings()
    bindings.put()
    try:
        yield
    finally:
        bindings.take_away()
