"""Subscribers to the store's changes, each on its own.

The rule protected here: a change is told to every subscriber, and none of them can refuse it, delay
it for the others, or reach the writer with its own failure. A subscriber that failed has missed a
change, so it is told nothing more until it has looked at everything again (its ``resync``).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from gantry_protocol.process import log

if TYPE_CHECKING:
    from collections.abc import Callable

EventT = TypeVar("EventT")

FIRST_RETRY_S: Final = 0.1
MAX_RETRY_S: Final = 5.0

_log = log.get("local.store")


class WatchSubscription(Generic[EventT]):
    """One subscriber.

    Attributes:
        behind: It missed a change, and its resync has not succeeded yet.
    """

    __slots__ = ("_callback", "_delay_s", "_resync", "_retry", "behind", "name")

    def __init__(
        self, name: str, callback: Callable[[EventT], None], resync: Callable[[], None] | None
    ) -> None:
        self.name = name
        self.behind = False
        self._callback = callback
        self._resync = resync
        self._delay_s = 0.0
        self._retry: asyncio.TimerHandle | None = None

    def tell(self, event: EventT) -> Exception | None:
        """Deliver a change; the failure, if it failed."""
        try:
            self._callback(event)
        except Exception as error:  # noqa: BLE001  # a subscriber's failure is its own
            self.behind = self._resync is not None
            return error
        self._delay_s = 0.0
        return None

    def catch_up(self) -> Exception | None:
        """Look at everything again; the failure, if it failed once more."""
        assert self._resync is not None
        try:
            self._resync()
        except Exception as error:  # noqa: BLE001  # tried again later
            return error
        self.behind = False
        return None

    @property
    def scheduled(self) -> bool:
        """Whether an attempt to catch up is pending."""
        return self._retry is not None

    def schedule(self, catch_up: Callable[[WatchSubscription[EventT]], None]) -> None:
        """Catch up soon: at once the first time, later and later while it keeps failing."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # no loop (a plain test): the next change tries again
        self._retry = loop.call_later(self._delay_s, catch_up, self)
        self._delay_s = min(max(2 * self._delay_s, FIRST_RETRY_S), MAX_RETRY_S)

    def cancel(self) -> None:
        """Forget a pending attempt."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None


class Subscribers(Generic[EventT]):
    """All subscribers of one source, told in the order of their coming.

    Attributes:
        failures: Failed deliveries and resyncs by the subscriber's name.
    """

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self._all: list[WatchSubscription[EventT]] = []
        self._telling = False

    def add(
        self, name: str, callback: Callable[[EventT], None], resync: Callable[[], None] | None
    ) -> Callable[[], None]:
        """Tell ``callback`` every later change; returns the way to stop it."""
        subscription = WatchSubscription(name, callback, resync)
        self._all.append(subscription)

        def remove() -> None:
            if subscription in self._all:
                self._all.remove(subscription)
                subscription.behind = False
                subscription.cancel()

        return remove

    def check_idle(self) -> None:
        """Refuse a write from inside a callback: later subscribers would hear it too early."""
        assert not self._telling, "subscribers must not write"

    def tell(self, event: EventT) -> None:
        """Tell everybody; never raises."""
        self._telling = True
        try:
            for subscription in tuple(self._all):
                if subscription.behind:
                    if not subscription.scheduled:
                        self._catch_up(subscription)  # what it looks at includes this change
                elif (error := subscription.tell(event)) is not None:
                    self._note(subscription, error)
        finally:
            self._telling = False

    def _catch_up(self, subscription: WatchSubscription[EventT]) -> None:
        subscription.cancel()
        if not subscription.behind:
            return
        error = subscription.catch_up()
        if error is not None:
            self._note(subscription, error)
        else:
            _log.info("subscriber looked at everything again", subscriber=subscription.name)

    def _note(self, subscription: WatchSubscription[EventT], error: Exception) -> None:
        self.failures[subscription.name] += 1
        _log.exception(
            "subscriber failed",
            error,
            subscriber=subscription.name,
            failures=self.failures[subscription.name],
        )
        if subscription.behind:
            subscription.schedule(self._catch_up)
