"""Sabotages that the local API server can be told of, beside an operator that runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_operator.api.kinds import CONTROLLER_GROUP
from integration.operator.operator_world import World
from support import wrong_manifests
from support.beside_sabotage import both_are_well, goes_on, is_answered
from support.contract_api import ContractApi
from support.sabotage import NEIGHBOUR, SABOTAGES, VICTIM, Scene, group

CASES = (
    "a webhook refuses the StatefulSet",
    "a webhook refuses a step",
    "500 for one object",
    "a webhook refuses labels of pods",
    "a webhook refuses the status",
    "a webhook refuses the quorum's Secrets",
    "a webhook refuses a user's Secret",
    "a name of somebody else",
    "a finalizer of somebody else",
    "a pod that never ends",
    "a foreign container",
)


@pytest.fixture
async def api(world: World) -> AsyncIterator[ContractApi]:
    """A client of the API server, whose operator has two groups."""
    async with world.operator(), ContractApi(world.kubeconfig) as client:
        world.example("controllergroup.yaml", replicas=1)
        spare = {"apiVersion": CONTROLLER_GROUP.api_version, "kind": CONTROLLER_GROUP.kind}
        name = {"metadata": {"name": wrong_manifests.SPARE}}
        world.apply(spare | name | {"spec": {"replicas": 1, "paused": True}})
        world.group(VICTIM, **group(2)["spec"])
        world.group(NEIGHBOUR, **group(1)["spec"])
        yield client


@pytest.mark.parametrize("case", CASES)
async def test_a_sabotage_is_answered(world: World, api: ContractApi, case: str) -> None:
    sabotage = SABOTAGES[case]
    await both_are_well(api)
    async with sabotage.does(Scene(api, world.cluster.api, Path())):
        await is_answered(api, sabotage)
        await goes_on(api, VICTIM, labels=sabotage.labels, status=sabotage.status)
        await goes_on(api, NEIGHBOUR)
    await both_are_well(api)
