"""What the API server refuses is told and tried again, step or not, and never at full speed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from gantry_operator.api.errors import ApiError, Denied, Unavailable
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, POD, SECRET, STATEFULSET
from gantry_operator.models import BrokerGroupStatus
from unit.operator.test_reconcile import ORDERS, World
from unit.operator.world import broker_world, member, pod, view

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
FOUR = view(*map(member, (1, 2, 3, 4)), replicas=4)
NO = Denied(403, "Forbidden", "admission webhook policy.example denied the request: frozen")
BROKEN = Unavailable(500, "InternalError", "Internal error occurred: it cannot be decoded")


class Looked(World):
    """A group that is looked at as it is arranged here."""

    def __init__(self, seen: Any) -> None:
        super().__init__()
        self.seen = seen
        self.admin.known = seen.view
        meta = {"uid": "bg-uid", "generation": seen.meta.generation}
        self.api.have(BROKER_GROUP, "orders", metadata=meta)
        self.observer.observe = self._observe  # type: ignore[method-assign]

    async def _observe(self, key: Any) -> Any:
        status = (self.api.find(BROKER_GROUP, "orders") or {}).get("status")
        previous = BrokerGroupStatus.model_validate(status) if status else None
        refusals = self.observer.refusals.get(key, ())
        return msgspec.structs.replace(
            self.seen, live_status=status, previous=previous, refusals=refusals
        )

    async def run(self, until_s: float, clock: Any) -> int:
        """Works for a while; returns the number of looks."""
        self.queue.add(ORDERS)
        looks = 0
        while clock < until_s and looks < 500:
            key = await self.queue.get()
            await self.reconciler.reconcile(key)
            self.queue.done(key)
            looks += 1
        return looks

    def accepted(self) -> tuple[str, str]:
        return accepted(self, BROKER_GROUP, "orders")


def accepted(world: World, kind: Any, name: str) -> tuple[str, str]:
    """Reason and message of the resource's Accepted."""
    body = world.api.find(kind, name) or {}
    (found,) = [c for c in body["status"]["conditions"] if c["type"] == "Accepted"]
    return found["reason"], found["message"]


async def test_a_step_that_is_refused_is_told_and_tried_later_each_time(looptime: Any) -> None:
    """Nothing else is refused meanwhile, so nothing else would find out that it is taken by now."""
    world = Looked(broker_world(known=FOUR, replicas=4))
    world.api.refuse("apply", STATEFULSET, NO)
    assert await world.run(60, looptime) < 20
    tried = world.api.calls.count("apply StatefulSet orders-broker")
    assert 5 < tried < 20
    assert world.accepted() == ("ApiRefused", f"StatefulSet orders-broker: {NO.message}")
    assert world.api.calls.count("status BrokerGroup orders") < 5, "it is told once"
    world.api.fault = lambda *_: None
    plain = world.api.apply

    async def takes(kind: Any, body: Any, **options: Any) -> Any:
        world.seen = broker_world()
        return await plain(kind, body, **options)

    world.api.apply = takes  # type: ignore[method-assign, assignment]
    world.queue.add(ORDERS)
    await asyncio.sleep(60)
    await world.settle()
    assert world.api.calls.count("apply StatefulSet orders-broker") > tried
    assert world.accepted()[0] == "Valid"


async def test_a_label_that_is_refused_is_told_and_stops_no_status(looptime: Any) -> None:
    pods = (pod(0, role=None), pod(1), pod(2))
    world = Looked(broker_world(pods=pods))
    world.api.have(POD, "orders-broker-0", metadata={"uid": "uid-0"})
    world.api.refuse("merge", POD, NO)
    assert await world.run(60, looptime) < 20
    assert world.accepted() == ("ApiRefused", f"Pod orders-broker-0: {NO.message}")


@pytest.mark.parametrize("error", [NO, BROKEN], ids=["refused", "broken"])
async def test_a_status_that_is_refused_is_told_by_an_event(error: ApiError, looptime: Any) -> None:
    world = Looked(broker_world())
    world.api.refuse("status", BROKER_GROUP, error)
    assert await world.run(60, looptime) < 20
    events = [body for (kind, _, _), body in world.api.objects.items() if kind == "Event"]
    (told,) = [event for event in events if event["reason"] == "ApiRefused"]
    assert told["message"] == f"The status cannot be written: {error.message}"


@pytest.mark.parametrize("error", [NO, BROKEN], ids=["refused", "broken"])
@pytest.mark.parametrize("verb", ["get", "create"])
async def test_a_secret_that_is_refused_is_told_by_its_quorum(
    verb: str, error: ApiError, looptime: Any
) -> None:
    """And not made again over one that is there; what else the quorum needs is made."""
    world = World()
    world.have(CONTROLLER_GROUP, "gantry", metadata={"generation": 1}, spec={})
    world.api.refuse(verb, SECRET, error)
    for _ in range(40):
        key = await world.queue.get()
        await world.reconciler.reconcile(key)
        world.queue.done(key)
        if looptime > 60:
            break
    assert looptime > 60, "it waits longer each time"
    assert accepted(world, CONTROLLER_GROUP, "gantry")[0] == "ApiRefused"
    words = accepted(world, CONTROLLER_GROUP, "gantry")[1]
    assert words.startswith("Secret gantry-")
    assert words.endswith(error.message)
    assert verb == "create" or "create Secret" not in " ".join(world.api.calls)
    assert world.api.find(STATEFULSET, "gantry-controller") is not None
    world.api.fault = lambda *_: None
    await asyncio.sleep(60)
    await world.settle()
    assert accepted(world, CONTROLLER_GROUP, "gantry")[0] == "Valid"
    assert world.api.find(SECRET, "gantry-admin") is not None


async def test_a_status_that_is_refused_for_a_moment_is_no_news(looptime: Any) -> None:
    world = Looked(broker_world())
    world.api.refuse("status", BROKER_GROUP, BROKEN, times=1)
    world.queue.add(ORDERS)
    await world.settle()
    await asyncio.sleep(60)
    await world.settle()
    assert world.accepted()[0] == "Valid"
    told = [body["reason"] for (kind, _, _), body in world.api.objects.items() if kind == "Event"]
    assert "ApiRefused" not in told
