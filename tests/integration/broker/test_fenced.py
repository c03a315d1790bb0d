"""A member that is fenced: real brokers, and controllers that keep who is."""

from __future__ import annotations

from pathlib import Path

from gantry_broker.member.administration import role_name
from gantry_broker.member.readiness import FENCED
from gantry_controller.metadata.events import FenceMember, encode_event
from support.broker_cluster import (
    BrokerCluster,
    RunningBroker,
    bodies,
    eventually,
    pull_command,
    send_command,
)
from support.loopback_controller import CLUSTER, GROUP


def fence(cluster: BrokerCluster, broker: RunningBroker, *, on: bool = True) -> None:
    """As a person has it done by the admin API."""
    assert broker.group.core is not None
    watchman, group = cluster.controller.watchman, cluster.controller.group
    event = FenceMember(
        cluster=CLUSTER,
        name=GROUP,
        broker_id=broker.group.core.me,
        fenced=on,
        live=watchman.live_members(group),
    )
    results: list[object] = []
    cluster.controller.quorum.propose(encode_event(event), results.append)
    (result,) = results
    assert result.ok, result  # type: ignore[attr-defined]  # a result of the state machine


def is_fenced(broker: RunningBroker) -> bool:
    return broker.member.group is not None and role_name(broker.group) == "fenced"


async def send(cluster: BrokerCluster, *texts: bytes) -> None:
    client = await cluster.client(cluster.master)
    for text in texts:
        assert (await client.call(send_command(text))).code == 0


async def test_it_keeps_its_log_through_a_restart_and_catches_up_when_it_is_let_in(
    tmp_path: Path,
) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        await send(cluster, b"before")
        out = cluster.replicas_of()[0]
        number, end = cluster.number_of(out), cluster.master.group.store.log.end
        await eventually(lambda: out.group.store.log.end == end, "it has the first one")
        fence(cluster, out)
        await eventually(lambda: is_fenced(out), "it has heard of it")
        assert out.group.ready() == (False, FENCED)
        assert len(cluster.controller.group.sync_state_set) == 2
        await send(cluster, b"without it")
        assert out.group.store.log.end == end, "not a byte"
        await out.stop()
        again = cluster.boot(number)
        await eventually(lambda: is_fenced(again), "it is told when it registers")
        await send(cluster, b"still without it")
        assert again.group.store.log.end == end
        fence(cluster, again, on=False)
        await cluster.settled()
        assert again.group.store.log.end == cluster.master.group.store.log.end
        client = await cluster.client(cluster.master)
        found = bodies(await client.call(pull_command(0)))
        assert found == [b"before", b"without it", b"still without it"]


async def test_nobody_elects_it_though_all_others_die(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        await send(cluster, b"one")
        out = cluster.replicas_of()[0]
        fence(cluster, out)
        await eventually(lambda: is_fenced(out), "it has heard of it")
        others = [one for one in cluster.brokers.values() if one is not out]
        numbers = [cluster.number_of(one) for one in others]
        epoch = cluster.controller.group.master_epoch
        for other in (cluster.master, *(one for one in others if not one.is_master)):
            await other.abort()
            await eventually(
                lambda: cluster.controller.group.master_id != out.group.core.me,  # type: ignore[union-attr]  # it runs
                "somebody else leads, or nobody",
            )
        for number in numbers:
            del cluster.brokers[number]
        await eventually(
            lambda: (
                not any(
                    cluster.controller.watchman.is_alive(cluster.controller.group, member)
                    for member in cluster.controller.group.members
                    if member.broker_id != out.group.core.me  # type: ignore[union-attr]  # it runs
                )
            ),
            "the others are held to be gone",
        )
        assert is_fenced(out)
        assert cluster.controller.group.master_id != out.group.core.me  # type: ignore[union-attr]  # it runs
        for number in numbers:
            cluster.boot(number)
        await eventually(
            lambda: any(cluster.brokers[number].is_master for number in numbers), "one of them"
        )
        assert cluster.controller.group.master_epoch > epoch
        client = await cluster.client(cluster.master)
        assert bodies(await client.call(pull_command(0))) == [b"one"]
