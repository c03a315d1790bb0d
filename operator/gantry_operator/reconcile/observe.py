"""Observation: the cache plus one question to the controllers.

Not being able to ask is an outcome, not an exception, so a plan is made in any case. Only the API
server's failure to say whether a Secret exists ends an observation: it would be created again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from gantry_protocol.admin_client.outcomes import Unreachable
from pydantic import ValidationError

from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, OWNED, POD
from gantry_operator.cache import Cache, Key, reference
from gantry_operator.models import (
    BrokerGroup,
    BrokerGroupStatus,
    ControllerGroup,
    ControllerGroupStatus,
    InvalidSpecError,
)
from gantry_operator.models.base import Metadata, Model
from gantry_operator.plan.observed import (
    Body,
    BrokerObserved,
    ClaimView,
    ControllerObserved,
    ObjectKey,
    PodView,
    Refusal,
    pod_view,
)

if TYPE_CHECKING:
    from gantry_operator.quorums.directory import Directory
    from gantry_operator.reconcile.claims import Claims
    from gantry_operator.reconcile.fleet import Fleet
    from gantry_operator.reconcile.quorum_secrets import Secrets

ModelT = TypeVar("ModelT", bound=Model)
Refusals = dict[Key, tuple[Refusal, ...]]


class Observer:
    """Gathers what a plan rests on.

    Args:
        cache: objects by watch.
        directory: the controllers.
        secrets: which of them exist, read live.
        claims: of controllers' volumes, read live.
        fleet: which default image a group gets.
        directory_tiers: whether all pods see the same files.
        operator_namespace: where the operator's own pods are; empty outside a cluster.
    """

    def __init__(
        self,
        cache: Cache,
        directory: Directory,
        secrets: Secrets,
        claims: Claims,
        fleet: Fleet,
        *,
        directory_tiers: bool = False,
        operator_namespace: str = "",
    ) -> None:
        self._cache = cache
        self._directory = directory
        self._secrets = secrets
        self._claims = claims
        self._fleet = fleet
        self._directory_tiers = directory_tiers
        self._operator_namespace = operator_namespace
        self.refusals: Refusals = {}

    async def observe(self, key: Key) -> BrokerObserved | ControllerObserved | None:
        """The observation of a resource now; None if it does not exist."""
        kind = BROKER_GROUP if key.kind == BROKER_GROUP.kind else CONTROLLER_GROUP
        body = self._cache.get(kind, key.namespace, key.name)
        if body is None:
            self.refusals.pop(key, None)
            if kind is CONTROLLER_GROUP:
                self._claims.drop(key.namespace, key.name)
            return None
        if kind is BROKER_GROUP:
            return await self._broker(key, body)
        return await self._controller(key, body)

    async def _broker(self, key: Key, body: Body) -> BrokerObserved:
        group: BrokerGroup | None = None
        invalid = ""
        try:
            group = BrokerGroup.parse(_without_status(body))
        except InvalidSpecError as error:
            invalid = str(error)
        referred = reference(body)
        image, image_wait = self._fleet.image_of(key, body)
        return BrokerObserved(
            meta=Metadata.model_validate(body["metadata"]),
            group=group,
            invalid=invalid,
            previous=_read(BrokerGroupStatus, body.get("status")),
            live_status=body.get("status"),
            controllers=self._controllers(key.namespace, referred),
            controllers_exist=self._serves_again(key.namespace, referred),
            objects=self._objects(key),
            pods=self._pods(key),
            view=await self._view(key, referred),
            image=image,
            image_wait=image_wait,
            refusals=self.refusals.get(key, ()),
            directory_tiers=self._directory_tiers,
        )

    async def _view(self, key: Key, reference: str) -> Any:
        if not self._exists(key.namespace, reference):
            return Unreachable(f"There is no ControllerGroup {reference}.")
        return await self._directory.admin(key.namespace, reference).group(key.name)

    async def _controller(self, key: Key, body: Body) -> ControllerObserved:
        group: ControllerGroup | None = None
        invalid = ""
        try:
            group = ControllerGroup.parse(_without_status(body))
        except InvalidSpecError as error:
            invalid = str(error)
        missing_secrets = await self._secrets.missing(key.namespace, key.name)
        pods, objects = self._pods(key), self._objects(key)
        quorum: Any = Unreachable("There are no controllers yet.")
        if pods:
            quorum = await self._directory.admin(key.namespace, key.name).view()
        image, image_wait = self._fleet.image_of(key, body)
        return ControllerObserved(
            meta=Metadata.model_validate(body["metadata"]),
            group=group,
            invalid=invalid,
            previous=_read(ControllerGroupStatus, body.get("status")),
            live_status=body.get("status"),
            objects=objects,
            pods=pods,
            missing_secrets=missing_secrets,
            operator_namespace=self._operator_namespace,
            claims=await self._claims_of(group, objects, pods),
            dependents=self._dependents(key, body),
            quorum=quorum,
            image=image,
            image_wait=image_wait,
            refusals=self.refusals.get(key, ()),
        )

    async def _claims_of(
        self,
        group: ControllerGroup | None,
        objects: dict[ObjectKey, Body],
        pods: tuple[PodView, ...],
    ) -> tuple[ClaimView, ...]:
        if group is None:
            return ()
        statefulset = "StatefulSet", names.controller_statefulset(group.metadata.name)
        return await self._claims.of(group, pods, running=statefulset in objects)

    def _dependents(self, key: Key, body: Body) -> tuple[str, ...]:
        """Broker groups that refer to a controller group; the first unless it is being deleted."""
        found = []
        for namespace, name in self._cache.names(BROKER_GROUP):
            if namespace != key.namespace:
                continue
            if reference(self._cache.get(BROKER_GROUP, namespace, name) or {}) != key.name:
                continue
            if body["metadata"].get("deletionTimestamp") is None:
                return (name,)
            found.append(name)
        return tuple(sorted(found))

    def _exists(self, namespace: str, name: str) -> bool:
        return self._cache.get(CONTROLLER_GROUP, namespace, name) is not None

    def _serves_again(self, namespace: str, name: str) -> bool:
        """Whether there is a quorum, or the rest of one, that may still be asked.

        A whole namespace is deleted without an order, so the controllers may be gone before the
        groups whose metadata they hold. Their resource waits for those groups, and is no reason
        for the groups to wait for it.
        """
        body = self._cache.get(CONTROLLER_GROUP, namespace, name)
        if body is None or body["metadata"].get("deletionTimestamp") is None:
            return body is not None
        key = Key(CONTROLLER_GROUP.kind, namespace, name)
        statefulset = "StatefulSet", names.controller_statefulset(name)
        return statefulset in self._objects(key) or bool(self._pods(key))

    def _controllers(self, namespace: str, name: str) -> ControllerGroup | None:
        body = self._cache.get(CONTROLLER_GROUP, namespace, name)
        if body is None:
            return None
        try:
            return ControllerGroup.parse(_without_status(body))
        except InvalidSpecError:
            return None

    def _objects(self, key: Key) -> dict[ObjectKey, Body]:
        return {
            (kind.kind, body["metadata"]["name"]): body
            for kind in OWNED
            for body in self._cache.owned(key, kind)
        }

    def _pods(self, key: Key) -> tuple[PodView, ...]:
        return tuple(
            sorted(
                (pod_view(body) for body in self._cache.owned(key, POD)), key=lambda pod: pod.name
            )
        )


def _without_status(body: Body) -> Body:
    """The wish alone: a status from another version must not make the spec invalid."""
    return {key: value for key, value in body.items() if key != "status"}


def _read(model: type[ModelT], status: Any) -> ModelT | None:
    if not isinstance(status, dict):
        return None
    try:
        return model.model_validate(status)
    except ValidationError:
        return None
