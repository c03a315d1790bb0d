"""Members of a consumer group that lock queues, as orderly consumers do.

A lock is memory of one master: while the same epoch is served, a queue has one holder, until that
one unlocks it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.bodies import MessageQueue, decode_body, encode_body
from gantry_protocol.bodies.client import LockBatchBody, LockedQueues
from gantry_protocol.codes import RequestCode, ResponseCode
from sim.kernel.world import Violation
from sim.product.cluster import GROUP
from sim.product.line import TOPIC, Line
from sim.product.workload import Clients

if TYPE_CHECKING:
    from sim.product.cluster import Cluster, Node

CLIENTS = 3
QUEUES = [MessageQueue(GROUP, queue_id, TOPIC) for queue_id in range(2)]


class Orderly(Clients):
    """See the module."""

    unsettled = "queues cannot be locked"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._held: dict[MessageQueue, tuple[str, int]] = {}  # by whom, in which epoch

    def start(self) -> None:
        """Begin."""
        for number in range(CLIENTS):
            self._cluster.client(f"orderly-{number}", self._lock).boot()

    def _epoch(self) -> int:
        """Of who serves now; 0 while nobody does."""
        node = self._cluster.master()
        return 0 if node is None else int(self._cluster.group_of(node).core.serving.epoch)

    async def _lock(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while not self._stops:
                body = encode_body(LockBatchBody("orderly", node.name, QUEUES))
                epoch = self._epoch()
                answer = await line.ask(RequestCode.LOCK_BATCH_MQ, {}, body)
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    locked = decode_body(LockedQueues, answer.body).lock_ok_mq_set
                    if epoch and epoch == self._epoch():
                        for queue in locked:
                            self._holds(queue, node.name, epoch)
                await asyncio.sleep(rng.choice([0.01, 0.1, 0.3]))
                if rng.random() < 0.5:
                    self._held = {at: by for at, by in self._held.items() if by[0] != node.name}
                    await line.ask(RequestCode.UNLOCK_BATCH_MQ, {}, body)
        self._busy -= 1

    def _holds(self, queue: MessageQueue, name: str, epoch: int) -> None:
        """Raises Violation: somebody else does."""
        self._cluster.world.count("locked")
        holder, held_in = self._held.get(queue, (name, epoch))
        if holder != name and held_in == epoch:
            raise Violation(f"{queue} is locked by {holder} and {name} in epoch {epoch}")
        self._held[queue] = (name, epoch)
