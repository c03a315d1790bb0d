"""The workers: take a key, observe, plan, apply, decide when to look again.

One key never has two workers, and one failing key delays no other. A fault in our own code is
contained to its key, logged with its traceback and counted: one resource that nobody foresaw must
not take the service from all the others. A plan that is carried out again and again without effect
is slowed down like a failure, and told (`repeats`); so are looks that bring each other (`spins`).
"""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING

from gantry_protocol.admin_client.errors import AdminError
from gantry_protocol.process import log

from gantry_operator.api.errors import ApiError, Ending, OldDefinitionsError, TooManyRequests
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, ENTITIES, FRONT_GROUP
from gantry_operator.plan import plan
from gantry_operator.plan.actions import WriteStatus
from gantry_operator.plan.observed import BrokerObserved, ControllerObserved, FrontObserved
from gantry_operator.plan.reasons import Reason
from gantry_operator.reconcile.apply import Applier, ApplyOutcome
from gantry_operator.reconcile.repeats import LIMIT, Repeats, describe, steps
from gantry_operator.reconcile.spins import SOON_S, Look, Spins, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_operator.cache import Key
    from gantry_operator.decisions.recorder import DecisionRing
    from gantry_operator.metrics import Metrics
    from gantry_operator.plan.actions import Action
    from gantry_operator.plan.observed import Observed
    from gantry_operator.quorums.directory import Directory, Spawn
    from gantry_operator.reconcile.entities import Entities
    from gantry_operator.reconcile.observe import Observer
    from gantry_operator.workqueue import WorkQueue

LASTING_FAILURES = 2
"""So often in a row a key has failed before a fault of the server is reported in its status."""
_ENTITY_KINDS = frozenset(kind.kind for kind in ENTITIES)
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
        entities: Entities | None = None,
        recorder: DecisionRing | None = None,
    ) -> None:
        self._queue = queue
        self._observer = observer
        self._applier = applier
        self._directory = directory
        self._metrics = metrics
        self._spawn = spawn
        self._clock = clock
        self._leads = leads
        self._entities = entities
        self._recorder = recorder
        self._repeats = Repeats()
        self._spins = Spins()

    async def work(self) -> None:
        """One worker; runs until cancelled."""
        while True:
            key = await self._queue.get()
            try:
                await self.reconcile(key)
            finally:
                self._queue.done(key)

    async def reconcile(self, key: Key) -> None:
        """One look at one resource.

        Raises `OldDefinitionsError`, and nothing else: no status can be read or written any more.
        """
        started = asyncio.get_running_loop().time()
        result = "ok"
        try:
            outcome = await self._look(key)
            if outcome.failure is not None:
                raise outcome.failure
            if any(refusal.passing for refusal in outcome.refusals):
                result = "retry"
            if not outcome.refusals:
                self._queue.forget(key)
            if outcome.check_after_s is not None:
                self._queue.add_after(key, outcome.check_after_s)
        except Ending:
            result = "ending"  # all that is here will go; its deletion brings the key back
            self._queue.retry(key)
        except OldDefinitionsError:
            raise
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

    async def _look(self, key: Key) -> ApplyOutcome:
        if self._entities is not None and key.kind in _ENTITY_KINDS:
            return await self._look_at_entity(key)
        seen = await self._observer.observe(key)
        if seen is None:
            self._forget(key)
            if key.kind == BROKER_GROUP.kind and self._leads():
                await self._applier.retire_departed(key)
            return ApplyOutcome()
        if isinstance(seen, ControllerObserved):
            self._directory.follow(key.namespace, key.name, self._spawn)
        read, leads = fingerprint(seen), self._leads()
        actions = self._decide(key, seen, read) if leads else plan(seen, self._clock())
        if not leads:
            actions = [action for action in actions if action.for_standby]
        held_s = self._repeats.held_s(key, actions, asyncio.get_running_loop().time())
        if held_s > 0:
            return ApplyOutcome(check_after_s=held_s)
        outcome = await self._applier.apply(key, seen, actions)
        outcome.refusals += self._observer.unread.get(key, ())
        outcome.read, outcome.plan = read, actions
        await self._tell_unwritten(key, seen, outcome)
        self._note_look(key, outcome)
        if not outcome.refusals and not outcome.failure:
            await self._slow_down(key, seen, actions, outcome)
        if leads:
            self._measure(key, seen, actions)
        if outcome.disruption:
            self._metrics.disruptions.labels(key.kind, outcome.disruption).inc()
        self._remember(key, outcome)
        return outcome

    def _decide(self, key: Key, seen: Observed, read: bytes) -> list[Action]:
        """The plan of one who leads; it is recorded."""
        now = self._clock()
        try:
            actions = plan(seen, now)
        except Exception as error:
            if self._recorder is not None:
                self._recorder.note(key, seen, read, now, error)
            raise
        if self._recorder is not None:
            self._recorder.note(key, seen, read, now, actions)
        return actions

    async def _look_at_entity(self, key: Key) -> ApplyOutcome:
        """Nobody waits for a standby here."""
        assert self._entities is not None, "asked for above"
        outcome = ApplyOutcome()
        await asyncio.sleep(0)  # a look that finds all well waits for nothing; others do
        if self._leads():
            outcome = await self._entities.look(key, self._clock)
            self._note_look(key, outcome)
        if outcome.again:
            self._queue.add(key)
        return outcome

    def _measure(self, key: Key, seen: Observed, actions: list[Action]) -> None:
        written = [action.status for action in actions if isinstance(action, WriteStatus)]
        status = written[-1] if written else seen.live_status or {}
        if isinstance(seen, BrokerObserved):
            self._metrics.note_group(key, status)
        elif isinstance(seen, FrontObserved):
            self._metrics.note_fronts(key, status)

    async def _slow_down(
        self,
        key: Key,
        seen: Observed,
        plan: list[Action],
        outcome: ApplyOutcome,
    ) -> None:
        """A plan that has no effect is not carried out again at once, and is told."""
        now_s = asyncio.get_running_loop().time()
        count = self._repeats.note(key, plan, now_s)
        if count <= LIMIT:
            return
        delay_s = self._repeats.held_s(key, plan, now_s)
        outcome.again, outcome.check_after_s = False, delay_s
        what = describe(plan)
        self._metrics.repeats.labels(key.kind).inc()
        _log.warning(
            "plan repeats without effect",
            **_facts(key),
            actions=what,
            times=count,
            retry_s=round(delay_s, 2),
        )
        if count == LIMIT + 1:
            await self._applier.tell(key, seen, Reason.REPEATING, f"Repeated in vain: {what}.")

    async def _tell_unwritten(self, key: Key, seen: Observed, outcome: ApplyOutcome) -> None:
        """A status that cannot be written does not say so, and an event does."""
        if outcome.refused_status is None:
            return
        message, passing = outcome.refused_status
        if not passing or self._queue.failures(key) >= LASTING_FAILURES:
            note = f"The status cannot be written: {message}"
            await self._applier.tell(key, seen, Reason.API_REFUSED, note)

    def _note_look(self, key: Key, outcome: ApplyOutcome) -> None:
        """Looks that bring each other although nothing changes come later each time, and are told.

        One that a watch brings is not held back: it may be the one that clients wait for.
        """
        if not outcome.read:
            self._spins.forget(key)
            return
        soon = outcome.again or (
            outcome.check_after_s is not None and outcome.check_after_s < SOON_S
        )
        now_s = asyncio.get_running_loop().time()
        look = Look(now_s, outcome.read, causes=soon or bool(steps(outcome.plan)))
        row = self._spins.note(key, look)
        if not row.spins:
            return
        if soon:
            outcome.again, outcome.check_after_s = False, row.wait_s
        self._metrics.spins.labels(key.kind).inc()
        _log.warning(
            "reconciles without a change",
            **_facts(key),
            actions=describe(outcome.plan),
            times=row.repeats,
            retry_s=round(row.wait_s, 2),
        )

    def _remember(self, key: Key, outcome: ApplyOutcome) -> None:
        """What was written or refused is planned with at once; a refusal is tried again later.

        A fault of the server is told once it has lasted for some attempts: most pass by themselves.
        """
        lasting = self._queue.failures(key) >= LASTING_FAILURES
        told = tuple(refusal for refusal in outcome.refusals if lasting or not refusal.passing)
        if outcome.again or told != self._observer.refusals.get(key, ()):
            self._queue.add(key)
        if told:
            self._observer.refusals[key] = told
        else:
            self._observer.refusals.pop(key, None)
        for claim, (size, refusal) in outcome.growth.items():
            self._observer.note_growth(key, claim, size, refusal)
        # No look at once: a drain that is refused is asked for again in seconds, and told then.
        if outcome.refused_drains:
            self._observer.refused_drains[key] = outcome.refused_drains
        else:
            self._observer.refused_drains.pop(key, None)
        if not outcome.refusals:
            return
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
        self._repeats.forget(key)
        self._spins.forget(key)
        if key.kind == BROKER_GROUP.kind:
            self._metrics.drop_group(key)
        elif key.kind == FRONT_GROUP.kind:
            self._metrics.drop_fronts(key)
        elif key.kind == CONTROLLER_GROUP.kind:
            self._directory.drop(key.namespace, key.name)


def _facts(key: Key) -> dict[str, object]:
    return {"kind": key.kind, "namespace": key.namespace, "name": key.name}
