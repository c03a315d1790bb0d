"""The last acts of the operator, so that no deletion waits for one that is gone.

Two things are looked for once it is told to stop, and without them it stops at once:

- The namespace that it runs in is being deleted. Since Kubernetes 1.33 pods go first, so the
  resources do not know of it yet; the operator is the last one that can let them go.
- A resource is being deleted and waits for the operator alone. It works on until that is done, or
  for `FINISH_S`; another replica or a later operator does the rest.

Both only by the one that leads. The pod's terminationGracePeriodSeconds covers them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_protocol.process import log

from gantry_operator.api.errors import ApiError, Conflict, Denied, NotFound
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CONTROLLER_GROUP,
    CUSTOM,
    ENTITIES,
    FRONT_GROUP,
    NAMESPACE,
    Kind,
)
from gantry_operator.cache import name_of, reference
from gantry_operator.plan import deletion

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Api, Body
    from gantry_operator.cache import Cache

ASK_S = 3.0
FINISH_S = 10.0
LET_GO_S = 15.0
LOOK_S = 0.2
AT_ONCE = 20  # patches under way
_log = log.get("farewell")


async def is_ending(api: Api, namespace: str) -> bool:
    """Whether a namespace is being deleted; False where nobody says so."""
    try:
        async with asyncio.timeout(ASK_S):
            found = await api.get(NAMESPACE, None, namespace)
    except NotFound:
        return False
    except (ApiError, TimeoutError) as error:
        _log.warning("namespace not read", namespace=namespace, error=error)
        return False
    return found["metadata"].get("deletionTimestamp") is not None


async def let_go(api: Api, namespace: str) -> None:
    """Takes the operator's finalizers off everything in a namespace that is being deleted."""
    try:
        async with asyncio.timeout(LET_GO_S):
            while not await _has_let_go(api, namespace):  # noqa: ASYNC110 -- others write too
                await asyncio.sleep(LOOK_S)
    except (Denied, TimeoutError) as error:
        _log.warning("finalizers are left; take them off by hand", namespace=namespace, error=error)
    else:
        _log.info("the namespace goes, and nothing in it waits", namespace=namespace)


async def _has_let_go(api: Api, namespace: str) -> bool:
    """One look at everything; whether there was nothing to take off."""
    try:
        left = [
            (kind, body, patch)
            for kind in CUSTOM
            async for body in api.list_all(kind, namespace)
            if (patch := deletion.let_go(body["metadata"])) is not None
        ]
        for first in range(0, len(left), AT_ONCE):
            await asyncio.gather(*(_take_off(api, *item) for item in left[first : first + AT_ONCE]))
    except Denied:
        raise
    except ApiError as error:
        _log.info("finalizers not taken off yet", namespace=namespace, error=error)
        return False
    return not left


async def _take_off(api: Api, kind: Kind, body: Body, patch: Body) -> None:
    try:
        await api.merge(kind, *name_of(body), patch)
    except (NotFound, Conflict):
        return  # it is gone, or was written meanwhile: the next look tells


async def finish(cache: Cache) -> None:
    """Waits, while everything works on, until no deletion waits for the operator alone."""
    try:
        async with asyncio.timeout(FINISH_S):
            while is_awaited(cache):  # noqa: ASYNC110 -- it knows of no one event
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        _log.info("deletions are left to the next operator")


def is_awaited(cache: Cache) -> bool:
    """Whether some deletion waits for the operator alone."""
    groups, quorums = _all(cache, BROKER_GROUP), _all(cache, CONTROLLER_GROUP)
    fronts = _all(cache, FRONT_GROUP)
    staying = {
        (group["metadata"].get("namespace", ""), reference(group))
        for group in (*groups, *fronts)
        if group["metadata"].get("deletionTimestamp") is None
    }
    serving = {
        name_of(quorum) for quorum in quorums if quorum["metadata"].get("deletionTimestamp") is None
    }
    entities = [body for kind in ENTITIES for body in cache.ending(kind)]
    return any(
        deletion.waits_for_operator(
            body["metadata"],
            held=name_of(body) in staying,
            drains=(body["metadata"].get("namespace", ""), reference(body)) in serving,
        )
        for body in (*groups, *quorums, *fronts, *entities)
    )


def _all(cache: Cache, kind: Kind) -> list[Body]:
    found = (cache.get(kind, *name) for name in cache.names(kind))
    return [body for body in found if body is not None]
