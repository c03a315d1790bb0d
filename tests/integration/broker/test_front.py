"""A broker without a disk before storage processes: service, another master, another broker."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gantry_broker.host.front import FrontServer
from gantry_broker.host.settings import BrokerSettings
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import BrokerCluster, eventually, pull_command, send_command
from support.loopback_controller import CLUSTER, GROUP
from support.transactions import COMMIT, ROLLBACK, claim, half


class StorageCluster(BrokerCluster):
    """Three storage processes: clients are served by somebody else."""

    def settings(self, number: int) -> BrokerSettings:
        return super().settings(number).model_copy(update={"store_port": 0})

    @property
    def stores(self) -> list[str]:
        return [f"127.0.0.1:{one.member.store_port}" for one in self.brokers.values()]


@asynccontextmanager
async def front_of(stores: list[str]):
    """A broker of those storage processes; nothing about a directory is said to it."""
    server = FrontServer(
        BrokerSettings(group=GROUP, cluster=CLUSTER, store=stores, remoting_port=0, http_port=0)
    )
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
    await eventually(lambda: front.ready()[0], "a store is found")


async def client_of(front: FrontServer) -> RemotingClient:
    return await RemotingClient().connect(front.address)


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


async def test_clients_are_served_from_a_store_elsewhere(
    cluster: StorageCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    async with front_of(cluster.stores) as front:
        await ready(front)
        client = await client_of(front)
        waiting = asyncio.create_task(client.call(pull_command(0, wait_ms=5000)))
        for number in range(40):
            assert (await client.call(send_command(b"%d" % number))).code == 0
        assert await bodies(front) == [b"%d" % number for number in range(40)]
        woken = await waiting
        assert woken.code in (0, 17)  # the topic may not have been there yet
        ext = {"topic": "orders", "queueId": "0"}
        assert (await client.call(request(RequestCode.GET_MAX_OFFSET, ext))).ext == {"offset": "40"}
        commit = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "7"}
        assert (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))).code == 0
        client.close()
    committed = cluster.master.group.store.offsets
    assert committed.query("g", "orders", 0) == 7  # written on the way out
    assert list(empty.iterdir()) == []


async def test_a_full_disk_of_the_store_refuses_messages_and_serves_everything_else(
    cluster: StorageCluster,
) -> None:
    async with front_of(cluster.stores) as front:
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
        await eventually(lambda: front.connection.store.refusing, "the broker is told")
        refused = await client.call(send_command(b"more"))
        assert (refused.code, "nearly full" in refused.remark) == (14, True)
        assert await bodies(front) == [b"kept"]
        commit = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "1"}
        assert (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))).code == 0
        disk.refusing = False
        await eventually(lambda: not front.connection.store.refusing, "and told again")
        assert (await client.call(send_command(b"again"))).code == 0
        client.close()


async def test_another_master_is_found_and_nothing_acknowledged_is_lost(
    cluster: StorageCluster,
) -> None:
    async with front_of(cluster.stores) as front:
        await ready(front)
        acknowledged = [b"%d" % number for number in range(20) if await sent(front, b"%d" % number)]
        assert len(acknowledged) == 20
        before = front.connection.claim.epoch
        old = cluster.master
        await old.abort()
        await eventually(
            lambda: front.ready()[0] and front.connection.claim.epoch > before, "the next master"
        )
        for number in range(20, 30):
            body = b"%d" % number
            while not await sent(front, body):
                await asyncio.sleep(0.05)
            acknowledged.append(body)
        found = await bodies(front)
        assert [body for body in acknowledged if body not in found] == []
        assert front.connection.opened == 2


async def test_transactions_outlive_the_broker_they_began_at(cluster: StorageCluster) -> None:
    def end(began: RemotingCommand, outcome: int) -> RemotingCommand:
        ext = {name: str(value) for name, value in claim(began, outcome).items()}
        return request(RequestCode.END_TRANSACTION, ext | {"fromTransactionCheck": "true"})

    async with front_of(cluster.stores) as front:
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
    async with front_of(cluster.stores) as front:
        await ready(front)
        client = await client_of(front)
        repeated = await client.call(end(began[0], ROLLBACK))
        assert (repeated.code, "has ended" in (repeated.remark or "")) == (0, True)
        assert (await client.call(end(began[1], COMMIT))).remark is None
        client.close()
        assert await bodies(front) == [b"no transaction", b"one", b"two"]


async def test_a_second_broker_waits_until_the_first_is_gone(cluster: StorageCluster) -> None:
    async with front_of(cluster.stores) as second:
        async with front_of(cluster.stores) as first:
            await eventually(lambda: first.ready()[0] or second.ready()[0], "one is served")
            served, waits = (first, second) if first.ready()[0] else (second, first)
            await eventually(lambda: waits.connection.refused > 0, "the other is refused")
            assert not waits.ready()[0]
            assert await sent(served, b"x")
            if served is second:
                return
        await ready(second)
        assert await bodies(second) == [b"x"]


async def test_who_asks_a_storage_process_is_handed_on(cluster: StorageCluster) -> None:
    async with front_of(cluster.stores) as front:
        await ready(front)
        client = await cluster.client(cluster.master)
        assert (await client.call(send_command(b"by its route"))).code == 0
        assert await bodies(front) == [b"by its route"]


async def test_a_broker_of_another_group_is_refused(cluster: StorageCluster) -> None:
    settings = BrokerSettings(
        group="other", cluster=CLUSTER, store=cluster.stores, remoting_port=0, http_port=0
    )
    server, stop = FrontServer(settings), asyncio.Event()
    task = asyncio.create_task(server.run(stop))
    await eventually(lambda: server.connection.refused > 0, "it is refused")
    assert "you serve" in server.connection.reason or "not the master" in server.connection.reason
    stop.set()
    await task
