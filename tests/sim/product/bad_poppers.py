"""Consumers by POP who ask for what cannot be, or show receipts that they were not given.

Each is refused for what it is, with the code that its clients know, whoever is master; nothing is
handed out or acknowledged by it.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, NamedTuple

from gantry_broker.clients.core.pop.receipts import BATCH_MAX
from gantry_cli.client.session import session
from gantry_protocol.bodies import SubscriptionGroupConfig, encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from sim.kernel.world import Violation
from sim.product.cluster import GROUP
from sim.product.line import Line
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from sim.product.cluster import Cluster, Node

BARRED = "barred"  # a consumer group that may not consume
STRANGER = "pop-strangers"
WITHIN_S = 4.0
BAD_SQL = (
    "a >", "a > > 1", "(a = 1", "a = 1)", "a BETWEEN 1", "a BETWEEN 2 OR 3", "a IN 1", "a IN ()",
    "a IN ('x', 1)", "a IS 5", "a IS NOT", "NOT", "a CONTAINS 5", "a NOT = 1", "'x", "a = 'x",
    "a = 1 b", "a ~ 1", "/* a", "1 = ", "a AND", "= 1", "a STARTSWITH b",
)  # fmt: skip
PASSING = (  # by what happens to brokers meanwhile
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
)


class _Bad(NamedTuple):
    """A request that cannot be served, and how it is refused."""

    code: RequestCode
    ext: dict[str, object]
    refusal: ResponseCode
    body: bytes = b""


class BadPoppers(Clients):
    """See the module.

    Args:
        cluster: where.
        topic: that is popped from.
        queues: how many it has.
    """

    unsettled = "bad pops are not answered"

    def __init__(self, cluster: Cluster, topic: str, queues: int) -> None:
        super().__init__(cluster)
        self._topic = topic
        self._queues = queues

    def start(self) -> None:
        """Begin."""
        self._cluster.client("bad-popper", self._ask).boot()

    async def _ask(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            config = encode_body(SubscriptionGroupConfig(BARRED, consume_enable=False))
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await line.insist(code, {}, config)
            while not self._stops:
                await asyncio.sleep(rng.random() * 0.2)
                asked = rng.choice(self._bad(rng))
                answer = await line.ask(asked.code, asked.ext, asked.body, WITHIN_S)
                if answer is None or answer.code in PASSING:
                    continue
                may_be_new = answer.code == ResponseCode.TOPIC_NOT_EXIST  # a topic just made
                is_barred = asked.ext.get("consumerGroup") == BARRED  # this master may not know it
                if answer.code != asked.refusal and not (may_be_new or is_barred):
                    raise Violation(f"{asked} is answered {answer.code}: {answer.remark}")
                self._cluster.world.count("bad-pop")
                await self._count_waiting(line)
        self._busy -= 1

    async def _count_waiting(self, line: Line) -> None:
        """Raises Violation: it is not said how many wait."""
        where = {"consumerGroup": STRANGER, "topic": self._topic, "queueId": -1}
        answer = await line.ask(RequestCode.POLLING_INFO, where, within_s=WITHIN_S)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            count = (answer.ext or {}).get("pollingNum")
            if count != "0":
                raise Violation(f"nobody of {STRANGER} waits, and it is said that {count} do")

    def _bad(self, rng: Random) -> list[_Bad]:
        code, refused = RequestCode, ResponseCode
        where = {"consumerGroup": STRANGER, "topic": self._topic, "queueId": 0}
        pop = {
            **where, "maxMsgNums": 1, "invisibleTime": 500, "pollTime": 0, "bornTime": 0,
            "initMode": 0, "order": False,
        }  # fmt: skip
        offset = rng.randrange(1_000_000, 2_000_000)
        receipt = f"{offset} 1767225600000 500 0 0 {GROUP} 0 {offset}"
        named = {**where, "offset": offset, "extraInfo": receipt}
        bits = "AAAA" + "/" * (BATCH_MAX // 6)
        acks = {"c": STRANGER, "t": self._topic, "q": 0, "pt": 1, "r": "0", "so": 0, "b": bits}
        every = [
            ({"maxMsgNums": 33}, refused.INVALID_PARAMETER),
            ({"invisibleTime": 0}, refused.INVALID_PARAMETER),
            ({"invisibleTime": 10**12}, refused.INVALID_PARAMETER),
            ({"topic": "nobody"}, refused.TOPIC_NOT_EXIST),
            ({"queueId": self._queues}, refused.INVALID_PARAMETER),
            ({"consumerGroup": BARRED}, refused.NO_PERMISSION),
            ({"exp": rng.choice(BAD_SQL), "expType": "SQL92"}, refused.SUBSCRIPTION_PARSE_FAILED),
            ({"exp": "a", "expType": "XPATH"}, refused.SUBSCRIPTION_PARSE_FAILED),
        ]
        return [
            *(_Bad(code.POP_MESSAGE, {**pop, **more}, refusal) for more, refusal in every),
            *(
                _Bad(code.NOTIFICATION, {**where, "pollTime": 0, **more}, refusal)
                for more, refusal in every[3:]
            ),
            _Bad(code.ACK_MESSAGE, named, refused.NO_MESSAGE),
            _Bad(code.ACK_MESSAGE, {**named, "extraInfo": "1 2 3"}, refused.MESSAGE_ILLEGAL),
            _Bad(code.ACK_MESSAGE, {**named, "offset": offset + 1}, refused.MESSAGE_ILLEGAL),
            _Bad(code.ACK_MESSAGE, {**named, "topic": "nobody"}, refused.TOPIC_NOT_EXIST),
            _Bad(
                code.CHANGE_MESSAGE_INVISIBLETIME,
                {**named, "invisibleTime": -1},
                refused.INVALID_PARAMETER,
            ),
            _Bad(
                code.CHANGE_MESSAGE_INVISIBLETIME,
                {**named, "invisibleTime": 500},
                refused.NO_MESSAGE,
            ),
            _batch([], refused.NO_MESSAGE),
            _batch([acks, acks, acks], refused.INVALID_PARAMETER),
        ]


def _batch(acks: list[dict[str, object]], refusal: ResponseCode) -> _Bad:
    body = json.dumps({"brokerName": GROUP, "acks": acks}).encode()
    return _Bad(RequestCode.BATCH_ACK_MESSAGE, {}, refusal, body)
