"""Definitions that are older than the operator, as Helm leaves them behind at an upgrade."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from gantry_local.apiserver.admission import Options
from gantry_operator import names
from gantry_operator.api.errors import OldDefinitionsError
from gantry_operator.api.kinds import CRD, STATEFULSET
from gantry_protocol.process.runtime import _operating_error
from integration.operator.operator_world import World

GROUPS = "brokergroups.mq.gantry.dev"
WAITS_S = 3.0
Json = dict[str, Any]


def definition(world: World) -> Json:
    """That of BrokerGroup, as it is now."""
    resource = world.cluster.registry.catalogue.type(CRD.group, CRD.plural)
    return copy.deepcopy(world.cluster.registry.get(resource, "", GROUPS).obj)


def replace(world: World, wished: Json) -> None:
    """`kubectl replace`, whatever the version of the one before."""
    resource = world.cluster.registry.catalogue.type(CRD.group, CRD.plural)
    body = wished | {"metadata": definition(world)["metadata"]}
    world.cluster.registry.update(resource, "", GROUPS, body, Options(manager="helm"))


def without(wished: Json, field: str) -> Json:
    """An earlier definition, whose status had no such field."""
    found = copy.deepcopy(wished)
    for version in found["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"][field]
    return found


def told(caplog: pytest.LogCaptureFixture) -> list[Json]:
    """What the operator said of definitions."""
    records = [one for one in caplog.records if names.APPLY_DEFINITIONS in one.message]
    return [vars(one)["facts"] for one in records]


async def test_an_operator_waits_for_definitions_that_know_its_fields(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ours = definition(world)
    replace(world, without(ours, "image"))
    world.example("controllergroup.yaml")
    world.example("brokergroup.yaml")
    async with world.operator() as process:
        await world.until(lambda: told(caplog), "it says what is missing")
        assert told(caplog) == [{"missing": "BrokerGroup.status.image"}]
        await asyncio.sleep(WAITS_S)
        assert not process.done()
        assert world.all(STATEFULSET) == []
        replace(world, ours)
        await world.settled()


async def test_an_operator_ends_where_definitions_become_older(world: World) -> None:
    async with world.operator() as process:
        await world.up()
        replace(world, without(definition(world), "inSync"))
        world.group("orders", replicas=2)  # which changes its status
        await asyncio.wait({process}, timeout=60)
        error = process.exception()
    assert error is not None
    assert isinstance(_operating_error(error), OldDefinitionsError)
    assert "BrokerGroup is older than this operator" in str(_operating_error(error))
