"""Members of a consumer group that lock queues, as orderly consumers do.

A client holds a queue from the answer that names it until it unlocks the queue, an answer does not
name it any more, or ``BELIEF_S`` have passed since the last one that did: so the clients of
RocketMQ do, by their own clocks. No two clients hold one queue at any moment, whatever becomes of
masters meanwhile.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from gantry_broker.clients.mapped.locks import STATIC
from gantry_cli.client.session import session
from gantry_protocol.bodies import MessageQueue, decode_body, encode_body
from gantry_protocol.bodies.client import (
    ConsumerData,
    HeartbeatData,
    LockBatchBody,
    LockedQueues,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from sim.kernel.world import SECOND, Violation
from sim.product import mapped
from sim.product.cluster import GROUP
from sim.product.line import TOPIC, Line
from sim.product.workload import Clients

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_cli.client.session import Session
    from sim.product.cluster import Cluster, Node

CLIENTS = 3
MEMBERS = CLIENTS - 1  # the last one sends no heartbeats: its locks do not last as long
NAME = "orderly"
QUEUES = tuple(MessageQueue(GROUP, queue_id, TOPIC) for queue_id in range(3))
MAPPED = tuple(MessageQueue(STATIC, number, mapped.TOPIC) for number in range(mapped.QUEUES))
BELIEF_S = 30.0
RENEWS_S = (0.01, 0.1, 0.3)
CALMLY_S = (0.05, 0.3, 1.0)
RESTS_S = (2.0, 8.0, 20.0)
UNLOCKS, RESTS = 0.3, 0.05


class Orderly(Clients):
    """See the module."""

    unsettled = "queues cannot be locked"
    queues = QUEUES
    renews_s = RENEWS_S

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._held: dict[MessageQueue, tuple[str, float]] = {}  # by whom, until when

    def start(self) -> None:
        """Begin."""
        for number in range(CLIENTS):
            greeting = _heartbeat(f"orderly-{number}") if number < MEMBERS else None

            async def run(node: Node, greeting: tuple[int, bytes] | None = greeting) -> None:
                await self._consume(node, greeting)

            self._cluster.client(f"orderly-{number}", run).boot()

    async def _consume(self, node: Node, greeting: tuple[int, bytes] | None) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            lines = self._lines(client, greeting)
            while not self._stops:
                wanted = rng.sample(self.queues, rng.randint(1, len(self.queues)))
                body = encode_body(LockBatchBody(NAME, node.name, wanted))
                answer = await rng.choice(lines).ask(RequestCode.LOCK_BATCH_MQ, {}, body)
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    locked = decode_body(LockedQueues, answer.body).lock_ok_mq_set
                    self._leave(node.name, [queue for queue in wanted if queue not in locked])
                    for queue in locked:
                        self._holds(queue, node.name)
                await self._rest(rng.choice(RESTS_S if rng.random() < RESTS else self.renews_s))
                if rng.random() < UNLOCKS:
                    self._leave(node.name, wanted)
                    await rng.choice(lines).ask(RequestCode.UNLOCK_BATCH_MQ, {}, body)
        self._busy -= 1

    def _lines(self, client: Session, greeting: tuple[int, bytes] | None) -> list[Line]:
        """The ways to somebody who may be asked for a lock."""
        return [Line(client, greeting=greeting)]

    async def _rest(self, rest_s: float) -> None:
        until_s = self._now_s() + rest_s
        while not self._stops and self._now_s() < until_s:
            await asyncio.sleep(min(0.5, rest_s))

    def _leave(self, name: str, queues: Iterable[MessageQueue]) -> None:
        """The client takes nothing more of them."""
        for queue in queues:
            if self._held.get(queue, ("", 0.0))[0] == name:
                del self._held[queue]

    def _holds(self, queue: MessageQueue, name: str) -> None:
        """Raises Violation: somebody else does."""
        now_s = self._now_s()
        holder, until_s = self._held.get(queue, (name, 0.0))
        if holder != name and now_s < until_s:
            raise Violation(
                f"{name} holds queue {queue.queue_id} of {queue.topic}, and so does {holder} for"
                f" {until_s - now_s:.1f} s more"
            )
        self._cluster.world.count("locked")
        self._held[queue] = (name, now_s + BELIEF_S)

    def _now_s(self) -> float:
        """Virtual time, which all clients' clocks follow, wherever they began."""
        return self._cluster.world.now_us / SECOND


class OrderlyMapped(Orderly):
    """The same of a mapped topic: any group is asked, while the queues move between groups."""

    queues = MAPPED
    renews_s = CALMLY_S

    def _lines(self, client: Session, greeting: tuple[int, bytes] | None) -> list[Line]:
        """One to each group's master."""
        names = self._cluster.groups
        return [
            Line(
                client,
                greeting=greeting,
                group=name,
                is_there=partial(self._cluster.has_clients, name),
            )
            for name in names
        ]


def _heartbeat(name: str) -> tuple[int, bytes]:
    beat = HeartbeatData(name, consumer_data_set=[ConsumerData(NAME)])
    return RequestCode.HEART_BEAT, encode_body(beat)
