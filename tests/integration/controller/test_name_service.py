"""What administrators tell the name service, at three real controllers.

Upstream's name servers each keep their own copy, so ``mqadmin`` writes to all of them and one that
was away does not hear of it. Here every word is given to one controller, a different one each time.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_controller.server import Controller
from gantry_protocol.command import RemotingCommand
from support.controller_quorum import CLUSTER, NAME, Caller, Quorum, until

ORDER = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Orders", "value": f"{NAME}:4"}
WIPED, WRITABLE = 4, 6


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[Quorum]:
    quorum = Quorum(tmp_path, snapshot_margin_entries=0)
    await quorum.start()
    yield quorum
    await quorum.stop()


async def report(caller: Caller, queues: int) -> None:
    """A broker of the old kind reports its topic, which may be written."""
    fields = {"brokerName": NAME, "brokerAddr": "h:1", "clusterName": CLUSTER, "brokerId": "0"}
    topics = {
        name: {
            "topicName": name,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": WRITABLE,
        }
        for name in ("Orders", "Other")
    }
    body = {"topicConfigSerializeWrapper": {"topicConfigTable": topics}}
    answer = await caller.call(103, fields, json.dumps(body).encode())
    assert answer.code == 0, answer


async def tell(
    quorum: Quorum,
    node: Controller,
    code: int,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    async with quorum.client(node) as caller:
        answer = await caller.call(code, ext, body)
    assert answer.code == 0, answer
    return answer


async def shown(quorum: Quorum) -> set[tuple[int, int, str | None]]:
    """Queues, perm and order in the route, as each controller shows them."""
    views = set()
    for node in quorum.running.values():
        route = json.loads((await tell(quorum, node, 105, {"topic": "Orders"})).body)
        (queue,) = route["queueDatas"]
        views.add((queue["writeQueueNums"], queue["perm"], route.get("orderTopicConf")))
    return views


async def test_words_of_administrators_hold_at_every_controller(quorum: Quorum) -> None:
    leader = await quorum.led()
    one, two = quorum.followers()
    named = {"brokerName": NAME}
    async with quorum.client(leader) as broker:
        await report(broker, 4)
        assert (await tell(quorum, one, 205, named)).ext == {"wipeTopicCount": "2"}
        await tell(quorum, two, 100, ORDER)
        await tell(quorum, leader, 318, body=b"orderMessageEnable=true\n")
        assert await shown(quorum) == {(4, WIPED, ORDER["value"])}
    # The broker restarts, with another number of queues, and reports to another controller.
    await until(lambda: not leader.machine.state.imports)
    async with quorum.client(one) as broker:
        await report(broker, 8)
    assert await shown(quorum) == {(8, WIPED, ORDER["value"])}
    # The leader is lost and back; another restarts from a snapshot.
    lost = leader.node.node_id
    await quorum.stop(lost)
    await quorum.led()
    await quorum.start(lost)
    restarted = one.node.node_id
    await one.node.snapshots.take()
    await quorum.stop(restarted)
    await quorum.start(restarted)
    await quorum.led()
    assert await shown(quorum) == {(8, WIPED, ORDER["value"])}
    await tell(quorum, quorum.running[restarted], 327, named)
    await tell(quorum, quorum.running[lost], 102, ORDER)
    assert await shown(quorum) == {(8, WRITABLE, None)}
