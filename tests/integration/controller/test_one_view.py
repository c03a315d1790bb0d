"""What separate name servers cannot do: after an acknowledged change nobody shows the older view.

Upstream's name servers each keep what brokers told them, so a client that asks another one may get
a route from before a change that was acknowledged to it. Here one writer changes a route over all
controllers in turn, and readers ask every controller all the while, each noting what had been
acknowledged before it asked. The leader is lost half-way.
"""

import asyncio
import json

from gantry_controller.server import Controller
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import RemotingError
from support.controller_quorum import CLUSTER, NAME, Quorum, WireBroker
from support.patience import PATIENCE_S

CHANGES = 120
READERS_PER_NODE = 3
TOPIC = "Orders"
NO_STATEMENT = (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY)


class Story:
    """The n-th change of the route gives the topic n queues to read."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.acknowledged = 0
        self.reads = dict.fromkeys(quorum.running, 0)
        self.over = False

    async def write(self) -> None:
        loser = await self.quorum.led()
        for queues in range(1, CHANGES + 1):
            if queues == CHANGES // 2:
                await self.quorum.stop(loser.node.node_id)
            while not await self._change(queues):
                await asyncio.sleep(0.01)
            self.acknowledged = queues
        self.over = True

    async def _change(self, queues: int) -> bool:
        nodes = list(self.quorum.running.values())
        ext = {
            "topic": TOPIC,
            "readQueueNums": str(queues),
            "writeQueueNums": "1",
            "perm": "6",
            "clusterName": CLUSTER,
            "brokerName": NAME,
        }
        try:
            async with self.quorum.client(nodes[queues % len(nodes)]) as caller:
                return (await caller.call(17, ext)).code == ResponseCode.SUCCESS
        except RemotingError:
            return False

    async def read(self, controller: Controller) -> None:
        """Until all is written, or this controller is gone."""
        number = controller.node.node_id
        async with self.quorum.client(controller) as caller:
            while not self.over:
                floor = self.acknowledged
                try:
                    answer = await caller.call(105, {"topic": TOPIC})
                except RemotingError:
                    assert number not in self.quorum.running
                    return
                if answer.code in NO_STATEMENT:
                    await asyncio.sleep(0.01)
                    continue
                shown = 0
                if answer.code == ResponseCode.SUCCESS:
                    shown = json.loads(answer.body)["queueDatas"][0]["readQueueNums"]
                assert shown >= floor, f"node {number} shows change {shown}, {floor} is known"
                self.reads[number] += 1


async def test_no_controller_shows_the_view_before_an_acknowledged_change(quorum: Quorum) -> None:
    await quorum.declare(1, routeAddress="10.96.0.7:10911")
    broker = WireBroker(quorum)
    await broker.start()
    story = Story(quorum)
    try:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            for controller in list(quorum.running.values()):
                for _ in range(READERS_PER_NODE):
                    tasks.create_task(story.read(controller))
            tasks.create_task(story.write())
    finally:
        await broker.kill()
    assert all(count > 10 for count in story.reads.values()), story.reads
