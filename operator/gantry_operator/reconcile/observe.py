"""Observation: the cache plus one question to the controllers.

Not being able to ask is an outcome, not an exception, so a plan is made in any case. A Secret that
the API server does not let us read is told, and counts as one that exists, or it would be created
again. Only a claim that it says nothing of ends an observation, or an API server that is silent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gantry_protocol.admin_client.outcomes import Unreachable
from pydantic import ValidationError

from gantry_operator import names
from gantry_operator.api.errors import Unavailable
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CONTROLLER_GROUP,
    CUSTOM,
    FRONT_GROUP,
    OWNED,
    POD,
    SECRET,
    Kind,
)
from gantry_operator.cache import Cache, Key, reference
from gantry_operator.models import (
    BrokerGroup,
    BrokerGroupStatus,
    ControllerGroup,
    ControllerGroupStatus,
    FrontGroup,
    FrontGroupStatus,
    InvalidSpecError,
)
from gantry_operator.models.base import Metadata, Model, Resource
from gantry_operator.plan.growth import template_size
from gantry_operator.plan.listener_tls import secrets_of
from gantry_operator.plan.observed import (
    Body,
    BrokerObserved,
    CertificateView,
    ClaimView,
    ControllerObserved,
    FrontObserved,
    ObjectKey,
    Observed,
    PodView,
    Refusal,
    ShardView,
    VolumeView,
    hosted_shards,
    pod_view,
)
from gantry_operator.plan.shards import view_of_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_protocol.admin import FrontsView, GroupView, QuorumView
    from gantry_protocol.admin_client.outcomes import NotDeclared

    from gantry_operator.api.errors import ApiError
    from gantry_operator.plan.turns import ImageWait, RollTurn
    from gantry_operator.reconcile.claims import Claims
    from gantry_operator.reconcile.quorum_secrets import Survey

ASK_AT_ONCE = 10  # shards
ModelT = TypeVar("ModelT", bound=Model)
ResourceT = TypeVar("ResourceT", bound=Resource)
Refusals = dict[Key, tuple[Refusal, ...]]


class Questions(Protocol):
    """The questions to one quorum; silence is an answer."""

    async def group(self, name: str) -> GroupView | NotDeclared | Unreachable:
        """One broker group."""
        ...

    async def fronts(self) -> FrontsView | Unreachable:
        """The way of clients of the cluster."""
        ...

    async def view(self) -> QuorumView | Unreachable:
        """The quorum itself."""
        ...


class Quorums(Protocol):
    """All quorums."""

    def admin(self, namespace: str, name: str) -> Questions:
        """That of a ControllerGroup."""
        ...

    def known_groups(self) -> set[tuple[str, str]]:
        """Namespace and name of every broker group that some quorum has named."""
        ...


class Images(Protocol):
    """The default images."""

    def image_of(self, key: Key, body: Body) -> tuple[str, ImageWait | None]:
        """That of a group, and what it waits for if it is not the operator's."""
        ...


class Turns(Protocol):
    """The turns of groups to restart pods."""

    def turn_of(self, key: Key, body: Body) -> RollTurn | None:
        """That of a group; None if it needs none."""
        ...


class MoveTurns(Protocol):
    """The turns of groups to move a master to a preferred zone."""

    def turn_of(self, key: Key, body: Body) -> bool:
        """Whether it is a group's."""
        ...


class PodZones(Protocol):
    """The zones of pods that do not say them."""

    async def complete(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """The pods, with zones as far as anybody knows them."""
        ...


class ListenerCertificates(Protocol):
    """The certificates of listeners."""

    async def of(self, namespace: str, secrets: Iterable[str]) -> tuple[CertificateView, ...]:
        """Of the Secrets of these names."""
        ...


class QuorumSecrets(Protocol):
    """The Secrets of quorums."""

    async def survey(self, namespace: str, group: str) -> Survey:
        """Those that do not exist, and those that cannot be read."""
        ...


class Observer:
    """Gathers what a plan rests on.

    Args:
        cache: objects by watch.
        directory: the controllers.
        secrets: which of them exist, read live.
        claims: of controllers' volumes, read live.
        fleet: which default image a group gets.
        rolls: whose turn it is to restart pods; None where nobody waits for one.
        moves: whose turn it is to move a master to a preferred zone; None: nobody's.
        zones: of pods that do not say theirs; None where nodes may not be read.
        certificates: of listeners, read live; None: nobody looks.
        directory_tiers: whether all pods see the same files.
        operator_namespace: where the operator's own pods are; empty outside a cluster.
    """

    def __init__(
        self,
        cache: Cache,
        directory: Quorums,
        secrets: QuorumSecrets,
        claims: Claims,
        fleet: Images,
        *,
        rolls: Turns | None = None,
        moves: MoveTurns | None = None,
        zones: PodZones | None = None,
        certificates: ListenerCertificates | None = None,
        directory_tiers: bool = False,
        operator_namespace: str = "",
    ) -> None:
        self._cache = cache
        self._rolls = rolls
        self._moves = moves
        self._zones = zones
        self._certificates = certificates
        self._directory = directory
        self._secrets = secrets
        self._claims = claims
        self._fleet = fleet
        self._directory_tiers = directory_tiers
        self._operator_namespace = operator_namespace
        self.refusals: Refusals = {}
        self.unread: Refusals = {}
        self.note_growth = claims.note
        self.refused_drains: dict[Key, dict[str, str]] = {}

    async def observe(self, key: Key) -> Observed | None:
        """The observation of a resource now; None if it does not exist."""
        (kind,) = (kind for kind in CUSTOM if kind.kind == key.kind)
        body = self._cache.get(kind, key.namespace, key.name)
        if body is None:
            self.refusals.pop(key, None)
            self.unread.pop(key, None)
            self.refused_drains.pop(key, None)
            self._claims.drop(key)
            return None
        if kind is BROKER_GROUP:
            return await self._broker(key, body)
        if kind is FRONT_GROUP:
            return await self._front(key, body)
        return await self._controller(key, body)

    async def _broker(self, key: Key, body: Body) -> BrokerObserved:
        group, invalid = _parse(BrokerGroup, body)
        referred = reference(body)
        image, image_wait = self._fleet.image_of(key, body)
        objects = self._objects(key)
        count = max(self._retired_shards(key, body), _shard_count(key, body, objects))
        shards = await self._shards(key, referred, count)
        pods = self._pods(key)
        placed = group is not None and group.spec.preferred_master is not None
        if placed and self._zones is not None:
            pods = await self._zones.complete(pods)
        view = view_of_all(shards) if shards else await self._view(key, referred, key.name)
        return BrokerObserved(
            meta=Metadata.model_validate(body["metadata"]),
            group=group,
            invalid=invalid,
            previous=_read(BrokerGroupStatus, body.get("status")),
            live_status=body.get("status"),
            controllers=self._controllers(key.namespace, referred),
            controllers_exist=self._serves_again(key.namespace, referred),
            objects=objects,
            pods=pods,
            view=view,
            shards=shards,
            image=image,
            image_wait=image_wait,
            refusals=self.refusals.get(key, ()),
            refused_drains=self.refused_drains.get(key, {}),
            directory_tiers=self._directory_tiers,
            fronts=bool(self._referring(FRONT_GROUP, key.namespace, referred)),
            neighbours=self._has_neighbours(key, referred),
            roll_turn=None if self._rolls is None else self._rolls.turn_of(key, body),
            move_turn=placed and self._moves is not None and self._moves.turn_of(key, body),
            volumes=await self._volumes(
                key, group, names.broker_statefulset(key.name), objects, pods
            ),
            refused_growth=self._claims.refused(key),
            certificates=await self._certificates_of(group),
        )

    async def _certificates_of(
        self, group: BrokerGroup | ControllerGroup | None
    ) -> tuple[CertificateView, ...]:
        if group is None or self._certificates is None:
            return ()
        secrets = secrets_of(group.spec.clients.listeners)
        return await self._certificates.of(group.metadata.namespace, secrets)

    async def _front(self, key: Key, body: Body) -> FrontObserved:
        group, invalid = _parse(FrontGroup, body)
        cluster = reference(body)
        view: Any = Unreachable(f"There is no ControllerGroup {cluster}.")
        if self._exists(key.namespace, cluster):
            view = await self._directory.admin(key.namespace, cluster).fronts()
        image, image_wait = self._fleet.image_of(key, body)
        # It may itself be gone by now, and with it the last one.
        fronts = self._referring(FRONT_GROUP, key.namespace, cluster)
        first = min(fronts, key=_age, default=body)
        brokers = self._referring(BROKER_GROUP, key.namespace, cluster)
        return FrontObserved(
            meta=Metadata.model_validate(body["metadata"]),
            group=group,
            invalid=invalid,
            previous=_read(FrontGroupStatus, body.get("status")),
            live_status=body.get("status"),
            cluster=cluster,
            controllers=self._controllers(key.namespace, cluster),
            controllers_exist=self._serves_again(key.namespace, cluster),
            before="" if first["metadata"]["name"] == key.name else first["metadata"]["name"],
            broker_groups=tuple(
                sorted(
                    name
                    for found in brokers
                    if found["metadata"].get("deletionTimestamp") is None
                    for name in _groups_of(found)
                )
            ),
            objects=self._objects(key),
            pods=self._pods(key),
            view=view,
            image=image,
            image_wait=image_wait,
            refusals=self.refusals.get(key, ()),
        )

    def _referring(self, kind: Kind, namespace: str, quorum: str) -> list[Body]:
        """The resources of a kind that name a ControllerGroup."""
        bodies = (
            self._cache.get(kind, *name) for name in self._cache.names(kind) if name[0] == namespace
        )
        return [body for body in bodies if body is not None and reference(body) == quorum]

    def _has_neighbours(self, key: Key, quorum: str) -> bool:
        """Whether other broker groups refer to the same quorum and stay."""
        others = (
            self._cache.get(BROKER_GROUP, namespace, name)
            for namespace, name in self._cache.names(BROKER_GROUP)
            if namespace == key.namespace and name != key.name
        )
        return any(
            body["metadata"].get("deletionTimestamp") is None and reference(body) == quorum
            for body in others
            if body is not None
        )

    async def _view(self, key: Key, reference: str, name: str) -> Any:
        if not self._exists(key.namespace, reference):
            return Unreachable(f"There is no ControllerGroup {reference}.")
        return await self._directory.admin(key.namespace, reference).group(name)

    def _retired_shards(self, key: Key, body: Body) -> int:
        """The number of shards that there ever were, where the controllers are to forget them."""
        finalizers = body["metadata"].get("finalizers") or ()
        going = body["metadata"].get("deletionTimestamp") is not None
        if not going or names.FINALIZER not in finalizers or "shards" not in body.get("spec", {}):
            return 0
        indices = [
            names.shard_index(group)
            for namespace, group in self._directory.known_groups()
            if namespace == key.namespace
            and group != key.name
            and names.resource_of(group) == key.name
        ]
        return min(max(indices, default=-1) + 1, names.MAX_SHARDS)

    async def _shards(self, key: Key, reference: str, count: int) -> tuple[ShardView, ...]:
        """The controllers' word on each shard, asked for a few at a time."""
        wanted = [names.shard(key.name, index) for index in range(count)]
        found: list[ShardView] = []
        for first in range(0, count, ASK_AT_ONCE):
            some = wanted[first : first + ASK_AT_ONCE]
            views = await asyncio.gather(*(self._view(key, reference, name) for name in some))
            found += map(ShardView, some, views)
            if any(isinstance(view, Unreachable) for view in views):
                # Who does not answer is not asked again for each shard.
                found += (ShardView(name, views[-1]) for name in wanted[len(found) :])
                break
        return tuple(found)

    async def _controller(self, key: Key, body: Body) -> ControllerObserved:
        group, invalid = _parse(ControllerGroup, body)
        found = await self._secrets.survey(key.namespace, key.name)
        self.unread[key] = tuple(_unread(SECRET, name, why) for name, why in found.unread.items())
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
            missing_secrets=found.missing,
            operator_namespace=self._operator_namespace,
            claims=await self._claims_of(group, objects, pods),
            dependents=self._dependents(key, body),
            volumes=await self._volumes(
                key, group, names.controller_statefulset(key.name), objects, pods
            ),
            refused_growth=self._claims.refused(key),
            quorum=quorum,
            image=image,
            image_wait=image_wait,
            refusals=self.refusals.get(key, ()),
            certificates=await self._certificates_of(group),
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

    async def _volumes(
        self,
        key: Key,
        group: BrokerGroup | ControllerGroup | None,
        wanted: str,
        objects: dict[ObjectKey, Body],
        pods: tuple[PodView, ...],
    ) -> tuple[VolumeView, ...] | None:
        """The claims, while they are to have more than their template; see `Claims.volumes`."""
        if group is None or group.spec.storage.type != "PersistentVolumeClaim":
            return None
        statefulset = objects.get(("StatefulSet", wanted))
        if statefulset is None:
            return await self._claims.left(key.namespace, wanted, group.spec.replicas)
        if not template_size(group.spec.storage, statefulset):
            return None
        of_set = tuple(pod for pod in pods if pod.ordinal is not None and _is_of(statefulset, pod))
        return await self._claims.volumes(key, of_set, group.spec.storage.size)

    def _dependents(self, key: Key, body: Body) -> tuple[str, ...]:
        """What refers to a controller group; one name is enough unless it is being deleted."""
        found: list[str] = []
        for kind, prefix in ((BROKER_GROUP, ""), (FRONT_GROUP, "FrontGroup ")):
            referring = self._referring(kind, key.namespace, key.name)
            found += sorted(f"{prefix}{one['metadata']['name']}" for one in referring)
            if found and body["metadata"].get("deletionTimestamp") is None:
                return (found[0],)
        return tuple(found)

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
        return None if body is None else _parse(ControllerGroup, body)[0]

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


def _unread(kind: Kind, name: str, why: ApiError) -> Refusal:
    message = f"it cannot be read: {why.message}"
    passing = isinstance(why, Unavailable)
    return Refusal(kind.kind, name, taken=False, message=message, passing=passing)


def _is_of(statefulset: Body, pod: PodView) -> bool:
    """Others with the resource's labels, such as those of a CronJob, have no claim."""
    return pod.name == names.pod(statefulset["metadata"]["name"], pod.ordinal or 0)


def _shard_count(key: Key, body: Body, objects: dict[ObjectKey, Body]) -> int:
    """The number of shards that are wished or hosted; 0 for a group without a number of them."""
    wished = (body.get("spec") or {}).get("shards")
    hosted = hosted_shards(objects.get(("StatefulSet", names.broker_statefulset(key.name))))
    counts = [count for count in (wished, hosted) if isinstance(count, int)]
    return min(max(counts, default=0), names.MAX_SHARDS)


def _parse(model: type[ResourceT], body: Body) -> tuple[ResourceT | None, str]:
    """A resource, or why it is invalid; a status from another version does not make it so."""
    try:
        return model.parse({key: value for key, value in body.items() if key != "status"}), ""
    except InvalidSpecError as error:
        return None, str(error)


def _groups_of(body: Body) -> list[str]:
    """Names of the broker groups that a BrokerGroup wishes for."""
    name, shards = body["metadata"]["name"], (body.get("spec") or {}).get("shards")
    if not isinstance(shards, int):
        return [name]
    return [names.shard(name, index) for index in range(min(shards, names.MAX_SHARDS))]


def _age(body: Body) -> tuple[str, str]:
    """What is there first comes first; of two of one second, by name."""
    meta = body["metadata"]
    return meta.get("creationTimestamp") or "", meta["name"]


def _read(model: type[ModelT], status: Any) -> ModelT | None:
    if not isinstance(status, dict):
        return None
    try:
        return model.model_validate(status)
    except ValidationError:
        return None
