"""The API server misbehaves; the operator loses nothing, never hangs, and ends when it must."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gantry_lab.bench.ports import free_ports
from gantry_local.apiserver.deletion import DeleteOptions
from gantry_operator import lease, names, resync, server
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CONTROLLER_GROUP,
    EVENT,
    LEASE,
    POD,
    SERVICE,
    STATEFULSET,
)
from gantry_operator.lease import LeaseLostError
from gantry_operator.resync import WatchFrozenError
from gantry_operator.settings import OperatorSettings
from gantry_operator.shell import WatchEndedError
from gantry_protocol.errors import ConfigError, PortInUseError
from integration.operator.operator_world import ROOT, World
from support.api_faults import Rule
from support.patience import PATIENCE_S


def replicas(world: World) -> int:
    live = world.get(STATEFULSET, "orders-broker")
    return 0 if live is None else int(live["spec"]["replicas"])


def only(error: BaseException) -> BaseException:
    """The one error inside nested groups."""
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return error


async def outcome(task: asyncio.Task[None]) -> BaseException:
    """What an operator ended with."""
    async with asyncio.timeout(PATIENCE_S):
        (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, BaseException)
    return only(result)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting times that a test can afford."""
    monkeypatch.setattr(resync, "GRACE_S", 0.2)
    monkeypatch.setattr(lease, "RETRY_S", 0.1)
    monkeypatch.setattr(lease, "LOOK_S", 0.1)
    monkeypatch.setattr(server, "START_RETRY_S", 0.1)


async def test_dropped_streams_are_taken_up_again(world: World) -> None:
    async with world.operator():
        await world.up()
        assert world.cluster.api.drop_watches() > 0
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 5}})
        await world.until(lambda: replicas(world) == 5, "the change is heard of")
        await world.settled()


async def test_a_deletion_in_the_gap_of_a_410_is_found(world: World) -> None:
    """At once, and not with the next comparison: the watch's new list is followed by another."""
    async with world.operator():
        await world.up()
        world.cluster.api.expire_watches()
        world.delete(SERVICE, "orders-master")  # no stream is open, and none reports it later
        await world.until(lambda: world.get(SERVICE, "orders-master"), "the service is made again")


@pytest.mark.usefixtures("hasty")
async def test_a_frozen_watch_ends_the_process(world: World) -> None:
    async with world.operator(resync_interval_s=1.0) as task:
        await world.up()
        world.cluster.api.silence_watches("services")

        async def touch() -> None:
            for turn in range(1000):
                patch = {"metadata": {"annotations": {"turn": str(turn)}}}
                world.patch(SERVICE, "orders-master", patch)
                await asyncio.sleep(0.1)

        touching = asyncio.create_task(touch())
        assert isinstance(await outcome(task), WatchFrozenError)
        touching.cancel()


async def test_an_error_in_a_stream_ends_the_process(world: World) -> None:
    async with world.operator() as task:
        await world.up()
        world.cluster.api.fail_watches(500, "brokergroups")
        assert isinstance(await outcome(task), WatchEndedError)
    async with world.operator():
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 2}})
        await world.until(lambda: replicas(world) == 2, "the next process goes on")


@pytest.mark.parametrize("code", [409, 429, 500])
async def test_refused_writes_are_tried_again(world: World, code: Any) -> None:
    for verb in ("create", "patch"):
        world.cluster.api.faults.add(Rule(code=code, verb=verb, count=3))
    async with world.operator():
        await world.up()
    assert not [rule for rule in world.cluster.api.faults.rules() if rule.verb == "patch"]


@pytest.mark.usefixtures("hasty")
async def test_an_outage_is_survived(world: World) -> None:
    world.cluster.api.outage(on=True)
    async with world.operator():
        await asyncio.sleep(0.3)
        world.cluster.api.outage(on=False)
        await world.up()
        world.cluster.api.outage(on=True)
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 5}})
        await asyncio.sleep(0.5)
        world.cluster.api.outage(on=False)
        await world.until(lambda: replicas(world) == 5, "the change is carried out")
        await world.settled()


@pytest.mark.usefixtures("hasty")
async def test_the_kinds_may_come_later(world: World) -> None:
    crds = ("apiextensions.k8s.io", "customresourcedefinitions")
    resource = world.cluster.registry.catalogue.type(*crds)
    bodies = [record.obj for record in world.cluster.registry.store.records(crds)]
    for body in bodies:
        name = body["metadata"]["name"]
        world.cluster.registry.delete(resource, "", name, DeleteOptions())
    async with world.operator() as task:
        await asyncio.sleep(0.5)
        assert not task.done()
        for body in bodies:
            meta = {"name": body["metadata"]["name"]}
            world.apply({**body, "metadata": meta, "status": {}})
        await world.up()


@pytest.mark.usefixtures("hasty")
async def test_one_of_two_operators_acts(world: World) -> None:
    def holder() -> str:
        spec = world.require(LEASE, "gantry-operator")["spec"]
        return str(spec.get("holderIdentity") or "")

    elected = {"leader_election": True, "lease_namespace": "default"}
    async with world.operator(name="first", **elected):
        await world.until(lambda: world.get(LEASE, "gantry-operator"), "the lease is taken")
        assert holder().startswith("first_")
        async with world.operator(name="second", **elected):
            await world.up()
            assert holder().startswith("first_")
    assert holder() == ""


@pytest.mark.usefixtures("hasty")
async def test_a_standby_does_what_clients_wait_for_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader may be on the node that was lost, and its Lease is good for a while."""
    monkeypatch.setattr(server, "WARM_UP_S", 0.1)

    def traffic(pod: str) -> str:
        labels: dict[str, str] = world.require(POD, pod)["metadata"]["labels"]
        return labels[names.LABEL_TRAFFIC]

    async with world.operator():
        await world.up()
    world.apply(
        {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": lease.NAME},
            "spec": {"holderIdentity": "lost", "leaseDurationSeconds": 3600},
        }
    )
    async with world.operator(name="standby", leader_election=True, lease_namespace="default"):
        before = world.require(BROKER_GROUP, "orders")["status"]
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 5}})
        world.quorum.lose("orders", "orders-broker-2")
        await world.until(lambda: traffic("orders-broker-2") == names.TRAFFIC_OFF, "it is left out")
        world.quorum.lose("orders")
        await world.until(lambda: traffic("orders-broker-2") == names.TRAFFIC_ON, "it is back")
        assert replicas(world) == 3
        assert world.require(BROKER_GROUP, "orders")["status"] == before


@pytest.mark.usefixtures("hasty")
async def test_the_other_one_takes_over(world: World) -> None:
    elected = {"leader_election": True, "lease_namespace": "default"}

    def holder() -> str:
        body = world.get(LEASE, "gantry-operator")
        return "" if body is None else str(body["spec"].get("holderIdentity") or "")

    async with world.operator(name="first", **elected):
        await world.up()
        second = world.operator(name="second", **elected)
        await second.__aenter__()
    try:
        await world.until(lambda: holder().startswith("second_"), "the lease changes hands")
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 5}})
        await world.until(lambda: replicas(world) == 5, "the second one acts")
    finally:
        await second.__aexit__(None, None, None)


@pytest.mark.usefixtures("hasty")
async def test_a_stolen_lease_ends_the_process(world: World) -> None:
    elected = {"leader_election": True, "lease_namespace": "default"}
    async with world.operator(**elected) as task:
        await world.up()
        world.patch(LEASE, "gantry-operator", {"spec": {"holderIdentity": "thief"}})
        assert isinstance(await outcome(task), LeaseLostError)
        before = replicas(world)
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 5}})
        await asyncio.sleep(0.5)
        assert replicas(world) == before
        assert world.require(LEASE, "gantry-operator")["spec"]["holderIdentity"] == "thief"


async def test_only_the_served_namespaces_are_touched(world: World) -> None:
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    async with world.operator(namespaces=("default",)):
        foreign = world.apply(
            {
                "apiVersion": BROKER_GROUP.api_version,
                "kind": "BrokerGroup",
                "metadata": {"name": "foreign", "namespace": "other"},
                "spec": {},
            }
        )
        await world.up()
        await asyncio.sleep(0.3)
        assert foreign["status"] == {"observedGeneration": -1}
        live = world.cluster.registry.store.get(
            (BROKER_GROUP.group, BROKER_GROUP.plural), ("other", "foreign")
        )
        assert live is not None
        assert live.obj["status"] == {"observedGeneration": -1}, "as whom nobody has looked at"


async def test_probes_and_metrics(world: World) -> None:
    (port,) = free_ports(1)
    async with world.operator(http_port=port), aiohttp.ClientSession() as session:
        await world.up()

        async def read(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

        status, text = await read("/livez")
        assert status == 200
        assert "1 broker groups, 1 controller groups" in text
        assert (await read("/readyz"))[0] == 200
        _, metrics = await read("/metrics")
        assert 'gantry_group_available{group="orders",namespace="default"} 1.0' in metrics
        assert 'gantry_group_in_sync_replicas{group="orders",namespace="default"} 3.0' in metrics
        assert "gantry_operator_leading 1.0" in metrics


async def test_an_operator_whose_definitions_are_missing_is_not_ready(world: World) -> None:
    """An upgrade that forgot one stops there, and the operator before it goes on."""
    (port,) = free_ports(1)
    name = "frontgroups.mq.gantry.dev"
    world.cluster.registry.delete(
        world.cluster.registry.catalogue.type("apiextensions.k8s.io", "customresourcedefinitions"),
        "",
        name,
        DeleteOptions(),
    )
    said = ""
    async with world.operator(http_port=port), aiohttp.ClientSession() as session:

        async def ready() -> bool:
            nonlocal said
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                    said = await response.text()
                    return response.status == 200
            return False

        async with asyncio.timeout(PATIENCE_S):
            while "starting" not in said:
                assert not await ready()
        world.cluster.load(ROOT / "crds" / "mq.gantry.dev_frontgroups.yaml")
        async with asyncio.timeout(PATIENCE_S):
            while not await ready():
                await asyncio.sleep(0.05)
        await world.up()


async def test_events_are_not_repeated_by_a_new_process(world: World) -> None:
    async with world.operator():
        await world.up()
    before = {body["metadata"]["name"] for body in world.all(EVENT)}
    async with world.operator():
        await world.until(
            lambda: world.is_true("Available", "gantry", CONTROLLER_GROUP), "it looked"
        )
        await asyncio.sleep(0.5)
    assert {body["metadata"]["name"] for body in world.all(EVENT)} == before


async def test_what_people_got_wrong_is_one_sentence(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --kubeconfig"):
        await server.serve(OperatorSettings(kubeconfig=tmp_path / "absent"), asyncio.Event())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = OperatorSettings(kubeconfig=world.kubeconfig, http_port=port)
        with pytest.raises(PortInUseError, match=str(port)):
            await server.serve(settings, asyncio.Event())
