"""One task that calls controllers for the keys that changed: a set, a delay heap, no polling.

A key is never processed twice at once, a change while it waits is one call, and a failure is
retried later and logged. Calls are synchronous and short; the task yields between them.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
from typing import TYPE_CHECKING, Any, Final, Protocol

from gantry_protocol.process import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gantry_local.apiserver.store import Event, Store

Key = tuple[str, str]
RETRY_S: Final = 0.5
MAX_RUN: Final = 10
"""Calls between two yields to the event loop; HTTP and probes must not wait for a whole backlog."""

_log = log.get("local.controllers")


class Controller(Protocol):
    """Something that can be called for a key."""

    name: str

    def keys_for(self, event: Event) -> Iterable[Key]:
        """Keys that a change concerns."""

    def initial_keys(self) -> Iterable[Key]:
        """Keys to look at after a restart, or when changes were missed; indexes are made anew."""

    def reconcile(self, key: Key) -> float | None:
        """Bring the key's objects where they should be; seconds until the next look, if any."""


class Runner:
    """Feeds controllers from the store."""

    def __init__(self, store: Store, controllers: Iterable[Controller]) -> None:
        self._store = store
        self._controllers = list(controllers)
        self._ready: dict[tuple[Controller, Key], None] = {}
        self._later: list[tuple[float, int, Controller, Key]] = []
        self._order = itertools.count()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        unsubscribes = [self._follow(controller) for controller in self._controllers]
        try:
            for controller in self._controllers:
                self._add_all(controller)
            while True:
                self._due(loop.time())
                if self._ready:
                    self._turn(loop)
                    await asyncio.sleep(0)
                    continue
                await self._sleep(loop)
        finally:
            for unsubscribe in unsubscribes:
                unsubscribe()

    async def _sleep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake.clear()
        delay = None if not self._later else max(0.0, self._later[0][0] - loop.time())
        try:
            async with asyncio.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _follow(self, controller: Controller) -> Callable[[], None]:
        """A subscription for each controller: the others hear of what one of them stumbles over."""

        def on_event(event: Event) -> None:
            for key in controller.keys_for(event):
                self._add(controller, key)

        resync = functools.partial(self._add_all, controller)
        return self._store.subscribe(on_event, name=controller.name, resync=resync)

    def _add_all(self, controller: Controller) -> None:
        for key in controller.initial_keys():
            self._add(controller, key)

    def _add(self, controller: Controller, key: Key) -> None:
        self._ready[controller, key] = None
        self._wake.set()

    def _due(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            _, _, controller, key = heapq.heappop(self._later)
            self._add(controller, key)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(MAX_RUN, len(self._ready))):
            controller, key = next(iter(self._ready))
            del self._ready[controller, key]
            again = self._call(controller, key)
            if again is not None:
                entry: Any = (loop.time() + again, next(self._order), controller, key)
                heapq.heappush(self._later, entry)

    def _call(self, controller: Controller, key: Key) -> float | None:
        try:
            return controller.reconcile(key)
        except Exception as error:  # noqa: BLE001  # one bad object must not stop the others
            _log.exception("reconcile failed", error, controller=controller.name, key="/".join(key))
            return RETRY_S
