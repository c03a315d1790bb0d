"""One look at a resource that stands for a topic, a user or a consumer group of a cluster.

It is read against the cluster's table (``tables``), planned with (``plan.entities``), and at most
one thing in the cluster is written. What the controllers refuse is remembered until the next
attempt, and told by its status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_protocol.admin_client.errors import AdminRefusedError
from gantry_protocol.process import log
from pydantic import ValidationError

from gantry_operator.api.errors import Conflict, Denied, Invalid, NotFound
from gantry_operator.api.kinds import (
    BY_NAME,
    CONSUMER_GROUP,
    CONTROLLER_GROUP,
    ENTITIES,
    MESSAGE_USER,
    STATEFULSET,
    TOPIC,
)
from gantry_operator.cache import Key
from gantry_operator.models.base import InvalidSpecError
from gantry_operator.plan.actions import CheckAgain, EmitEvent, SetFinalizer, WriteStatus
from gantry_operator.plan.entities import (
    Compared,
    EntityObserved,
    Make,
    Remove,
    drift_event,
    plan_entity,
)
from gantry_operator.reconcile.apply import ApplyOutcome
from gantry_operator.reconcile.events import post_event
from gantry_operator.reconcile.hands import ConsumerGroupHand, Seen, TopicHand
from gantry_operator.reconcile.reread import live, take
from gantry_operator.reconcile.spins import fingerprint
from gantry_operator.reconcile.users import UserHand

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from gantry_operator.api.protocol import Api, Body
    from gantry_operator.cache import Cache
    from gantry_operator.decisions.recorder import DecisionRing
    from gantry_operator.metrics import Metrics
    from gantry_operator.models.entity import Entity, EntityStatus
    from gantry_operator.plan.actions import Action
    from gantry_operator.quorums.directory import Directory
    from gantry_operator.reconcile.hands import Hand
    from gantry_operator.reconcile.tables import Tables


_KINDS = frozenset(kind.kind for kind in ENTITIES)
REFUSED_AGAIN_S = 10.0
_log = log.get("entities")


def is_patient(key: Key) -> bool:
    """Groups come first: there are few of them, and their clients wait."""
    return key.kind in _KINDS


class Entities:
    """Looks; bounded by the resources that exist.

    Args:
        api: where status, finalizers and events are written.
        cache: objects by watch.
        directory: the controllers.
        tables: what these hold.
        metrics: where undone changes are counted.
        recorder: of decisions; None where nobody asks for them.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        directory: Directory,
        tables: Tables,
        metrics: Metrics,
        recorder: DecisionRing | None = None,
    ) -> None:
        self._api = api
        self._cache = cache
        self._directory = directory
        self._metrics = metrics
        self._recorder = recorder
        self._refusals: dict[Key, tuple[int, str]] = {}  # of which generation
        self._tables = tables
        self._hands: dict[str, Hand] = {
            TOPIC.kind: TopicHand(tables),
            CONSUMER_GROUP.kind: ConsumerGroupHand(tables),
            MESSAGE_USER.kind: UserHand(api, tables, directory),
        }

    async def look(self, key: Key, now: Callable[[], dt.datetime]) -> ApplyOutcome:
        """Observes, plans, and carries the plan out.

        Raises:
            ApiError: the API server did not take something.
            QuorumUnreachableError: the controllers cannot be asked.
        """
        kind, hand = BY_NAME[key.kind], self._hands[key.kind]
        body = self._cache.get(kind, key.namespace, key.name)
        if body is None:
            self._refusals.pop(key, None)
            return ApplyOutcome()
        entity, invalid = _parse(hand.model, body)
        seen = Seen(kind, body, entity)
        observed = await self._observe(key, hand, seen, invalid)
        at, read = now(), fingerprint(observed)
        outcome = ApplyOutcome(read=read, plan=plan_entity(observed, at))
        if self._recorder is not None:
            self._recorder.note(key, observed, read, at, outcome.plan)
        for action in outcome.plan:
            await self._carry_out(key, hand, seen, observed, action, outcome)
        return outcome

    async def _observe(self, key: Key, hand: Hand, seen: Seen, invalid: str) -> EntityObserved:
        claimants = self._cache.claimants(*seen.cluster, seen.place)
        first = claimants[0] if claimants else key.name
        exists, serves = self._quorum(*seen.cluster)
        standing = Compared(state="Unknown", what="The controllers are gone.")
        if seen.entity is not None and serves and first == key.name:
            standing = await hand.standing(seen)
        generation, refusal = self._refusals.get(key, (0, ""))
        previous = _status(hand.status, seen.body.get("status"))
        return EntityObserved(
            meta=seen.meta,
            entity=seen.entity,
            invalid=invalid,
            previous=previous,
            status=hand.status,
            told=hand.told(seen),
            live_status=seen.body.get("status"),
            named=seen.place.named,
            cluster=seen.cluster[1],
            first=first,
            quorum_exists=exists,
            quorum_serves=serves,
            standing=standing,
            refusal=refusal if generation == seen.meta.generation else "",
            check_s=hand.check_s,
            following=hand.following(seen, previous),
        )

    def _quorum(self, namespace: str, name: str) -> tuple[bool, bool]:
        """Whether there is a ControllerGroup, and whether it, or its rest, can be asked."""
        body = self._cache.get(CONTROLLER_GROUP, namespace, name)
        if body is None:
            return False, False
        if body["metadata"].get("deletionTimestamp") is None:
            return True, True
        key = Key(CONTROLLER_GROUP.kind, namespace, name)
        return True, bool(self._cache.owned(key, STATEFULSET))

    async def _carry_out(
        self,
        key: Key,
        hand: Hand,
        seen: Seen,
        observed: EntityObserved,
        action: Action,
        outcome: ApplyOutcome,
    ) -> None:
        match action:
            case CheckAgain(after_s=after_s):
                outcome.check_after_s = after_s
            case WriteStatus(status=status):
                outcome.again |= await self._write(key, seen, status)
            case SetFinalizer():
                await self._finalize(key, seen, action, outcome)
            case Make(undoes=undoes):
                if not await self._tell(key, seen, hand.make, outcome):
                    return
                if undoes:
                    self._metrics.drifts.labels(key.kind).inc()
                    await self._post(key, seen, drift_event(observed, undoes))
            case Remove():
                await self._tell(key, seen, hand.remove, outcome)
            case _:
                admin = self._directory.admin(*seen.cluster)
                outcome.again = await hand.follow(seen, action, admin) or outcome.again

    async def _tell(self, key: Key, seen: Seen, deed: Any, outcome: ApplyOutcome) -> bool:
        """Tells the controllers; what they refuse is planned with, at once and then again.

        Raises:
            NotFound: the resource is gone.
        """
        try:
            await deed(seen, self._directory.admin(*seen.cluster))
        except NotFound:
            await live(self._api, self._cache, seen.kind, key.namespace, key.name)
            raise
        except AdminRefusedError as error:
            self._refuse(key, seen, str(error), outcome)
            self._tables.doubt(key.kind, *seen.cluster)
            _log.warning("controllers refuse", **_facts(key, seen, deed), why=str(error))
            return False
        self._refusals.pop(key, None)
        outcome.again = True
        _log.info("controllers told", **_facts(key, seen, deed))
        return True

    def _refuse(self, key: Key, seen: Seen, why: str, outcome: ApplyOutcome) -> None:
        """Remembers a refusal, which is planned with at once and tried again later."""
        told = (seen.meta.generation, why)
        outcome.again = self._refusals.get(key) != told
        outcome.check_after_s = REFUSED_AGAIN_S
        self._refusals[key] = told

    async def _post(self, key: Key, seen: Seen, event: EmitEvent) -> None:
        await post_event(self._api, key, seen.meta, event)

    async def _write(self, key: Key, seen: Seen, status: Body) -> bool:
        """Writes a status; whether somebody has changed the resource meanwhile."""
        body = {
            "apiVersion": seen.kind.api_version,
            "kind": seen.kind.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": seen.meta.uid},
            "status": status,
        }
        try:
            written = await self._api.apply_status(seen.kind, body)
        except (NotFound, Conflict):
            await live(self._api, self._cache, seen.kind, key.namespace, key.name)
            raise
        return take(self._cache, seen.kind, written)

    async def _finalize(
        self, key: Key, seen: Seen, action: SetFinalizer, outcome: ApplyOutcome
    ) -> None:
        patch = {
            "metadata": {
                "uid": seen.meta.uid,
                "resourceVersion": action.resource_version,
                "finalizers": list(action.finalizers),
            }
        }
        try:
            found = await self._api.merge(seen.kind, key.namespace, key.name, patch)
        except (NotFound, Conflict):
            await live(self._api, self._cache, seen.kind, key.namespace, key.name)
            raise
        except (Denied, Invalid) as error:
            if not action.present:
                raise
            why = f"The API server refuses its finalizer: {error.message}"
            self._refuse(key, seen, why, outcome)
            return
        outcome.again = True
        self._refusals.pop(key, None)
        if found["metadata"].get("deletionTimestamp") is None or action.finalizers:
            self._cache.put(seen.kind, found)


def _parse(model: type[Entity], body: Body) -> tuple[Entity | None, str]:
    try:
        return model.parse({key: value for key, value in body.items() if key != "status"}), ""
    except InvalidSpecError as error:
        return None, str(error)


def _status(model: type[EntityStatus], status: Any) -> EntityStatus | None:
    if not isinstance(status, dict):
        return None
    try:
        return model.model_validate(status)
    except ValidationError:
        return None


def _facts(key: Key, seen: Seen, deed: Any) -> dict[str, object]:
    return {
        "kind": key.kind,
        "namespace": key.namespace,
        "name": key.name,
        "cluster": seen.cluster[1],
        "deed": deed.__name__,
    }
