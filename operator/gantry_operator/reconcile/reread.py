"""Reading an object anew when an answer contradicts what was planned with, or after a deletion.

A watch is late now and then, and a deletion that no watch reports stays in the cache until the next
comparison of everything. What the API server just said about an object is better than either, so it
is taken in at once: whoever planned with something that is gone never does so twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_operator import names
from gantry_operator.api.errors import NotFound
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    BY_NAME,
    CUSTOM,
    FRONT_GROUP,
    POD,
    STATEFULSET,
    Kind,
)
from gantry_operator.cache import key_of, reference
from gantry_operator.plan import actions as act

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Api, Body
    from gantry_operator.cache import Cache, Key

OWN_LABELS = (names.LABEL_ROLE, names.LABEL_TRAFFIC)
Target = tuple[Kind, str, str]
"""Kind, namespace and name."""


async def live(api: Api, cache: Cache, kind: Kind, namespace: str, name: str) -> Body | None:
    """An object as it is now, taken in; None if there is none.

    Raises:
        ApiError: it could not be read.
    """
    before = cache.get(kind, namespace, name)
    try:
        found: Body | None = await api.get(kind, namespace, name)
    except NotFound:
        found = None
    if found is not None and (kind in CUSTOM or key_of(kind, found) is not None):
        cache.put(kind, found)
    elif before is not None:  # it is gone, or a stranger has the name now
        cache.remove(kind, before)
    return found


async def reread(api: Api, cache: Cache, kind: Kind, namespace: str, name: str) -> bool:
    """Takes in an object as it is now; whether that is news.

    Raises:
        ApiError: it could not be read.
    """
    before = cache.get(kind, namespace, name)
    await live(api, cache, kind, namespace, name)
    return cache.get(kind, namespace, name) != before


async def is_referred_to(api: Api, quorum: Key) -> bool:
    """Whether broker groups or fronts refer to a ControllerGroup, as the API server itself has it.

    Raises:
        ApiError: they could not be listed.
    """
    for kind in (BROKER_GROUP, FRONT_GROUP):
        listed = api.list_all(kind, quorum.namespace)
        if any([reference(body) == quorum.name async for body in listed]):
            return True
    return False


def target_of(key: Key, action: act.Action) -> Target | None:
    """The object that an action writes; None if it is no object that the cache knows."""
    name: Any
    match action:
        case act.ApplyObject(manifest=manifest) | act.ScaleDown(manifest=manifest):
            return BY_NAME[manifest["kind"]], key.namespace, manifest["metadata"]["name"]
        case act.DeleteObject(kind=kind, name=name):
            return BY_NAME[kind], key.namespace, name
        case act.DeleteStatefulSet(name=name):
            return STATEFULSET, key.namespace, name
        case (
            act.LabelPod(name=name)
            | act.RouteTraffic(name=name)
            | act.RenewFiles(name=name)
            | act.DeletePod(name=name)
        ):
            return POD, key.namespace, name
        case act.WriteStatus() | act.SetFinalizer():
            return BY_NAME[key.kind], key.namespace, key.name
        case _:
            return None


def take(cache: Cache, kind: Kind, live: Body) -> bool:
    """Takes in the answer to a write of ours; whether it holds a change of somebody else.

    The answer is the whole object. A change that came before our write is in it, and once it is in
    the cache, the event that would bring it is no news and would start nothing.
    """
    name = live["metadata"].get("namespace", ""), live["metadata"]["name"]
    before = _of_others(kind, cache.get(kind, *name))
    cache.put(kind, live)
    return before is not None and before != _of_others(kind, cache.get(kind, *name))


def _of_others(kind: Kind, body: Body | None) -> Body | None:
    """An object without its version and without what the operator writes into it."""
    if body is None:
        return None
    meta = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    if kind == POD:
        labels = meta.get("labels") or {}
        meta["labels"] = {k: v for k, v in labels.items() if k not in OWN_LABELS}
        return body | {"metadata": meta}
    return {key: value for key, value in body.items() if key != "status"} | {"metadata": meta}
