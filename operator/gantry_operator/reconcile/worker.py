"""The workers: take a key, observe, plan, apply, decide when to look again.

One key never has two workers, and one failing key delays no other. A fault in our own code is
contained to its key, logged with its traceback and counted: one resource that nobody foresaw must
not take the service from all the others.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING

from gantry_protocol.process import log

from gantry_operator.api.errors import ApiError, Ending, TooManyRequests
from gantry_operator.api.kinds import BROKER_GROUP
from gantry_operator.controllers.errors import AdminError
from gantry_operator.plan import plan
from gantry_operator.plan.actions import WriteStatus
from gantry_operator.plan.observed import BrokerObserved
from gantry_operator.reconcile.apply import Applier, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_operator.cache import Key
    from gantry_operator.controllers.directory import Directory, Spawn
    from gantry_operator.metrics import Metrics
    from gantry_operator.reconcile.observe import Observer
    from gantry_operator.workqueue import WorkQueue

_log = log.get("reconcile")


def utc_now() -> dt.datetime:
    """The wall clock; conditions carry it."""
    return dt.datetime.now(dt.UTC)


class Reconciler:
    """Everything one reconcile needs; `leads` says whether the whole plan may be carried out."""

    def __init__(
        self,
        queue: WorkQueue[Key],
        observer: Observer,
        applier: Applier,
        directory: Directory,
        metrics: Metrics,
        spawn: Spawn,
        clock: Callable[[], dt.datetime] = utc_now,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._queue = queue
        self._observer = observer
        self._applier = applier
        self._directory = directory
        self._metrics = metrics
        self._spawn = spawn
        self._clock = clock
        self._leads = leads

    async def work(self) -> None:
        """One worker; runs until cancelled."""
        while True:
            key = await self._queue.get()
            try:
                await self.reconcile(key)
            finally:
                self._queue.done(key)

    async def reconcile(self, key: Key) -> None:
        """One look at one resource; never raises."""
        started = asyncio.get_running_loop().time()
        result = "ok"
        try:
            outcome = await self._look(key)
            if not outcome.refusals:
                self._queue.forget(key)
            if outcome.check_after_s is not None:
                self._queue.add_after(key, outcome.check_after_s)
        except Ending:
            result = "ending"  # all that is here will go; its deletion brings the key back
            self._queue.retry(key)
        except (ApiError, AdminError) as error:
            result = "retry"
            at_least_s = error.retry_after_s if isinstance(error, TooManyRequests) else 0.0
            delay_s = self._queue.retry(key, at_least_s=at_least_s)
            _log.warning("reconcile failed", **_facts(key), error=error, retry_s=round(delay_s, 2))
        except Exception as error:  # noqa: BLE001 -- contained to its key, see above
            result = "bug"
            self._queue.retry(key)
            _log.exception("reconcile hit a fault of ours", error, **_facts(key))
        self._metrics.reconciles.labels(key.kind, result).inc()
        elapsed = asyncio.get_running_loop().time() - started
        self._metrics.seconds.labels(key.kind).observe(elapsed)

    async def _look(self, key: Key) -> Outcome:
        seen = await self._observer.observe(key)
        if seen is None:
            self._forget(key)
            return Outcome()
        if not isinstance(seen, BrokerObserved):
            self._directory.follow(key.namespace, key.name, self._spawn)
        actions, leads = plan(seen, self._clock()), self._leads()
        if not leads:
            actions = [action for action in actions if action.for_standby]
        outcome = await self._applier.apply(key, seen, actions)
        if leads and isinstance(seen, BrokerObserved):
            written = [action.status for action in actions if isinstance(action, WriteStatus)]
            self._metrics.note_group(key, written[-1] if written else seen.live_status or {})
        if outcome.disruption:
            self._metrics.disruptions.labels(key.kind, outcome.disruption).inc()
        self._remember(key, outcome)
        return outcome

    def _remember(self, key: Key, outcome: Outcome) -> None:
        """What was written or refused is planned with at once; a refusal is tried again later."""
        if outcome.again or outcome.refusals != self._observer.refusals.get(key, ()):
            self._queue.add(key)
        if not outcome.refusals:
            self._observer.refusals.pop(key, None)
            return
        self._observer.refusals[key] = outcome.refusals
        outcome.check_after_s = None
        delay_s = self._queue.retry(key)
        first = outcome.refusals[0]
        _log.warning(
            "write refused",
            **_facts(key),
            object=f"{first.kind}/{first.name}",
            message=first.message,
            retry_s=round(delay_s, 2),
        )

    def _forget(self, key: Key) -> None:
        if key.kind == BROKER_GROUP.kind:
            self._metrics.drop_group(key)
        else:
            self._directory.drop(key.namespace, key.name)


def _facts(key: Key) -> dict[str, object]:
    return {"kind": key.kind, "namespace": key.namespace, "name": key.name}
