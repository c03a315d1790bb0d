"""The template of a group at an API server: it rolls once, rests, and takes no name of ours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gantry_local.apiserver.errors import StatusError
from gantry_operator.api.kinds import BROKER_GROUP, STATEFULSET
from integration.operator.operator_world import World
from integration.operator.test_announced import planned
from integration.operator.test_steps import deletions, rolled
from support import template_cases

Json = dict[str, Any]


def pod_spec(world: World) -> Json:
    found: Json = world.require(STATEFULSET, "orders-broker")["spec"]["template"]["spec"]
    return found


def containers(world: World) -> list[str]:
    return [container["name"] for container in pod_spec(world)["containers"]]


async def test_additions_roll_through_once_and_go_again(world: World) -> None:
    async with world.operator(resync_interval_s=1.0):
        await world.up()
        plain, gone = pod_spec(world), deletions(world)
        template = {"template": {"spec": template_cases.FULL}}
        world.patch(BROKER_GROUP, "orders", {"spec": template})
        await world.until(lambda: len(gone) == 3 and rolled(world), "all pods are replaced")
        await world.settled()
        assert gone == ["orders-broker-2", "orders-broker-1", "orders-broker-0"]
        assert containers(world) == ["broker", "door", "agent"]
        live = pod_spec(world)
        assert [one["name"] for one in live["initContainers"]] == ["prepare"]
        assert {"name": "TZ", "value": "UTC"} in live["containers"][0]["env"]
        assert live["terminationGracePeriodSeconds"] == 60
        assert world.condition("Altered")["status"] == "", "it is the owner's, not somebody's"

        def version() -> str:
            text: str = world.require(STATEFULSET, "orders-broker")["metadata"]["resourceVersion"]
            return text

        before = version()
        await asyncio.sleep(2.5)  # at least two comparisons with what the API server made of it
        assert (version(), len(gone)) == (before, 3)
        gone.clear()
        world.patch(BROKER_GROUP, "orders", {"spec": {"template": None}})
        await world.until(lambda: len(gone) == 3 and rolled(world), "they are taken out again")
        await world.settled()
        assert pod_spec(world) == plain


async def test_a_plan_announces_what_a_template_costs_and_why_it_is_refused(world: World) -> None:
    async with world.operator():
        await world.up()
        found = await planned(world, template={"spec": template_cases.FULL})
        restarts = [name for step in found["course"]["steps"] for name in step["pods"]]
        assert restarts == ["orders-broker-2", "orders-broker-1", "orders-broker-0"]
        assert (await planned(world, template={"spec": {}}))["course"]["steps"] == []
        taken = await planned(world, template={"spec": template_cases.mounted("/var/lib/gantry")})
        assert taken["course"]["refused"] == "InvalidSpec"
        assert "choose another mountPath" in taken["course"]["message"]


def refusal(world: World, template: Json) -> str:
    """The API server's words to a group with this template."""
    with pytest.raises(StatusError) as caught:
        world.group("orders", template={"spec": template})
    return str(caught.value)


async def test_what_is_taken_is_refused_where_it_is_written(world: World) -> None:
    silent = [
        template for why, template in template_cases.REFUSED if why not in refusal(world, template)
    ]
    assert silent == []


async def test_whatever_else_may_be_asked_for_is_taken(world: World) -> None:
    for number, template in enumerate([template_cases.FULL, *template_cases.EDGES]):
        world.group(f"group-{number}", template={"spec": template})


async def test_what_is_not_of_its_shape_is_refused(world: World) -> None:
    twice = template_cases.env({"name": "A", "value": "1"}, {"name": "A", "value": "2"})
    for template, words in (
        ({"terminationGracePeriodSeconds": 29}, "should be greater than or equal to 30"),
        ({"securityContext": {"runAsUser": 0}}, "should be greater than or equal to 1"),
        (template_cases.volume(hostPath={"path": "/"}), "hostPath: field not declared"),
        (template_cases.mounted("/a/../var/lib/gantry"), "mountPath"),
        ({"volumes": [template_cases.SCRATCH] * 2}, "duplicate entries"),
        (twice, "duplicate entries"),
    ):
        assert words in refusal(world, template)
