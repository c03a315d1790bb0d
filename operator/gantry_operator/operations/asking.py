"""Wishes written into the API server, under its resourceVersion, and followed to their end.

Nothing is written that was decided on another resource than the one it is written to: whoever
changes the spec in between is read, and the wish is judged anew.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_operator import names
from gantry_operator.api.errors import ApiError, Conflict, NotFound
from gantry_operator.api.kinds import BROKER_GROUP
from gantry_operator.operations.wishes import End, summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_operator.api.protocol import Api, Body, ReadOnlyApi
    from gantry_operator.operations.wishes import SpecWish

LOOK_S = 0.5
ATTEMPTS = 10
"""Writes of the operator's status, between reading and writing, are as frequent as that at most."""


async def find_group(api: ReadOnlyApi, namespace: str, name: str) -> Body:
    """A BrokerGroup, live.

    Raises:
        GantryError: there is none, or it cannot be read.
    """
    try:
        return await api.get(BROKER_GROUP, namespace, name)
    except NotFound as error:
        raise GantryError(
            f"There is no BrokerGroup {name} in namespace {namespace}; see gantry kube status."
        ) from error
    except ApiError as error:
        raise GantryError(f"BrokerGroup {namespace}/{name} cannot be read: {error}.") from error


def wished(body: Body, wish: SpecWish) -> Body:
    """The manifest of a group with a wish in it, as its owner would have it in a file."""
    return {
        "apiVersion": BROKER_GROUP.api_version,
        "kind": BROKER_GROUP.kind,
        "metadata": {key: body["metadata"][key] for key in ("name", "namespace")},
        "spec": _merged(body.get("spec") or {}, wish.spec),
    }


def _merged(value: Body, patch: Body) -> Body:
    """A JSON merge patch (RFC 7386)."""
    result = dict(value)
    for key, part in patch.items():
        if part is None:
            result.pop(key, None)
        elif isinstance(part, dict):
            before = result.get(key)
            result[key] = _merged(before if isinstance(before, dict) else {}, part)
        else:
            result[key] = part
    return result


async def ask(api: Api, namespace: str, name: str, decide: Callable[[Body], SpecWish]) -> SpecWish:
    """Writes a wish, if it holds for the resource as it is then; the wish that was written.

    Raises:
        GantryError: it is refused.
    """
    for _ in range(ATTEMPTS):
        body = await find_group(api, namespace, name)
        wish = decide(body)
        if not wish.spec:
            return wish
        meta = {key: body["metadata"][key] for key in ("uid", "resourceVersion")}
        patch = {"metadata": meta, "spec": wish.spec}
        try:
            await api.merge(
                BROKER_GROUP, namespace, name, patch, manager=names.PEOPLE_FIELD_MANAGER
            )
        except Conflict:
            continue
        except ApiError as error:
            raise GantryError(
                f"BrokerGroup {namespace}/{name} was not changed: {error.message}."
            ) from error
        return wish
    raise GantryError(
        f"BrokerGroup {namespace}/{name} changes all the time, and was not changed: try again."
    )


async def follow(
    api: ReadOnlyApi, namespace: str, name: str, wish: SpecWish, tell: Callable[[str], None]
) -> End:
    """The end of a wish; each new line of the status is told meanwhile.

    Cancelled, it leaves nothing behind: the operator goes on.

    Raises:
        GantryError: the group is gone.
    """
    last = ""
    while True:
        body = await find_group(api, namespace, name)
        line = summary(body)
        if line and line != last:
            tell(line)
            last = line
        end = wish.ended(body)
        if end is not None:
            return end
        await asyncio.sleep(LOOK_S)
