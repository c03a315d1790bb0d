"""A change before it is asked for: `gantry kube plan`.

The resource as it is, and as a manifest wishes it, are observed like the operator does it, with the
controllers' views taken from the status (`reported`), and the operator's planner is asked for the
course. Only GET requests are made.
"""

from __future__ import annotations

import copy
import datetime as dt
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
from gantry_protocol.errors import GantryError
from msgspec.structs import replace

from gantry_operator import names
from gantry_operator.api.errors import ApiError
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CONTROLLER_GROUP,
    CUSTOM,
    DEPLOYMENT,
    ENTITIES,
    FRONT_GROUP,
    OWNED,
    POD,
    STATEFULSET,
    Kind,
)
from gantry_operator.cache import Cache, Key
from gantry_operator.plan import plan
from gantry_operator.plan.actions import Action, ApplyObject, Declare, WriteStatus
from gantry_operator.plan.approval import approved
from gantry_operator.plan.changes import expected_gap_ms
from gantry_operator.plan.foresight import Foresight, foresee
from gantry_operator.plan.objects import container, drifted
from gantry_operator.plan.observed import BrokerObserved, Observed
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.supposed import after
from gantry_operator.preview.reported import Reported
from gantry_operator.reconcile.claims import Claims
from gantry_operator.reconcile.observe import Observer
from gantry_operator.reconcile.quorum_secrets import Survey
from gantry_operator.reconcile.zones import Zones
from gantry_operator.settings import OperatorSettings

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_operator.api.protocol import Body, ReadOnlyApi
    from gantry_operator.plan.turns import ImageWait

GROUPS = {kind.kind: kind for kind in (CONTROLLER_GROUP, BROKER_GROUP, FRONT_GROUP)}
_AT_ONCE = frozenset(kind.kind for kind in ENTITIES)
_WORKLOADS = {
    CONTROLLER_GROUP.kind: (STATEFULSET, names.CONTROLLER, names.controller_statefulset),
    BROKER_GROUP.kind: (STATEFULSET, names.BROKER, names.broker_statefulset),
    FRONT_GROUP.kind: (DEPLOYMENT, names.FRONT, names.front_deployment),
}


class Announcement(msgspec.Struct, frozen=True, rename="camel"):
    """The course of one resource's change.

    Attributes:
        exists: there is such a resource now.
        gap_ms: for how long sends wait at most; None where that cannot be told before.
        measured: the gap of a move is that of the last change, and not the stated bound.
        approval: the id that spec.update.approved is to have before any of the steps is taken;
            empty if they wait for nobody.
    """

    kind: str
    namespace: str
    name: str
    exists: bool
    course: Foresight
    gap_ms: int | None
    measured: bool
    approval: str = ""


def read_manifests(paths: tuple[Path, ...], stdin: str) -> list[Body]:
    """The resources of some files; `-` is standard input.

    Raises:
        GantryError: a file cannot be read, or holds something else.
    """
    found: list[Body] = []
    for path in paths:
        try:
            text = stdin if str(path) == "-" else path.read_text(encoding="utf-8")
            documents = list(yaml.safe_load_all(text))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise GantryError(f"{path} cannot be read: {error}.") from error
        for document in documents:
            if document is None:
                continue
            body = document if isinstance(document, dict) else {}
            kind, meta = body.get("kind"), body.get("metadata")
            if kind not in GROUPS and kind not in _AT_ONCE:
                raise GantryError(
                    f"{path} holds {kind or 'no resource'}, of which the operator makes no plan: "
                    f"give {', '.join(GROUPS)}."
                )
            if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
                raise GantryError(f"{path} holds a {kind} without metadata.name: give it one.")
            if not isinstance(body.get("spec") or {}, dict):
                raise GantryError(f"{path} holds a {kind} whose spec is no object: write fields.")
            found.append(body)
    if not found:
        raise GantryError("There is no resource in what was given: give -f FILE with one.")
    return found


async def announce(api: ReadOnlyApi, wishes: list[Body], namespace: str) -> list[Announcement]:
    """The courses of what is wished, all of it at once, in the order in which it was given.

    Args:
        api: only read from.
        wishes: manifests.
        namespace: of those that name none.

    Raises:
        GantryError: the API server cannot be read.
    """
    groups = [body for body in wishes if body["kind"] in GROUPS]
    homes = {body["metadata"].get("namespace") or namespace for body in groups}
    objects = [found for home in sorted(homes) for found in await _objects(api, home)]
    before, wished = Cache(), Cache()
    for kind, body in objects:
        before.put(kind, body)
    keys = []
    for wish in groups:
        kind, home = GROUPS[wish["kind"]], wish["metadata"].get("namespace") or namespace
        name = wish["metadata"]["name"]
        wished.put(kind, _merged(before.get(kind, home, name), wish, home))
        keys.append(Key(kind.kind, home, name))
    for kind, body in objects:
        if wished.get(kind, *_name(body)) is None or kind not in GROUPS.values():
            wished.put(kind, body)
    try:
        return [await _announced(api, key, before, wished) for key in keys]
    except ApiError as error:
        raise GantryError(f"The API server cannot be read: {error}.") from error


async def _objects(api: ReadOnlyApi, namespace: str) -> list[tuple[Kind, Body]]:
    """All that the operator would look at in a namespace."""
    found = []
    try:
        for kind in (*(k for k in CUSTOM if k not in ENTITIES), *OWNED, POD):
            labels = "" if kind in CUSTOM else names.MANAGED_SELECTOR
            found += [(kind, body) async for body in api.list_all(kind, namespace, labels)]
    except ApiError as error:
        raise GantryError(
            f"The {kind.plural} of namespace {namespace} cannot be read: {error.message}; a plan "
            "needs the right to list them."
        ) from error
    return found


def _name(body: Body) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _merged(current: Body | None, wish: Body, namespace: str) -> Body:
    """A resource as it would be stored: its identity and status stay, the wish is replaced."""
    meta = wish["metadata"]
    if current is None:
        uid = f"supposed-{meta['name']}"
        head = {"uid": uid, "generation": 1, "resourceVersion": "1", "namespace": namespace}
        return {"metadata": head | meta | {"namespace": namespace}, "spec": wish.get("spec") or {}}
    kept: Body = copy.deepcopy(current)
    annotations = (kept["metadata"].get("annotations") or {}) | (meta.get("annotations") or {})
    kept["metadata"] |= {"annotations": annotations}
    kept["metadata"]["generation"] = kept["metadata"].get("generation", 0) + 1
    kept["spec"] = copy.deepcopy(wish.get("spec") or {})
    return kept


class _NoSecrets:
    """Whether the quorum's Secrets exist is nothing that a plan depends on, nor is it looked at."""

    async def survey(self, namespace: str, group: str) -> Survey:
        return Survey((), {})


class _LiveImages:
    """The image that pods run with; of those that are yet to be made, that of the settings."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def image_of(self, key: Key, body: Body) -> tuple[str, ImageWait | None]:
        kind, component, name = _WORKLOADS[key.kind]
        live = self._cache.get(kind, key.namespace, name(key.name))
        ours = None if live is None else container(live, component)
        own = (body.get("spec") or {}).get("image")
        image = None if ours is None or own else ours.get("image")
        if image is not None:  # one that waits for a person is what would go with the change
            image = ((body.get("status") or {}).get("pendingChange") or {}).get("image", image)
        return image or OperatorSettings.model_fields["image"].default, None


async def _observed(api: ReadOnlyApi, key: Key, cache: Cache) -> Observed | None:
    observer = Observer(
        cache,
        Reported(cache),
        _NoSecrets(),
        Claims(api),
        _LiveImages(cache),
        zones=Zones(api),
        directory_tiers=True,
    )
    return await observer.observe(key)


async def _announced(api: ReadOnlyApi, key: Key, before: Cache, wished: Cache) -> Announcement:
    now = dt.datetime.now(dt.UTC)
    was, seen = await _observed(api, key, before), await _observed(api, key, wished)
    assert seen is not None, "it was put into the cache"
    rolled_from: list[ApplyObject] = []
    if was is not None:
        planned = _suppose(was, now)
        seen = _as_declared(seen, planned)
        rolled_from = _workloads(_suppose(_unsealed(was), now))
    gap_ms = expected_gap_ms(seen.previous if isinstance(seen, BrokerObserved) else None)

    def course_of(world: Observed) -> Foresight:
        return foresee(
            world,
            now,
            _suppose,
            gap_ms=gap_ms,
            rolls=lambda new, live: _rolls(new, live, rolled_from),
            later=True,
        )

    course, approval = course_of(seen), ""
    if course.waits == Reason.WAITING_FOR_APPROVAL and isinstance(seen, BrokerObserved):
        approval = _waits_for(seen, now)
        course = course_of(approved(seen, approval))
    last = seen.previous.last_change if isinstance(seen, BrokerObserved) and seen.previous else None
    return Announcement(
        *key,
        exists=was is not None,
        course=course,
        gap_ms=course.gap_ms,
        measured=last is not None and last.measured_gap_ms is not None,
        approval=approval,
    )


def _waits_for(seen: BrokerObserved, now: dt.datetime) -> str:
    """The id of the change that waits for a person."""
    written = [one.status for one in _suppose(seen, now) if isinstance(one, WriteStatus)]
    status = written[-1] if written else seen.live_status or {}
    return str(status["pendingChange"]["id"])


def _suppose(seen: Observed, now: dt.datetime) -> list[Action]:
    return plan(seen, now, announces=False)


def _as_declared(seen: Observed, planned: list[Action]) -> Observed:
    """What the controllers were told of the group, which no status says: what they would be now."""
    for action in planned:
        if isinstance(action, Declare):
            seen = after(seen, action, lambda _new, _live: False)
    return seen


def _unsealed(seen: Observed) -> Observed:
    """The same without the marks of what was applied, so that all of it would be applied again."""
    objects = copy.deepcopy(seen.objects)
    for body in objects.values():
        (body["metadata"].get("annotations") or {}).pop(names.ANNOTATION_APPLIED, None)
    return replace(seen, objects=objects)


def _workloads(planned: list[Action]) -> list[ApplyObject]:
    return [
        action
        for action in planned
        if isinstance(action, ApplyObject)
        and action.manifest["kind"] in (STATEFULSET.kind, DEPLOYMENT.kind)
        and _template(action.manifest) is not None
    ]


def _rolls(new: Body, live: Body, rolled_from: list[ApplyObject]) -> bool:
    """Whether pods are made anew: the template gets other values, or loses some of the old wish."""
    wished, found = _template(new), _template(live)
    if wished is None or wished == found:
        return False
    if drifted(wished, found, template=True):
        return True
    return any(
        action.manifest["metadata"]["name"] == new["metadata"]["name"]
        and _template(action.manifest) != wished
        for action in rolled_from
    )


def _template(workload: Body) -> Any:
    return workload["spec"].get("template")
