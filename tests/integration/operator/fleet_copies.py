"""Copies of a broker group that an operator has made, as if it had made each of them.

Thousands of groups that are made one after the other cost the API server's stand-in far more than
the operator that is measured. So a few are made, and the others are copies: names, uids, addresses
and the hashes that follow from them are other ones. An operator that starts afterwards has nothing
to write about them, or it would say what the copy has wrong.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
from gantry_local.controllers import statefulset_plan
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, STATEFULSET
from gantry_operator.builders import broker_objects
from gantry_operator.models import BrokerGroup, ControllerGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.operator.operator_world import World

Json = dict[str, Any]
HOUSEKEEPING = frozenset({"leases", "events"})
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"10\.7[78]\.\d{1,3}\.\d{1,3}")
_NETWORK = int(ipaddress.IPv4Address("10.128.0.0"))
_ADDRESSES = 32  # of one group, at most


class Founder:
    """A group to be copied, and its world.

    Args:
        world: where it is.
        name: its name.
        image: the operator's default.
    """

    def __init__(self, world: World, name: str, image: str) -> None:
        self._world = world
        self._name = name
        self._image = image
        self._controllers = ControllerGroup.parse(world.require(CONTROLLER_GROUP, "gantry"))
        store = world.cluster.registry.store
        records = [
            record
            for resource in store.resources()
            for record in store.records(resource, world.namespace)
            if name in record.key[1] and resource[1] not in HOUSEKEEPING
        ]
        self._resources = [record.resource for record in records]
        bodies = [record.obj for record in records]
        known = {key: part for key, part in world.quorum.groups[name].items() if key != "fenced"}
        kinds = [body["kind"] for body in bodies]
        self._group, self._set = kinds.index(BROKER_GROUP.kind), kinds.index(STATEFULSET.kind)
        self._texts = [_encode(one) for one in [*bodies, known]]
        everything, own = "\n".join(self._texts), {self._controllers.metadata.uid}
        self._uids = sorted(set(_UID.findall(everything)) - own)
        self._addresses = sorted(set(_ADDRESS.findall(everything)))
        assert len(self._addresses) <= _ADDRESSES, "room for them"
        self._hashes = self._hashed(bodies[self._group])
        self._revision = statefulset_plan.revision_name(bodies[self._set])

    def settle(self, name: str, number: int) -> None:
        """Puts a copy into the world; see `copy`."""
        bodies, self._world.quorum.groups[name] = self.copy(name, number)
        store = self._world.cluster.registry.store
        for resource, body in zip(self._resources, bodies, strict=True):
            store.put(resource, (self._world.namespace, body["metadata"]["name"]), body)

    def copy(self, name: str, number: int) -> tuple[list[Json], Json]:
        """The objects of the group that is called so, and what its quorum knows of it.

        Args:
            name: as long as the founder's.
            number: another one for each copy.
        """
        other = {uid: str(uuid.uuid5(uuid.UUID(uid), name)) for uid in self._uids}
        for place, address in enumerate(self._addresses):
            other[address] = str(ipaddress.IPv4Address(_NETWORK + number * _ADDRESSES + place))
        other[self._name] = name
        texts = [_replaced(text, other) for text in self._texts]
        hashes = self._hashed(_decode(texts[self._group]))
        other = dict(zip(self._hashes, hashes, strict=True))
        texts = [_replaced(text, other) for text in texts]
        before = _replaced(self._revision, {self._name: name})
        other = {before: statefulset_plan.revision_name(_decode(texts[self._set]))}
        *bodies, known = (_decode(_replaced(text, other)) for text in texts)
        return bodies, known

    def _hashed(self, body: Json) -> list[str]:
        """The hashes that the operator writes into a group's objects, in an order of their own."""
        group = BrokerGroup.parse({key: body[key] for key in body if key != "status"})
        wished = broker_objects(
            group, self._controllers, image=self._image, replicas=group.spec.replicas
        )
        return list(_hashes(wished))


def _hashes(value: Any) -> Iterator[str]:
    """Values of annotations that end in ``-hash``."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key.endswith("-hash") and isinstance(part, str):
                yield part
            else:
                yield from _hashes(part)
    elif isinstance(value, list):
        for part in value:
            yield from _hashes(part)


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _decode(text: str) -> Any:
    return msgspec.json.decode(text)


def _replaced(text: str, other: dict[str, str]) -> str:
    """The text with other words; of two that begin alike the longer one counts."""
    for word in sorted(other, key=len, reverse=True):
        text = text.replace(word, other[word])
    return text
