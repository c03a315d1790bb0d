"""Fronts before brokers with a store port: service, another master, several at once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.front import FrontServer, FrontSettings
from gantry_broker.host.settings import BrokerSettings
from gantry_lab.bench.ports import free_ports
from gantry_protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    encode_body,
)
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import BrokerCluster, eventually, pull_command, send_command
from support.loopback_controller import CLUSTER, GROUP
from support.transactions import COMMIT, ROLLBACK, claim, half

HOSTS = ("127.77.8.1", "127.77.8.2", "127.77.8.3")


class StorageCluster(BrokerCluster):
    """Three brokers, each at an address of its own, with one port for stores."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.store_port = free_ports(1)[0]
        self.more: dict[str, Any] = {}

    def settings(self, number: int) -> BrokerSettings:
        more = {"bind": HOSTS[number], "store_port": self.store_port, **self.more}
        return BrokerSettings(**{**super().settings(number).model_dump(), **more})

    @asynccontextmanager
    async def front(self, **more: Any):
        """A front of the cluster; nothing about a directory is said to it."""
        settings = {
            "cluster": CLUSTER,
            "controllers": [self.controller.address],
            "first_port": free_ports(1)[0],
            "http_port": 0,
            "store_port": self.store_port,
        }
        server = FrontServer(FrontSettings(**{**settings, **more}))
        stop = asyncio.Event()
        task = asyncio.create_task(server.run(stop))
        try:
            yield server
        finally:
            stop.set()
            await task


@pytest.fixture
async def cluster(tmp_path: Path):
    async with StorageCluster(tmp_path) as made:
        yield made


async def ready(front: FrontServer) -> None:
    """It serves from the master's store."""
    await eventually(lambda: front.ready()[0] and GROUP in front.groups, "a master is named")
    await eventually(lambda: front.groups[GROUP].router.open_aside is not None, "it may answer")


async def client_of(front: FrontServer) -> RemotingClient:
    return await RemotingClient().connect(f"127.0.0.1:{front.groups[GROUP].port}")


async def sent(front: FrontServer, body: bytes) -> bool:
    """Whether a send was answered 0."""
    try:
        client = await client_of(front)
    except RemotingError:
        return False
    try:
        return (await client.call(send_command(body), timeout_s=3.0)).code == 0
    except RemotingError:
        return False
    finally:
        client.close()


async def bodies(front: FrontServer) -> list[bytes]:
    client = await client_of(front)
    found: list[bytes] = []
    while (answer := await client.call(pull_command(len(found)))).code == 0:
        found += [record.body for record in decode_records(answer.body)]
    client.close()
    return found


async def test_clients_are_served_from_the_masters_store(
    cluster: StorageCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    async with cluster.front() as front:
        await ready(front)
        client = await client_of(front)
        assert (await client.call(send_command(b"0"))).code == 0  # the topic is made by the master
        topics = cluster.master.group.store.topics
        await eventually(lambda: topics.lookup("orders") is not None, "the topic is there")
        served = front.groups[GROUP].served
        for number in range(1, 40):
            assert (await client.call(send_command(b"%d" % number))).code == 0
        assert await bodies(front) == [b"%d" % number for number in range(40)]
        assert front.groups[GROUP].served - served >= 39
        processor = cluster.master.member.processor
        assert processor is not None
        counted = processor.traffic.totals
        await eventually(lambda: counted() == (40, 40), "its master counts what it serves")
        group = pull_command(0).ext["consumerGroup"]
        assert processor.pulled.offset(group, "orders", 0) == 40
        ext = {"topic": "orders", "queueId": "0"}
        assert (await client.call(request(RequestCode.GET_MAX_OFFSET, ext))).ext == {"offset": "40"}
        waiting = asyncio.create_task(client.call(pull_command(40, wait_ms=5000)))
        await eventually(lambda: front.groups[GROUP].asides.parked == 1, "it waits at the front")
        assert await sent(front, b"40")
        assert [item.body for item in decode_records((await waiting).body)] == [b"40"]
        commit = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "7"}
        assert (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))).code == 0
        client.close()
        assert cluster.master.group.store.offsets.query("g", "orders", 0) == 7
    assert list(empty.iterdir()) == []


async def test_a_position_in_a_pull_reaches_the_master(cluster: StorageCluster) -> None:
    async with cluster.front() as front:
        await ready(front)
        client = await client_of(front)
        for number in range(4):
            assert (await client.call(send_command(b"%d" % number))).code == 0
        pull = pull_command(3)
        pull.ext = {**pull.ext, "commitOffset": "3"}
        pull.ext["sysFlag"] = str(int(pull.ext["sysFlag"]) | 1)
        assert (await client.call(pull)).code == 0
        offsets, group = cluster.master.group.store.offsets, pull.ext["consumerGroup"]
        await eventually(lambda: offsets.query(group, "orders", 0) == 3, "it is told")
        client.close()


async def test_a_full_disk_of_the_store_refuses_messages_and_serves_everything_else(
    cluster: StorageCluster,
) -> None:
    async with cluster.front() as front:
        await ready(front)
        client = await client_of(front)
        assert (await client.call(send_command(b"kept"))).code == 0
        for one in cluster.brokers.values():
            one.member._shared.disk_space.stop()  # or the next look finds the real disk
            one.member._shared.disk_space.has_room = False
        core = cluster.master.group.core
        assert core is not None
        assert core.serving is not None
        members = core.serving.members.values()
        await eventually(lambda: not any(one.has_room for one in members), "nobody may take over")
        disk = cluster.master.member._shared.disk_space
        disk.refusing = True
        store = front.groups[GROUP].connection.store
        await eventually(lambda: not store.state.is_offered, "the front is told")
        refused = await client.call(send_command(b"more"))
        assert (refused.code, "nearly full" in refused.remark) == (14, True)
        assert await bodies(front) == [b"kept"]
        disk.refusing = False
        await eventually(lambda: store.state.is_offered, "and told again")
        assert (await client.call(send_command(b"again"))).code == 0
        client.close()


async def test_another_master_is_found_and_nothing_acknowledged_is_lost(
    cluster: StorageCluster,
) -> None:
    async with cluster.front() as front:
        await ready(front)
        client = await client_of(front)
        acknowledged = []
        for number in range(20):
            assert (await client.call(send_command(b"%d" % number))).code == 0
            acknowledged.append(b"%d" % number)
        before = front.groups[GROUP].course.epoch
        await cluster.master.abort()
        for number in range(20, 40):  # on the same connection, which stays
            answer = await client.call(send_command(b"%d" % number), timeout_s=5.0)
            acknowledged += [b"%d" % number] if answer.code == 0 else []
        assert front.groups[GROUP].course.epoch > before
        assert len(acknowledged) >= 39
        await ready(front)
        client.close()
        found = await bodies(front)
        assert [body for body in acknowledged if found.count(body) != 1] == []
        assert front.groups[GROUP].connection.opened == 2


async def test_a_transaction_that_began_at_one_front_ends_at_another(
    cluster: StorageCluster,
) -> None:
    def end(began: RemotingCommand, outcome: int) -> RemotingCommand:
        ext = {name: str(value) for name, value in claim(began, outcome).items()}
        return request(RequestCode.END_TRANSACTION, ext | {"fromTransactionCheck": "true"})

    async with cluster.front() as front:
        await ready(front)
        client = await client_of(front)
        assert (await client.call(send_command(b"no transaction"))).code == 0
        began = []
        for body in (b"one", b"two"):
            command = send_command(body)
            command.ext |= {"f": "4", "i": half()["i"]}
            began.append(await client.call(command))
        assert (await client.call(end(began[0], COMMIT))).code == 0
        client.close()
    async with cluster.front() as front:
        await ready(front)
        client = await client_of(front)
        repeated = await client.call(end(began[0], ROLLBACK))
        assert (repeated.code, "has ended" in (repeated.remark or "")) == (0, True)
        assert (await client.call(end(began[1], COMMIT))).remark is None
        client.close()
        assert await bodies(front) == [b"no transaction", b"one", b"two"]


async def test_two_fronts_serve_at_once_and_so_does_the_master(cluster: StorageCluster) -> None:
    async with cluster.front() as one, cluster.front() as other:
        await ready(one)
        await ready(other)
        client = await RemotingClient().connect(cluster.master.group.address)
        assert await sent(one, b"a")
        assert await sent(other, b"b")
        assert (await client.call(send_command(b"c"))).code == 0
        client.close()
        assert await bodies(one) == await bodies(other) == [b"a", b"b", b"c"]


async def test_a_producer_connects_again_after_a_while_and_a_consumer_stays(
    cluster: StorageCluster,
) -> None:
    async with cluster.front(connection_age_s=0.5) as front:
        await ready(front)
        sender, reader = await client_of(front), await client_of(front)
        for client, consumes in ((sender, False), (reader, True)):
            assert (await client.call(heartbeat(consumes=consumes))).code == 0
        answered = 0
        with suppress(RemotingError):
            while answered < 50_000:
                assert (await sender.call(send_command(b"%d" % answered))).code == 0
                answered += 1
        await eventually(lambda: front.aged > 0, "it was ended since it was old")
        assert await bodies(front) == [b"%d" % number for number in range(answered)]
        await asyncio.sleep(1.0)
        assert (await reader.call(heartbeat(consumes=True))).code == 0
        reader.close()


def heartbeat(*, consumes: bool) -> RemotingCommand:
    consumer = ConsumerData(
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        consume_type="CONSUME_PASSIVELY",
        group_name="g",
        message_model="CLUSTERING",
        subscription_data_set=[SubscriptionData(topic="orders", sub_string="*")],
    )
    data = HeartbeatData(f"client-{consumes}", [ProducerData("p")], [consumer] if consumes else [])
    return request(RequestCode.HEART_BEAT, {}, encode_body(data))


async def test_a_port_that_somebody_has_is_tried_again(
    cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry_broker.front.server.PORT_RETRY_S", 0.1)
    port = free_ports(1)[0]
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(cluster.front(first_port=port))
        await ready(first)
        async with cluster.front(first_port=port) as second:
            await eventually(lambda: second.answered > 3, "it knows the group")
            assert second.groups == {}
            await stack.aclose()
            await ready(second)
            assert await sent(second, b"x")


async def test_who_asks_a_front_is_served_when_no_store_listens(cluster: StorageCluster) -> None:
    async with cluster.front(store_port=free_ports(1)[0]) as front:
        await eventually(lambda: front.ready()[0] and GROUP in front.groups, "a master is named")
        assert await sent(front, b"passed on")
        assert await bodies(front) == [b"passed on"]
        assert front.groups[GROUP].served == 0
        assert "nobody listens" in front.status()["groups"][0]["noStore"].lower()


async def test_a_group_beyond_the_ports_is_named_and_not_served(cluster: StorageCluster) -> None:
    for name in ("h", "i"):
        cluster.controller.declare(name=name)
    async with cluster.front(ports=2) as front:
        await ready(front)
        await eventually(lambda: sorted(front.groups) == [GROUP, "h"], "those with a port")
        assert front.status()["beyondPorts"] == ["i"]
        assert front.groups["h"].port == front.groups[GROUP].port + 1
        assert front.ready() == (True, "serves 2 groups; without a master yet: h")
