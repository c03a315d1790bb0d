"""Clients of a simulated cluster: the product's own producer and consumer, with a ledger.

What a client was told is remembered, and compared where it is told (``Watch.acknowledged``) and at
the end (``Ledger.verdict``).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.ledger import Ledger
from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.session import session
from sim.kernel.world import Violation

if TYPE_CHECKING:
    from sim.product.cluster import Cluster, Node

TOPIC = "orders"
BURST = 40  # messages between two rests of a busy producer, on average


class Load(Protocol):
    """Clients that do one kind of thing, and know what must come of it."""

    def start(self) -> None:
        """Begin."""

    def stop_sending(self) -> None:
        """Begin nothing new."""

    @property
    def is_settled(self) -> bool:
        """Whether everything that was promised has come."""

    def judge(self) -> None:
        """Look back. Raises Violation: something was promised and did not come, or came twice."""


class Told(Protocol):
    """Who is told what clients are told."""

    def acknowledged(self, key: str, offset_id: str) -> None:
        """A client was answered 0. Raises Violation."""

    def served(self, end: int, group: str) -> None:
        """A consumer of a group was given a record that ends there. Raises Violation."""


class Clients:
    """A ``Load`` whose clients end by themselves once they are told to stop.

    Each of them counts itself in ``_busy`` while it has something to do.

    Attributes:
        unsettled: the fault of a run in which some never end.
    """

    unsettled = "clients do not end"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stops = False
        self._busy = 0

    def stop_sending(self) -> None:
        """Begin nothing new."""
        self._stops = True

    @property
    def is_settled(self) -> bool:
        return not self._busy

    def judge(self) -> None:
        """Raises Violation: somebody still waits for something."""
        if self._busy:
            raise Violation(self.unsettled)


class Workload:
    """Producers that send, one consumer that reads it all.

    Args:
        cluster: where.
        watch: is told of every acknowledgement.
        producers: how many; each waits for its answer before it sends the next message.
        body_bytes: greatest size of a message.
        rest_s: longest rest of a busy producer after a burst, which finds what many messages find:
            they meet a fault that comes within it, and each costs a millisecond of a core.

    Attributes:
        ledger: what was sent, acknowledged and consumed.
        is_sending: set to False to let producers end.
    """

    def __init__(
        self,
        cluster: Cluster,
        watch: Told,
        *,
        producers: int = 2,
        body_bytes: int = 2_000,
        rest_s: float = 1.0,
    ) -> None:
        self.cluster = cluster
        self.watch = watch
        self.ledger = Ledger()
        self.is_sending = True
        self.sending = 0
        self._producers = producers
        self._body_bytes = body_bytes
        self._rest_s = rest_s
        self.consumers: list[Consumer] = []

    def start(self) -> None:
        """Begin."""
        for number in range(self._producers):
            self.cluster.client(f"producer-{number}", self._produce).boot()
        self.cluster.client("consumer", self._consume).boot()

    async def _produce(self, node: Node) -> None:
        rng = self.cluster.world.stream(f"load/{node.name}")
        pause_s = rng.choice([0.002, 0.02, 0.1])
        async with session(self.cluster.name_servers) as client:
            producer = Producer(client.routes, client.calls, on_answer_lost=self.ledger.answer_lost)
            self.sending += 1
            while self.is_sending:
                body = rng.randbytes(rng.randint(1, self._body_bytes))
                message = producer.message(TOPIC, body)
                self.ledger.sent(message.key)
                try:
                    result = await producer.send(message)
                except SendFailedError:
                    self.ledger.give_up(message.key)
                else:
                    self.ledger.acknowledge(message.key, result.position)
                    self.watch.acknowledged(message.key, result.offset_id)
                await asyncio.sleep(rng.random() * pause_s)
                if pause_s < 0.1 and not rng.randrange(BURST):
                    await asyncio.sleep(rng.random() * self._rest_s)
            self.sending -= 1

    async def _consume(self, node: Node) -> None:
        while self.cluster.hosts_many and not self.cluster.is_set_up:
            await asyncio.sleep(0.1)  # a consumer reads the queues that there are when it begins
        async with session(self.cluster.name_servers) as client:

            async def received(item: ReceivedRecord) -> None:
                self.watch.served(item.record.physical_offset + 1, item.position.broker_name)
                self.ledger.consume(item.key, item.position)
                consumer.done(item.position)

            consumer = Consumer(client.routes, client.calls, TOPIC, received, start=Start.EARLIEST)
            self.consumers.append(consumer)
            while True:
                with suppress(Exception):
                    await consumer.run()
                await asyncio.sleep(0.2)

    # ---- the end

    def stop_sending(self) -> None:
        """Let producers end what they do."""
        self.is_sending = False

    @property
    def is_settled(self) -> bool:
        """Nobody sends, and everything acknowledged was consumed where it was acknowledged."""
        if self.sending or self.ledger.outstanding():
            return False
        return not self.ledger.verdict().misplaced

    def judge(self) -> None:
        """Raises Violation: something is lost, or came twice without a lost answer."""
        ledger = self.ledger
        if ledger.outstanding():
            raise Violation(f"{ledger.outstanding()} acknowledged are not delivered")
        verdict = ledger.verdict()
        if not verdict.clean:
            raise Violation(f"{verdict} {self._odd()}")

    def _odd(self) -> str:
        """The messages that spoil the verdict."""
        return "; ".join(
            f"{key}: {message}"
            for key, message in self.ledger._messages.items()
            if len(message.consumed_at) != 1 or message.acknowledged_at not in message.consumed_at
        )
