"""A mapped topic on two real broker groups: its queues move under load, there and back."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.queue_map import GAP
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import pull_command, send_command
from support.loopback_controller import CLUSTER
from support.patience import PATIENCE_S
from support.two_groups import FAR, NEAR, TwoGroups, answered

TOPIC, GROUP, QUEUES = "mapped", "readers", 4
JAVA_5 = 479  # a client that knows static topics
JAVA_4 = 398
AT_LEAST = 60  # acknowledged messages of each queue in each stage

pytestmark = pytest.mark.timeout(300)


def as_java(command: RemotingCommand, version: int = JAVA_5) -> RemotingCommand:
    command.language, command.version = "JAVA", version
    return command


class Sender:
    """Sends to one queue, message after message, to one broker group whatever happens."""

    def __init__(self, client: RemotingClient, queue: int) -> None:
        self._client, self.queue = client, queue
        self.acknowledged: list[int] = []
        self.offsets: list[int] = []
        self.refused: list[str | None] = []

    async def run(self) -> None:
        for number in range(1_000_000):
            body = f"{self.queue}/{number}".encode()
            answer = await self._client.call(
                as_java(send_command(body, TOPIC, self.queue)), PATIENCE_S
            )
            if answer.code != ResponseCode.SUCCESS:
                self.refused.append(f"{number}: {answer.remark}")
                continue
            assert answer.ext is not None
            assert int(answer.ext["queueId"]) == self.queue
            self.offsets.append(int(answer.ext["queueOffset"]))
            self.acknowledged.append(number)


async def moved(cluster: TwoGroups, places: dict[int, str]) -> None:
    """Have queues move, and wait until they have."""
    status = await cluster.admin(
        "PUT",
        f"/v1/clusters/{CLUSTER}/queues/{TOPIC}",
        {"queues": QUEUES, "places": {str(number): group for number, group in places.items()}},
    )
    assert status == 200, status
    async with asyncio.timeout(PATIENCE_S):
        while True:
            ext = {"topic": TOPIC}
            route = await answered(
                cluster.name_server, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext)
            )
            found = json.loads(route.body)["topicQueueMappingByBroker"]
            at = {int(n): group for group, part in found.items() for n in part["currIdMap"]}
            if all(at.get(number) == group for number, group in places.items()):
                return
            await asyncio.sleep(0.05)


async def read_all(client: RemotingClient, queue: int, version: int = JAVA_5) -> list[str]:
    """Every message of a queue, as a client that follows the answers reads them."""
    found: list[str] = []
    offset = 0
    while True:
        command = pull_command(offset, TOPIC)
        assert command.ext is not None
        command.ext["queueId"] = str(queue)
        answer = await client.call(as_java(command, version), PATIENCE_S)
        assert answer.ext is not None, answer
        following = int(answer.ext["nextBeginOffset"])
        if answer.code == ResponseCode.SUCCESS:
            records = decode_records(answer.body)
            assert [record.queue_offset for record in records] == list(
                range(records[0].queue_offset, records[0].queue_offset + len(records))
            )
            found += [record.body.decode() for record in records]
        elif following == offset:
            assert answer.code == ResponseCode.PULL_NOT_FOUND, answer
            return found
        offset = following


async def offset_of(client: RemotingClient, queue: int, code: RequestCode) -> RemotingCommand:
    ext = {"topic": TOPIC, "queueId": str(queue), "consumerGroup": GROUP}
    return await client.call(as_java(request(code, ext)), PATIENCE_S)


async def test_queues_move_under_load_and_come_back(tmp_path: Path) -> None:
    async with TwoGroups(tmp_path) as cluster:
        for address in cluster.masters.values():
            await answered(address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        await moved(cluster, dict.fromkeys(range(QUEUES), NEAR))
        for address in cluster.masters.values():
            await answered(address, request(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC}))
        clients = {
            name: await RemotingClient().connect(cluster.masters[name]) for name in (NEAR, FAR)
        }
        # Two of them ask the group that their queue is at first, two the other one.
        senders = [Sender(clients[NEAR if queue % 2 else FAR], queue) for queue in range(QUEUES)]
        tasks = [asyncio.create_task(sender.run()) for sender in senders]

        async def stage(stages: int) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while any(len(sender.acknowledged) < stages * AT_LEAST for sender in senders):
                    for task in tasks:
                        assert not task.done(), task.exception()
                    await asyncio.sleep(0.05)

        await stage(1)
        await moved(cluster, {0: FAR, 1: FAR, 2: FAR})
        await stage(2)
        # A group is known where it has come to, whoever is asked, also behind a move.
        commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "1", "commitOffset": "50"}
        command = as_java(request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
        assert (await clients[NEAR].call(command, PATIENCE_S)).code == 0
        await moved(cluster, {0: NEAR, 1: NEAR, 3: FAR})
        await stage(3)
        for client in clients.values():
            answer = await offset_of(client, 1, RequestCode.QUERY_CONSUMER_OFFSET)
            assert (answer.code, answer.ext) == (0, {"offset": "50"})
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sender in senders:
            assert sender.refused == []
            assert sender.offsets == list(range(len(sender.offsets))), "one row of offsets"
            for client in clients.values():
                read = await read_all(client, sender.queue)
                sent = [f"{sender.queue}/{number}" for number in sender.acknowledged]
                assert read[: len(sent)] == sent
                assert len(read) - len(sent) <= 1  # one was not answered when the test ended
                minimum = await offset_of(client, sender.queue, RequestCode.GET_MIN_OFFSET)
                maximum = await offset_of(client, sender.queue, RequestCode.GET_MAX_OFFSET)
                assert (minimum.ext, maximum.ext) == ({"offset": "0"}, {"offset": str(len(read))})
        await clients_that_know_nothing_of_it(clients, senders)
        for client in clients.values():
            client.close()


async def clients_that_know_nothing_of_it(
    clients: dict[str, RemotingClient], senders: list[Sender]
) -> None:
    """Each message is at one of the groups, and what they send goes to a queue of that group."""
    seen: dict[int, list[str]] = defaultdict(list)
    for client in clients.values():
        for queue in range(QUEUES):
            seen[queue] += await read_all(client, queue, JAVA_4)
    for sender in senders:
        wanted = {f"{sender.queue}/{number}" for number in sender.acknowledged}
        got = seen[sender.queue]
        assert len(got) == len(set(got))
        assert wanted <= set(got)
    for name, own in ((NEAR, {0, 1}), (FAR, {2, 3})):
        for queue in range(QUEUES):
            command = as_java(send_command(b"old", TOPIC, queue), JAVA_4)
            answer = await clients[name].call(command, PATIENCE_S)
            assert answer.ext is not None
            assert answer.code == 0
            chosen = int(answer.ext["queueId"])
            assert chosen in own
            assert chosen == queue or queue not in own


async def test_a_queue_of_a_group_that_is_gone_begins_anew(tmp_path: Path) -> None:
    """And what that group holds is read again once it is back, at the offsets that it had."""
    async with TwoGroups(tmp_path) as cluster:
        for address in cluster.masters.values():
            await answered(address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        await moved(cluster, dict.fromkeys(range(QUEUES), FAR))
        near = await RemotingClient().connect(cluster.masters[NEAR])

        async def send(body: bytes) -> int:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    command = as_java(send_command(body, TOPIC, 0))
                    answer = await near.call(command, PATIENCE_S)
                    if answer.code == ResponseCode.SUCCESS:
                        assert answer.ext is not None
                        return int(answer.ext["queueOffset"])
                    await asyncio.sleep(0.1)

        assert [await send(b"%d" % number) for number in range(3)] == [0, 1, 2]
        cluster.end(FAR)
        path = f"/v1/groups/{CLUSTER}/{FAR}/retire"
        assert await cluster.admin("POST", path, {"uid": FAR}) == 200
        assert [await send(b"%d" % number) for number in (3, 4)] == [GAP, GAP + 1]
        assert await read_all(near, 0) == ["3", "4"]
        maximum = await offset_of(near, 0, RequestCode.GET_MAX_OFFSET)
        assert maximum.ext == {"offset": str(GAP + 2)}
        await cluster.start(FAR)
        async with asyncio.timeout(PATIENCE_S):
            while await read_all(near, 0) != ["0", "1", "2", "3", "4"]:
                await asyncio.sleep(0.2)
        near.close()
