"""Groups whose resource is gone: nobody is sent there any more.

The controllers' streams name every group that they know, so a group whose resource was deleted
while no operator ran is found when one starts. That a resource is gone is read from the API server
itself, not from the cache: a list or a watch that lacks it proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin_client.errors import AdminRefusedError, QuorumUnreachableError
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from gantry_protocol.process import log

from gantry_operator import names
from gantry_operator.api.errors import NotFound
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, STATEFULSET, Kind
from gantry_operator.plan.deletion import has_departed

if TYPE_CHECKING:
    from gantry_protocol.admin_client.admin import Admin

    from gantry_operator.api.protocol import Api
    from gantry_operator.cache import Cache, Key
    from gantry_operator.plan.observed import Body
    from gantry_operator.quorums.directory import Directory

_log = log.get("departed")


async def retire(api: Api, cache: Cache, directory: Directory, key: Key) -> None:
    """Retires the group of a BrokerGroup that does not exist, wherever one is known.

    Raises:
        ApiError: the API server does not say whether it exists.
        QuorumUnreachableError: the controllers cannot be asked; the retirement stays due.
    """
    for namespace, controllers in cache.names(CONTROLLER_GROUP):
        if namespace != key.namespace:
            continue
        admin = directory.admin(namespace, controllers)
        for group in _groups_of(directory, key):
            await _retire(api, admin, key, group)


def _groups_of(directory: Directory, key: Key) -> list[str]:
    """The group of the resource's name, and those of its shards that the controllers have named."""
    named = {
        group
        for namespace, group in directory.known_groups()
        if namespace == key.namespace and names.resource_of(group) == key.name
    }
    return [key.name, *sorted(named - {key.name})]


async def _retire(api: Api, admin: Admin, key: Key, group: str) -> None:
    view = await admin.group(group)
    if isinstance(view, Unreachable):
        raise QuorumUnreachableError(view.reason)
    if isinstance(view, NotDeclared) or view.uid is None or view.retired:
        return
    owner = await _live(api, BROKER_GROUP, key.namespace, key.name)
    pods = await _live(api, STATEFULSET, key.namespace, names.broker_statefulset(key.name))
    if not has_departed(view, owner, pods):
        return
    try:
        await admin.retire(group, view.uid)
    except AdminRefusedError as error:  # somebody else has taken it over since
        _log.info("group kept", namespace=key.namespace, name=group, why=error)
    else:
        _log.info("group retired", namespace=key.namespace, name=group, uid=view.uid)


async def _live(api: Api, kind: Kind, namespace: str, name: str) -> Body | None:
    try:
        return await api.get(kind, namespace, name)
    except NotFound:
        return None
