"""Observation: the cache plus one question to the controllers.

Not being able to ask is an outcome, not an exception, so a plan is made in any case. Only the API
server's failure to say whether a Secret exists ends an observation: it would be created again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from gantry_operator import names
from gantry_operator.api.errors import NotFound
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, OWNED, POD, SECRET
from gantry_operator.cache import Cache, Key
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
    ControllerObserved,
    ObjectKey,
    PodView,
    Refusal,
    Unreachable,
    pod_view,
)

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Api
    from gantry_operator.controllers.directory import Directory

ModelT = TypeVar("ModelT", bound=Model)
Refusals = dict[Key, tuple[Refusal, ...]]


class Observer:
    """Gathers what a plan rests on.

    Args:
        cache: objects by watch.
        directory: the controllers.
        api: for the one live read.
        image: default image of pods.
        directory_tiers: whether all pods see the same files.
    """

    def __init__(
        self,
        cache: Cache,
        directory: Directory,
        api: Api,
        image: str,
        *,
        directory_tiers: bool = False,
    ) -> None:
        self._cache = cache
        self._directory = directory
        self._api = api
        self._image = image
        self._directory_tiers = directory_tiers
        self.refusals: Refusals = {}

    async def observe(self, key: Key) -> BrokerObserved | ControllerObserved | None:
        """What is known about a resource now; None if it does not exist."""
        kind = BROKER_GROUP if key.kind == BROKER_GROUP.kind else CONTROLLER_GROUP
        body = self._cache.get(kind, key.namespace, key.name)
        if body is None:
            self.refusals.pop(key, None)
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
        reference = _reference(body)
        return BrokerObserved(
            meta=Metadata.model_validate(body["metadata"]),
            group=group,
            invalid=invalid,
            previous=_read(BrokerGroupStatus, body.get("status")),
            live_status=body.get("status"),
            controllers=self._controllers(key.namespace, reference),
            controllers_exist=self._exists(key.namespace, reference),
            objects=self._objects(key),
            pods=self._pods(key),
            view=await self._view(key, body, reference),
            image=self._image,
            refusals=self.refusals.get(key, ()),
            directory_tiers=self._directory_tiers,
        )

    async def _view(self, key: Key, body: Body, reference: str) -> Any:
        finalizers = body["metadata"].get("finalizers") or ()
        if body["metadata"].get("deletionTimestamp") and names.FINALIZER not in finalizers:
            return Unreachable("The resource is being deleted.")
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
        has_secret = await self._has_secret(key)
        pods = self._pods(key)
        quorum: Any = Unreachable("There are no controllers yet.")
        if pods:
            quorum = await self._directory.admin(key.namespace, key.name).view()
        return ControllerObserved(
            meta=Metadata.model_validate(body["metadata"]),
            group=group,
            invalid=invalid,
            previous=_read(ControllerGroupStatus, body.get("status")),
            live_status=body.get("status"),
            objects=self._objects(key),
            pods=pods,
            has_secret=has_secret,
            quorum=quorum,
            image=self._image,
            refusals=self.refusals.get(key, ()),
        )

    async def _has_secret(self, key: Key) -> bool:
        try:
            await self._api.get(SECRET, key.namespace, names.admin_secret(key.name))
        except NotFound:
            return False
        return True

    def _exists(self, namespace: str, name: str) -> bool:
        return self._cache.get(CONTROLLER_GROUP, namespace, name) is not None

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


def _reference(body: Body) -> str:
    """The name of the ControllerGroup, even of a spec that is otherwise invalid."""
    spec = body.get("spec") or {}
    reference = spec.get("controllerRef") or {}
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) and name else "gantry"


def _read(model: type[ModelT], status: Any) -> ModelT | None:
    if not isinstance(status, dict):
        return None
    try:
        return model.model_validate(status)
    except ValidationError:
        return None
