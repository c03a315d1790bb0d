"""Producers that are timed, for measurements of what else a broker does meanwhile.

Rule protected: a time is that of one acknowledged message as its application sees it, retries and
back-off included; a message that was not acknowledged ends the measurement, it is not left out.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from gantry_cli.client.brokers import BrokerError
from gantry_cli.client.producer import Producer
from gantry_cli.client.routes import NameServiceError, TopicNotFoundError
from gantry_cli.client.topics import create_topic
from gantry_protocol.errors import GantryError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from gantry_cli.client.session import Session

BODY_BYTES = 1024
QUEUES = 8
LANES = 4
INTERVAL_S = 0.01  # a lane's pause after an acknowledgement
GIVE_UP_AFTER_S = 30.0
TOPIC_PATIENCE_S = 30.0
TOPIC_RETRY_S = 0.05


def body(number: int) -> bytes:
    """Bytes that differ from message to message."""
    return (f"{number:016d}" * (BODY_BYTES // 16)).encode()


async def make_topic(client: Session, topic: str) -> None:
    """Create `topic`, and wait until there is a route to it.

    Raises:
        GantryError: there is none after a while.
    """
    deadline = time.monotonic() + TOPIC_PATIENCE_S
    while True:
        try:
            await create_topic(client, topic, queues=QUEUES, cluster=None)
            route = await client.routes.fetch(topic)
        except (TopicNotFoundError, NameServiceError, BrokerError, WireError) as error:
            if time.monotonic() > deadline:
                raise GantryError(f"The topic {topic} has no route: {error}") from error
        else:
            if route.writable:
                return
        await asyncio.sleep(TOPIC_RETRY_S)


class Senders:
    """Lanes that send one message after the other; use as an async context manager.

    Args:
        client: whose routes and connections they use.
        topic: where to.
        acknowledged: told the key of every acknowledged message; None: nobody wants to know.

    Attributes:
        times_ms: of every message that was begun since `flowing`, and acknowledged.
        lost_answers: attempts that nobody knows the outcome of; each was made again.
    """

    def __init__(
        self, client: Session, topic: str, acknowledged: Callable[[str], None] | None = None
    ) -> None:
        self.times_ms: list[float] = []
        self.lost_answers = 0
        self._acknowledged = acknowledged
        self._topic = topic
        self._producer = Producer(
            client.routes,
            client.calls,
            give_up_after_s=GIVE_UP_AFTER_S,
            on_answer_lost=self._answer_lost,
        )
        self._sent = 0
        self._since = time.monotonic()
        self._lanes: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._lanes = [asyncio.create_task(self._lane()) for _ in range(LANES)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)

    async def flowing(self) -> None:
        """Wait until messages are acknowledged, and count those that are begun from then on."""
        acknowledged = len(self.times_ms)
        while len(self.times_ms) == acknowledged:
            self.check()
            await asyncio.sleep(INTERVAL_S)
        self._since = time.monotonic()
        self.times_ms = []

    def check(self) -> None:
        """Raise what ended a lane, if one has ended."""
        for lane in self._lanes:
            if lane.done():
                lane.result()

    def _answer_lost(self, _: str) -> None:
        self.lost_answers += 1

    async def _lane(self) -> None:
        while True:
            self._sent += 1
            message = self._producer.message(self._topic, body(self._sent))
            began = time.monotonic()
            await self._producer.send(message)
            if self._acknowledged is not None:
                self._acknowledged(message.key)
            if began >= self._since:
                self.times_ms.append(1000 * (time.monotonic() - began))
            await asyncio.sleep(INTERVAL_S)
