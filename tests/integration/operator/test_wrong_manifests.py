"""Wrong manifests of every kind: refused by the API server, or answered by the operator."""

from __future__ import annotations

import asyncio
from typing import Any

from gantry_operator.api.kinds import BY_NAME
from integration.operator.operator_world import World
from support import wrong_manifests as wrong
from support.beside_sabotage import condition
from support.contract_api import ContractApi, Refused

Json = dict[str, Any]


async def apply(api: ContractApi, body: Json, **query: str) -> str:
    """The words of the refusal; empty for none."""
    path = BY_NAME[body["kind"]].path("default", body["metadata"]["name"])
    query = {"fieldManager": "one", "force": "true", "fieldValidation": "Strict"} | query
    try:
        await api.call("PATCH", path, body, kind="application/apply-patch+yaml", **query)
    except Refused as refused:
        return str(refused.message)
    return ""


async def test_wrong_manifests_are_refused_in_words(world: World) -> None:
    async with ContractApi(world.kubeconfig) as api:
        said = {
            name: await apply(api, case.manifest, dryRun="All")
            for name, case in wrong.REFUSED.items()
        }
    assert {
        name: text for name, text in said.items() if wrong.REFUSED[name].words not in text
    } == {}


async def test_what_is_taken_and_wrong_is_answered(world: World) -> None:
    async with world.operator(), ContractApi(world.kubeconfig) as api:
        world.example("controllergroup.yaml", replicas=1)
        spare = wrong.Wrong("ControllerGroup", "", {"replicas": 1, "paused": True}, wrong.SPARE)
        await apply(api, spare.manifest)
        for case in wrong.ANSWERED.values():
            for body in case.before:
                assert await apply(api, body) == ""
        await asyncio.sleep(1.1)  # who was there before is told by whole seconds
        for case in wrong.ANSWERED.values():
            assert await apply(api, case.manifest) == ""
        for case in wrong.ANSWERED.values():
            path = BY_NAME[case.kind].path("default", case.name)
            await condition(api, path, case.condition, case.reason, case.words)
