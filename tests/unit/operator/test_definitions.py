"""What the definitions that an API server has lack of those of this version."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterable
from typing import Any

import pytest
from gantry_operator import definitions
from gantry_operator.api.errors import Denied, NotFound, Undeclared, error_of
from gantry_operator.api.kinds import CUSTOM, Kind
from gantry_operator.definitions import lacking_fields, wait_for_definitions
from gantry_operator.models.generate import KINDS, CrdKind
from gantry_operator.models.schema import model_paths, paths, structural

Json = dict[str, Any]
OURS = {kind.model.__name__: structural(kind.model) for kind in KINDS}


class Server:
    """An API server by what it says in turn; the last word is repeated."""

    def __init__(self, *said: Json | Exception, served: Iterable[Kind] = CUSTOM) -> None:
        self.said, self.served = list(said), set(served)
        self.asked = 0

    async def is_served(self, kind: Kind) -> bool:
        return kind in self.served

    async def schemas(self, group: str, version: str) -> Json:
        assert (group, version) == ("mq.gantry.dev", "v1alpha1")
        self.asked += 1
        found = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "LOOK_AGAIN_S", 0)


def without(kind: str, *way: str) -> Json:
    """Our schemas, one field short."""
    found = copy.deepcopy(OURS)
    *above, last = way
    below: Json = found[kind]
    for name in above:
        below = below["properties"][name]
        below = below.get("items", below)
    del below["properties"][last]
    return found


def test_our_own_definitions_lack_nothing() -> None:
    assert lacking_fields(OURS) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.plural))
def test_the_paths_of_a_model_are_those_of_its_schema(kind: CrdKind) -> None:
    parts = ("spec", "status")
    found = {one for one in model_paths(kind.model) if one.startswith(parts)}
    assert found == {one for one in paths(structural(kind.model)) if one.startswith(parts)}
    assert len(found) > 20


def test_newer_definitions_lack_nothing() -> None:
    newer = copy.deepcopy(OURS)
    newer["Topic"]["properties"]["spec"]["properties"]["later"] = {"type": "string", "default": "x"}
    assert lacking_fields(newer) == []


def test_a_missing_field_is_named_wherever_it_is() -> None:
    assert lacking_fields(without("BrokerGroup", "status", "image")) == ["BrokerGroup.status.image"]
    found = lacking_fields(without("BrokerGroup", "status", "members", "brokerId"))
    assert found == ["BrokerGroup.status.members.brokerId"]
    found = lacking_fields(without("BrokerGroup", "spec", "storage"))
    assert found[:2] == ["BrokerGroup.spec.storage", "BrokerGroup.spec.storage.className"]


def test_a_kind_that_is_not_published_lacks_all() -> None:
    rest = {name: schema for name, schema in OURS.items() if name != "Topic"}
    assert {one.partition(".")[0] for one in lacking_fields(rest)} == {"Topic"}


async def test_it_waits_until_nothing_is_missing() -> None:
    old = without("BrokerGroup", "status", "image")
    server = Server(old, old, {}, OURS)
    async with asyncio.timeout(5):
        await wait_for_definitions(server)  # type: ignore[arg-type]
    assert server.asked == 4


async def test_a_kind_that_is_not_served_is_waited_for() -> None:
    server = Server(OURS, served=CUSTOM[1:])
    waiting = asyncio.create_task(wait_for_definitions(server))  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    assert (waiting.done(), server.asked) == (False, 0)
    server.served.add(CUSTOM[0])
    async with asyncio.timeout(5):
        await waiting


@pytest.mark.parametrize("error", [Denied(403, "Forbidden", "no"), NotFound(404, "NotFound", "no")])
async def test_where_schemas_are_not_to_be_read_nothing_is_waited_for(error: Exception) -> None:
    async with asyncio.timeout(5):
        await wait_for_definitions(Server(error))  # type: ignore[arg-type]


def test_a_refused_field_is_not_a_fault_that_may_pass() -> None:
    message = "failed to create typed patch object (…): .status.image: field not declared in schema"
    body = json.dumps({"kind": "Status", "message": message, "code": 500}).encode()
    assert type(error_of(500, body, {})) is Undeclared
    assert type(error_of(503, body, {})) is not Undeclared
