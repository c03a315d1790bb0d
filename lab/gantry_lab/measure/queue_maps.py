"""The cost of the queue maps of a million queues: `make measure-queue-maps`.

Prints one JSON object per figure, as benchmarks do. Three controllers hold the maps; a hundred
connections to one of them wait for news, as the masters of a hundred processes do.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from gantry_cli.output import print_json
from gantry_protocol.admin import GroupDeclaration, QueuesWish
from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.queue_maps import QueueMaps
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.queue_maps import GetQueueMapsRequestHeader
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX
from gantry_protocol.remoting.client import RemotingClient

from gantry_lab.bench.controller.quorum import ProcessQuorum
from gantry_lab.bench.results import line, machine

CLUSTER = "c"
GROUPS = 8
FOLLOWERS = 100
CHANGES = 5
ANSWER_S = 30.0


def say(metric: str, unit: str, values: list[float]) -> None:
    print_json(line("queue-maps", "gantry", metric, unit, values, digits=1))
    sys.stdout.flush()


async def asked(client: RemotingClient, known: QueueMaps, wait_ms: int) -> bytes:
    header = GetQueueMapsRequestHeader(CLUSTER, known.index, known.ended, wait_ms)
    command: RemotingCommand = request(RequestCode.GANTRY_GET_QUEUE_MAPS, to_ext(header))
    answer = await client.call(command, ANSWER_S)
    assert answer.code == 0, answer
    return answer.body


async def all_known(client: RemotingClient) -> QueueMaps:
    """The answer after which nothing is left to be told."""
    known = QueueMaps(0, 0)
    while True:
        known = decode_body(QueueMaps, await asked(client, known, 0))
        if not known.more:
            return known


async def make(quorum: ProcessQuorum, topics: int) -> None:
    for number in range(GROUPS):
        name = f"g{number}"
        wish = GroupDeclaration(uid=name, replicas=1, min_in_sync_replicas=1)
        status = await quorum.admin("PUT", f"/v1/groups/{CLUSTER}/{name}", wish.model_dump())
        assert status == 200, status
    began = time.monotonic()
    for number in range(topics):
        status = await put(quorum, f"t{number}", {})
        assert status == 200, status
    say("created_s", "s", [time.monotonic() - began])


async def put(quorum: ProcessQuorum, topic: str, places: dict[int, str]) -> int:
    wish = QueuesWish(queues=MAPPED_QUEUES_MAX, places=places)
    path = f"/v1/clusters/{CLUSTER}/queues/{topic}"
    return await quorum.admin("PUT", path, wish.model_dump(mode="json"))


async def pushes(quorum: ProcessQuorum) -> None:
    """From the wish of a move until each of those who wait knows it."""
    follower = next(node for node in quorum.nodes if node != quorum.leading)
    clients = [await RemotingClient().connect(quorum.address(follower)) for _ in range(FOLLOWERS)]
    began = time.monotonic()
    known = await all_known(clients[0])
    say("read_all_s", "s", [time.monotonic() - began])
    took: list[float] = []
    for number in range(CHANGES):
        waiting = [asyncio.create_task(asked(client, known, 5_000)) for client in clients]
        await asyncio.sleep(0.5)
        began = time.monotonic()
        assert await put(quorum, "t0", {number: f"g{number % GROUPS}", number + 9: "g7"}) == 200
        told = await asyncio.gather(*waiting)
        took.append((time.monotonic() - began) * 1000)
        assert set(told) == {told[0]}, "some were told something else"
        known = decode_body(QueueMaps, told[0])
        assert list(known.maps) == ["t0"]
    say("pushed_to_100_ms", "ms", took)
    for client in clients:
        client.close()


async def restart(quorum: ProcessQuorum) -> None:
    """From the start of a killed controller until it answers with all maps."""
    node = next(node for node in quorum.nodes if node != quorum.leading)
    took: list[float] = []
    for _ in range(3):
        await quorum.kill(node)
        began = time.monotonic()
        await quorum.start(node)
        while True:
            try:
                client = await RemotingClient().connect(quorum.address(node))
                await asked(client, QueueMaps(0, 0), 0)
            except Exception:  # noqa: BLE001 - it is not there yet
                await asyncio.sleep(0.02)
            else:
                client.close()
                break
        took.append(time.monotonic() - began)
    say("restart_s", "s", took)


async def main(queues: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with ProcessQuorum(Path(directory)) as quorum:
            empty = [quorum.rss_mb(node) for node in quorum.nodes]
            await make(quorum, -(-queues // MAPPED_QUEUES_MAX))
            await pushes(quorum)
            say("rss_empty_mb", "MB", empty)
            say("rss_mb", "MB", [quorum.rss_mb(node) for node in quorum.nodes])
            await restart(quorum)
    print_json({"bench": "queue-maps", "machine": machine()})


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
