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
from gantry_operator.api.kinds import BROKER_GROUP, STATEFULSET
from gantry_operator.builders import broker_objects
from gantry_operator.models import BrokerGroup, ControllerGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"10\.7[78]\.\d{1,3}\.\d{1,3}")
_NETWORK = int(ipaddress.IPv4Address("10.128.0.0"))
_ADDRESSES = 32  # of one group, at most


class Founder:
    """A group to be copied.

    Args:
        bodies: all its objects.
        controllers: the resource of its quorum.
        image: the operator's default.
        known: what its quorum knows of it.
    """

    def __init__(self, bodies: list[Json], controllers: Json, image: str, known: Json) -> None:
        self._controllers = ControllerGroup.parse(controllers)
        self._image = image
        self._text = _encode([bodies, known])
        (group,) = (body for body in bodies if body["kind"] == BROKER_GROUP.kind)
        self._name: str = group["metadata"]["name"]
        own = {self._controllers.metadata.uid}
        self._uids = sorted(set(_UID.findall(self._text)) - own)
        self._addresses = sorted(set(_ADDRESS.findall(self._text)))
        assert len(self._addresses) <= _ADDRESSES, "room for them"
        self._hashes = self._hashed(bodies)

    def copy(self, name: str, number: int) -> tuple[list[Json], Json]:
        """The objects of the group that is called so, and what its quorum knows of it.

        Args:
            name: as long as the founder's.
            number: another one for each copy.
        """
        other = {self._name: name}
        other |= {uid: str(uuid.uuid5(uuid.UUID(uid), name)) for uid in self._uids}
        for place, address in enumerate(self._addresses):
            other[address] = str(ipaddress.IPv4Address(_NETWORK + number * _ADDRESSES + place))
        text = _replaced(self._text, other)
        text = _replaced(text, dict(zip(self._hashes, self._hashed(_decode(text)[0]), strict=True)))
        bodies = _decode(text)[0]
        before = next(body for body in bodies if body["kind"] == STATEFULSET.kind)
        after = statefulset_plan.revision_name(before)
        found: tuple[list[Json], Json] = _decode(
            _replaced(text, {before["status"]["updateRevision"]: after})
        )
        return found

    def _hashed(self, bodies: list[Json]) -> list[str]:
        """The hashes that the operator writes into the objects, in an order of their own."""
        (body,) = (body for body in bodies if body["kind"] == BROKER_GROUP.kind)
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
