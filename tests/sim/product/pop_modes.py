"""An administrator of how a consumer group is given its queues, POP or pull, and its one member.

A mode that was answered 0 is the mode, whoever is master by then, until another one is set; one
that nobody answered may be it. The member is told its queues in a mode that can be: all of them
where it pulls, any of them where it pops, since it is alone.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    encode_body,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from sim.kernel.world import Violation
from sim.product.cluster import GROUP
from sim.product.line import Line
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from gantry_protocol.command import RemotingCommand
    from sim.product.cluster import Cluster, Node

MEMBERS_GROUP = "modal"
ANY_QUEUE = -1
_UNSET = ("PULL", 0)  # as nobody has set another one

Mode = tuple[str, int]  # and with how many others a member shares its queues


class PopModes(Clients):
    """See the module.

    Args:
        cluster: where.
        topic: whose queues are shared out.
        queues: how many it has.
    """

    unsettled = "an administrator of modes does not end"

    def __init__(self, cluster: Cluster, topic: str, queues: int) -> None:
        super().__init__(cluster)
        self._topic = topic
        self._queues = set(range(queues))
        self._possible: set[Mode] = {_UNSET}

    def start(self) -> None:
        """Begin."""
        self._cluster.client("pop-modes", self._run).boot()

    async def _run(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        member = HeartbeatData(
            node.name,
            [ProducerData("pop-modes")],
            [ConsumerData(MEMBERS_GROUP, subscription_data_set=[SubscriptionData(self._topic)])],
        )
        async with session(self._cluster.name_servers) as client:
            line = Line(client, greeting=(RequestCode.HEART_BEAT, encode_body(member)))
            while not self._stops:
                if rng.random() < 0.4:
                    await self._set(line, rng)
                await self._ask_all(line)
                await self._ask_own(line, node.name)
                await asyncio.sleep(rng.random())
            while not await self._ask_all(line):
                await asyncio.sleep(0.1)
        self._busy -= 1

    async def _set(self, line: Line, rng: Random) -> None:
        mode = rng.choice(["POP", "PULL"]), rng.choice([0, 1, 3])
        wish = {
            "topic": self._topic,
            "consumerGroup": MEMBERS_GROUP,
            "mode": mode[0],
            "popShareQueueNum": mode[1],
        }
        answer = await line.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(wish).encode())
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self._possible = {mode}
            self._cluster.world.count("mode-set")
        else:
            self._possible.add(mode)

    async def _ask_all(self, line: Line) -> bool:
        """Whether there was an answer. Raises Violation: the mode is what it cannot be."""
        answer = await line.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return False
        modes = json.loads(answer.body)["messageRequestModeMap"].get(self._topic, {})
        found = modes.get(MEMBERS_GROUP)
        mode = _UNSET if found is None else (found["mode"], found["popShareQueueNum"])
        if mode not in self._possible:
            raise Violation(f"the mode is {mode}, and can be {sorted(self._possible)} only")
        self._cluster.world.count("mode-told")
        return True

    async def _ask_own(self, line: Line, name: str) -> None:
        question = {"topic": self._topic, "consumerGroup": MEMBERS_GROUP, "clientId": name}
        answer = await line.ask(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(question).encode())
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self._judge(answer)

    def _judge(self, answer: RemotingCommand) -> None:
        """Raises Violation: it is told other queues than its own, or another mode."""
        found = json.loads(answer.body).get("messageQueueAssignments")
        if found is None:
            return  # nobody can say now: it keeps what it has
        modes = {one["mode"] for one in found}
        queues = sorted(one["messageQueue"]["queueId"] for one in found)
        wanted = {
            mode: [ANY_QUEUE] if mode == "POP" else sorted(self._queues)
            for mode, _ in self._possible
        }
        groups = {one["messageQueue"]["brokerName"] for one in found}
        if len(modes) != 1 or groups != {GROUP} or wanted.get(*modes) != queues:
            raise Violation(f"its only member is told {found} in {sorted(self._possible)}")
        self._cluster.world.count(f"assigned {modes.pop()}")
