"""Three real brokers and a controller on loopback: produce, fail over, catch up, hand over."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import aiohttp
import pytest
from gantry_broker.member import readiness
from gantry_protocol.bodies import EpochEntryCache, HaStatus, decode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import (
    BrokerCluster,
    RunningBroker,
    bodies,
    eventually,
    pull_command,
    send_command,
)


async def consume(client: RemotingClient, count: int) -> list[bytes]:
    """The first ``count`` messages of the queue."""
    found: list[bytes] = []
    while len(found) < count:
        answer = await client.call(pull_command(len(found), wait_ms=3_000), timeout_s=5)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), answer.remark
        found += bodies(answer)
    return found


def same_bytes(cluster: BrokerCluster) -> bool:
    """Whether all logs are equal."""
    logs = [broker.group.store.log for broker in cluster.brokers.values()]
    contents = {log.read(log.log_start, 1 << 20) for log in logs}
    return len(contents) == 1 and len({log.end for log in logs}) == 1


async def send_until_acknowledged(cluster: BrokerCluster, body: bytes) -> int:
    """Like a client: try any broker until one says 0; returns how many tries it took."""
    tries = 0
    while True:
        for broker in list(cluster.brokers.values()):
            tries += 1
            if broker.task.done() or broker.member.group is None:
                continue
            try:
                client = await RemotingClient().connect(broker.address, 1)
                try:
                    answer = await client.call(send_command(body), 3)
                finally:
                    client.close()
            except RemotingError:
                continue
            if answer.code == ResponseCode.SUCCESS:
                return tries
        await asyncio.sleep(0.02)


async def test_a_confirmed_record_is_on_every_disk(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        client = await cluster.client(cluster.master)
        answers = [await client.call(send_command(b"m%d" % n)) for n in range(5)]
        assert [answer.code for answer in answers] == [0] * 5
        assert same_bytes(cluster)
        assert await consume(client, 5) == [b"m%d" % n for n in range(5)]


async def test_a_replica_hands_its_clients_to_the_master(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        replica = cluster.replicas_of()[0]
        client = await cluster.client(replica)
        answers = await asyncio.gather(*(client.call(send_command(b"x")) for _ in range(20)))
        assert {answer.code for answer in answers} == {0}
        assert replica.member.router.spliced == 1
        assert await consume(client, 20) == [b"x"] * 20


async def test_a_long_poll_wakes_with_the_record(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        reader = await cluster.client(cluster.replicas_of()[0])
        writer = await cluster.client(cluster.master)
        await writer.call(send_command(b"first"))
        waiting = asyncio.create_task(reader.call(pull_command(1, wait_ms=10_000), 20))
        await eventually(
            lambda: (
                bool(cluster.master.member.processor)
                and cluster.master.member.processor.parked_pulls == 1
            ),
            "the pull is parked",
        )
        await writer.call(send_command(b"second"))
        assert bodies(await waiting) == [b"second"]


async def test_a_dead_master_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        client = await cluster.client(cluster.master)
        sent = [b"m%d" % n for n in range(10)]
        for body in sent:
            assert (await client.call(send_command(body))).code == 0
        old = cluster.master
        number = cluster.number_of(old)
        await old.abort()
        await send_until_acknowledged(cluster, b"after")
        assert cluster.master is not old
        reader = await cluster.client(cluster.master)
        assert (await consume(reader, 11))[:10] == sent
        cluster.boot(number)
        await cluster.settled()
        assert same_bytes(cluster)


async def test_a_commit_that_was_answered_outlives_its_master(tmp_path: Path) -> None:
    place = {"consumerGroup": "g", "topic": "orders", "queueId": "0"}
    async with BrokerCluster(tmp_path) as cluster:
        client = await cluster.client(cluster.master)
        assert (await client.call(send_command(b"x"))).code == 0
        for offset in range(1, 21):
            commit = {**place, "commitOffset": str(offset)}
            code = (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))).code
            assert code == 0
        await cluster.master.abort()
        await send_until_acknowledged(cluster, b"after")
        reader = await cluster.client(cluster.master)
        query = {**place, "setZeroIfNotFound": "false"}
        answer = await reader.call(request(RequestCode.QUERY_CONSUMER_OFFSET, query))
        assert answer.ext == {"offset": "20"}


async def test_replicas_stay_ready_between_two_masters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold clients meanwhile; if all said no, the group's address would lead nowhere."""
    async with BrokerCluster(tmp_path) as cluster:
        replicas = cluster.replicas_of()
        assert all(replica.is_ready for replica in replicas)
        await cluster.controller.stop()
        old = cluster.master
        del cluster.brokers[cluster.number_of(old)]
        await old.abort()
        reasons = {"between two masters"}
        await eventually(
            lambda: {replica.group.ready()[1] for replica in replicas} == reasons,
            "they see that the master is gone",
        )
        assert all(replica.is_ready for replica in replicas)
        monkeypatch.setattr(readiness, "BETWEEN_MASTERS_S", 0.0)
        assert not any(replica.is_ready for replica in replicas)


async def test_a_client_of_a_replica_gets_over_the_masters_death(tmp_path: Path) -> None:
    """Its connection stays, and leads to the new master."""
    async with BrokerCluster(tmp_path) as cluster:
        replica = cluster.replicas_of()[0]
        client = await cluster.client(replica)
        assert (await client.call(send_command(b"a"))).code == 0
        old = cluster.master
        del cluster.brokers[cluster.number_of(old)]
        await old.abort()
        assert (await client.call(send_command(b"b"))).code == 0


async def test_a_leaving_master_hands_over_without_an_error(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        old = cluster.master
        client = await cluster.client(old)
        answers: list[RemotingCommand] = []

        async def produce() -> None:
            while True:
                answers.append(await client.call(send_command(b"%d" % len(answers))))

        producing = asyncio.create_task(produce())
        await eventually(lambda: len(answers) > 20, "the producer is at work")
        epoch = old.group.epoch
        number = cluster.number_of(old)
        await old.stop()
        with pytest.raises(RemotingError):
            await producing  # the old process has ended
        assert {answer.code for answer in answers} == {0}
        assert cluster.controller.group.master_epoch == epoch + 1
        cluster.boot(number)
        await cluster.settled()
        reader = await cluster.client(cluster.master)
        assert (await consume(reader, len(answers)))[: len(answers)] == [
            b"%d" % number for number in range(len(answers))
        ]


async def test_sends_during_a_hand_over_wait_and_are_acknowledged(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        old = cluster.master
        clients = [await cluster.client(old) for _ in range(5)]
        await clients[0].call(send_command(b"warm"))
        old.stop_event.set()
        old.group.leave()
        answers = await asyncio.gather(*(one.call(send_command(b"x")) for one in clients))
        assert {answer.code for answer in answers} == {0}


async def test_a_leaving_replica_costs_nothing(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        epoch = cluster.controller.group.master_epoch
        replica = cluster.replicas_of()[0]
        number = cluster.number_of(replica)
        await replica.stop()
        assert len(cluster.controller.group.sync_state_set) == 2
        client = await cluster.client(cluster.master)
        assert (await client.call(send_command(b"x"))).code == 0
        cluster.boot(number)
        await cluster.settled()
        assert cluster.controller.group.master_epoch == epoch


async def test_a_group_that_stops_together_comes_back_together(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        client = await cluster.client(cluster.master)
        assert (await client.call(send_command(b"kept"))).code == 0
        await asyncio.gather(*(broker.stop() for broker in cluster.brokers.values()))
        for number in range(3):
            cluster.boot(number)
        await cluster.settled()
        reader = await cluster.client(cluster.master)
        assert await consume(reader, 1) == [b"kept"]


async def test_an_empty_volume_gets_a_new_id_and_the_whole_log(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        client = await cluster.client(cluster.master)
        for number in range(20):
            assert (await client.call(send_command(b"m%d" % number))).code == 0
        replica = cluster.replicas_of()[0]
        number = cluster.number_of(replica)
        await replica.stop()
        shutil.rmtree(tmp_path / str(number))
        cluster.boot(number)
        await cluster.settled()
        assert max(one.broker_id for one in cluster.controller.group.members) == 4
        assert same_bytes(cluster)


async def test_writes_are_refused_below_the_minimum(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        master = cluster.master
        client = await cluster.client(master)
        assert (await client.call(send_command(b"x"))).code == 0
        end = master.group.store.log.end
        for replica in cluster.replicas_of():
            await replica.abort()
        await eventually(
            lambda: len(cluster.controller.group.sync_state_set) == 1, "the set shrinks"
        )
        answer = await client.call(send_command(b"y"))
        assert (answer.code, answer.remark) == (1, "in-sync replicas not enough")
        assert master.group.store.log.end == end, "nothing was appended"


async def test_topics_are_decided_by_the_controller_and_known_to_every_replica(
    tmp_path: Path,
) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        client = await cluster.client(cluster.master)
        await client.call(send_command(b"x", topic="invented"))
        assert cluster.master.group.store.topics.lookup("invented") is not None
        route = await (await RemotingClient().connect(cluster.controller.address)).call(
            request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "invented"})
        )
        assert route.code == 0
        await eventually(
            lambda: all(
                one.group.store.topics.lookup("invented") is not None
                for one in cluster.brokers.values()
            ),
            "every replica knows the topic",
        )


async def test_every_member_tells_about_itself(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        client = await cluster.client(cluster.master)
        await client.call(send_command(b"x"))
        for broker in cluster.brokers.values():
            await eventually(
                lambda core=broker.group.core: len(core.view.sync_state_set) == 3,
                "every member has read the set",
            )
            direct = await cluster.client(broker)
            epochs = await direct.call(request(RequestCode.GET_BROKER_EPOCH_CACHE))
            found = decode_body(EpochEntryCache, epochs.body)
            assert [(one.epoch, one.start_offset) for one in found.epoch_list] == [(1, 0)]
            assert (found.broker_id == 0) == broker.is_master
            ha = decode_body(
                HaStatus, (await direct.call(request(RequestCode.GET_BROKER_HA_STATUS))).body
            )
            assert ha.master == broker.is_master
            await _check_http(broker)


async def _check_http(broker: RunningBroker) -> None:
    base = f"http://127.0.0.1:{broker.server.http_port}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/readyz") as response:
            assert response.status == 200
        async with session.get(f"{base}/status") as response:
            status = await response.json()
            assert status["role"] == ("master" if broker.is_master else "replica")
            assert status["syncStateSet"] == [1, 2, 3]
            assert status["inSync"] is True
        async with session.get(f"{base}/metrics") as response:
            text = await response.text()
            assert "gantry_broker_log_offset_bytes" in text
            assert f'role="{status["role"]}"' in text


async def test_a_sole_broker_serves_and_restarts(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path, replicas=1, min_in_sync=1) as cluster:
        client = await cluster.client(cluster.master)
        assert (await client.call(send_command(b"one"))).code == 0
        await cluster.brokers[0].stop()
        cluster.boot(0)
        await cluster.settled()
        again = await cluster.client(cluster.master)
        assert (await again.call(send_command(b"two"))).code == 0
        assert await consume(again, 2) == [b"one", b"two"]
        assert cluster.controller.group.master_epoch == 2
