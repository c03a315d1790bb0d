"""Specs that cannot be carried out: refused by the API server, or answered in status."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver.errors import StatusError
from gantry_operator.api.kinds import BROKER_GROUP, STATEFULSET
from gantry_operator.models import generate
from integration.operator.operator_world import World
from support import wrong_specs
from support.api_faults import Rule


@pytest.mark.parametrize("case", wrong_specs.REFUSED)
async def test_the_api_server_refuses_it(world: World, case: str) -> None:
    spec, words = wrong_specs.REFUSED[case]
    with pytest.raises(StatusError) as caught:
        world.group(**spec)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"storage": {"className": "fast"}}, "storage", id="class"),
        pytest.param({"controllerRef": {"name": "other"}}, "controllerRef.name is fixed", id="ref"),
    ],
)
async def test_the_api_server_refuses_a_change(
    world: World, change: dict[str, Any], words: str
) -> None:
    world.group(storage={"size": "20Gi"})
    with pytest.raises(StatusError) as caught:
        world.patch(BROKER_GROUP, "orders", {"spec": change})
    assert words in str(caught.value)
    world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 5}})


async def test_a_resource_from_before_a_rule_is_answered(world: World) -> None:
    """The stored resource may be older than the rule that it breaks."""
    for crd in generate.manifests().values():
        world.apply(without_rules(crd))
    world.group(replicas=3, replication={"minInSyncReplicas": 5})
    async with world.operator():
        world.example("controllergroup.yaml")
        await world.until(
            lambda: world.condition("Accepted")["reason"] == "InvalidSpec", "it is answered"
        )
        condition = world.condition("Accepted")
        assert condition["status"] == "False"
        assert "lower it or raise replicas" in condition["message"]
        assert condition["observedGeneration"] == 1
        assert world.get(STATEFULSET, "orders-broker") is None
        world.patch(BROKER_GROUP, "orders", {"spec": {"replication": {"minInSyncReplicas": 2}}})
        await world.settled()
        assert world.is_true("Accepted")


async def test_a_dangling_reference_is_answered_and_heals(world: World) -> None:
    async with world.operator():
        world.example("brokergroup.yaml")
        await world.until(
            lambda: world.condition("Accepted")["reason"] == "ControllerGroupNotFound", "answered"
        )
        assert "create it" in world.condition("Accepted")["message"]
        world.example("controllergroup.yaml")
        await world.settled()


async def test_what_the_api_server_does_not_take_is_answered(world: World) -> None:
    async with world.operator():
        await world.up()
        faults = world.cluster.api.faults
        faults.add(Rule(code=409, plural="statefulsets", count=1_000_000))
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
        await world.until(lambda: world.condition("Accepted")["reason"] == "ApiRefused", "answered")
        assert "StatefulSet orders-broker" in world.condition("Accepted")["message"]
        assert world.is_true("Available")
        faults.clear()
        await world.until(lambda: world.is_true("Accepted"), "it heals")


def without_rules(node: Any) -> Any:
    if isinstance(node, list):
        return [without_rules(child) for child in node]
    if isinstance(node, dict):
        kept = (item for item in node.items() if item[0] != "x-kubernetes-validations")
        return {key: without_rules(value) for key, value in kept}
    return node
