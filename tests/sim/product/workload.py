"""Clients of a simulated cluster: the product's own producer and consumer, with a ledger.

What a client was told is remembered, and compared where it is told (``Watch.acknowledged``) and at
the end (``Ledger.verdict``).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.ledger import Ledger
from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.routes import Queue, Route, Routes
from gantry_cli.client.session import Session, session
from msgspec.structs import replace
from sim.kernel.world import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_cli.client.calls import Caller
    from sim.product.cluster import Cluster, Node

TOPIC = "orders"
BURST = 20  # messages between two rests of a busy producer, on average
REST_S = 1.0
CALM_S = 0.2


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


class Rests:
    """Rests of a client that asks one thing after the other.

    What a thousand requests in a row find, a hundred find that come close upon each other where a
    fault strikes; each costs as much of a core as a tenth of a second of an idle cluster. So it
    rests now and then while there are faults, and after every turn once they have ended.

    Args:
        cluster: where it asks.
        name: of the client.
        turns: between two rests, on average.
    """

    def __init__(self, cluster: Cluster, name: str, turns: int) -> None:
        self._cluster = cluster
        self._rng = cluster.world.stream(f"rests/{name}")
        self._turns = turns

    async def after_turn(self) -> None:
        """Rest, or go on at once."""
        if self._cluster.is_at_peace:
            await asyncio.sleep(self._rng.random() * CALM_S)
        elif not self._rng.randrange(self._turns):
            await asyncio.sleep(self._rng.random() * REST_S)


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


class RoutesTo(Routes):
    """Routes without the queues of any group but one."""

    def __init__(self, group: str, name_servers: Sequence[str], calls: Caller) -> None:
        super().__init__(name_servers, calls)
        self._group = group

    async def fetch(self, topic: str) -> Route:
        route = await super().fetch(topic)
        only = Route(topic, self._of_group(route.writable), self._of_group(route.readable))
        self._known[topic] = only
        return only

    def _of_group(self, queues: Sequence[Queue]) -> tuple[Queue, ...]:
        return tuple(queue for queue in queues if queue.broker_name == self._group)


class Workload:
    """Producers that send, one consumer that reads it all.

    Args:
        cluster: where.
        watch: is told of every acknowledgement.
        producers: how many; each waits for its answer before it sends the next message.
        body_bytes: greatest size of a message.
        rests: whether producers rest now and then.
        group: whose queues they use; None for every group's.
        keys: the key for people, by a message's unique key; None for none.

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
        rests: bool = True,
        group: str | None = None,
        keys: Callable[[str], str] | None = None,
    ) -> None:
        self._keys = keys
        self.cluster = cluster
        self.watch = watch
        self.ledger = Ledger()
        self.is_sending = True
        self.sending = 0
        self._producers = producers
        self._body_bytes = body_bytes
        self._rests = rests
        self._group = group
        self.consumers: list[Consumer] = []

    def start(self) -> None:
        """Begin."""
        for number in range(self._producers):
            self.cluster.client(f"producer-{number}", self._produce).boot()
        self.cluster.client("consumer", self._consume).boot()

    async def _produce(self, node: Node) -> None:
        rng = self.cluster.world.stream(f"load/{node.name}")
        pause_s, rests = rng.choice([0.002, 0.02, 0.1]), Rests(self.cluster, node.name, BURST)
        async with session(self.cluster.name_servers) as client:
            producer = Producer(
                self._routes(client), client.calls, on_answer_lost=self.ledger.answer_lost
            )
            self.sending += 1
            while self.is_sending:
                body = rng.randbytes(rng.randint(1, self._body_bytes))
                message = producer.message(TOPIC, body)
                if self._keys is not None:
                    message = replace(message, keys=self._keys(message.key))
                self.ledger.sent(message.key)
                try:
                    result = await producer.send(message)
                except SendFailedError:
                    self.ledger.give_up(message.key)
                else:
                    self.ledger.acknowledge(message.key, result.position)
                    self.watch.acknowledged(message.key, result.offset_id)
                await asyncio.sleep(rng.random() * pause_s)
                if self._rests:
                    await rests.after_turn()
            self.sending -= 1

    async def _consume(self, node: Node) -> None:
        while self.cluster.hosts_many and not self.cluster.is_set_up:
            await asyncio.sleep(0.1)  # a consumer reads the queues that there are when it begins
        async with session(self.cluster.name_servers) as client:

            async def received(item: ReceivedRecord) -> None:
                self.watch.served(item.record.physical_offset + 1, item.position.broker_name)
                self.ledger.consume(item.key, item.position)
                consumer.done(item.position)

            routes = self._routes(client)
            consumer = Consumer(routes, client.calls, TOPIC, received, start=Start.EARLIEST)
            self.consumers.append(consumer)
            while True:
                with suppress(Exception):
                    await consumer.run()
                await asyncio.sleep(0.2)

    def _routes(self, client: Session) -> Routes:
        if self._group is None:
            return client.routes
        return RoutesTo(self._group, self.cluster.name_servers, client.calls)

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
        """Raises Violation: something is lost, or came twice.

        Groups do not know each other's messages: a producer that hears nothing from one and sends
        to the next may store a message in both.
        """
        ledger = self.ledger
        if ledger.outstanding():
            raise Violation(f"{ledger.outstanding()} acknowledged are not delivered")
        verdict = ledger.verdict()
        if not verdict.clean:
            raise Violation(f"{verdict} {self._odd()}")
        for key, message in ledger._messages.items():
            groups = Counter(position.broker_name for position in message.consumed_at)
            if max(groups.values(), default=0) > 1:
                raise Violation(f"{key} is stored twice in one group: {message}")

    def _odd(self) -> str:
        """The messages that spoil the verdict."""
        return "; ".join(
            f"{key}: {message}"
            for key, message in self.ledger._messages.items()
            if len(message.consumed_at) != 1 or message.acknowledged_at not in message.consumed_at
        )
