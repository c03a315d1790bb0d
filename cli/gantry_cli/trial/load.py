"""The load of a trial: paced producers and one consumer, all of it entered into a ledger.

Several lanes send, each one message at a time: a lane that waits for an answer sends nothing else,
as an application thread would. All share one connection per address. The lanes' acknowledgements
together form the stream whose gaps are measured.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from gantry_cli.client.calls import Connections
from gantry_cli.client.consumer import Consumer, Received, Start
from gantry_cli.client.gaps import AckTimes
from gantry_cli.client.ledger import Ledger
from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.routes import NameServiceError, Routes, TopicNotFoundError
from gantry_cli.client.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

BODY = b"x" * 64
TOPIC_RETRY_S = 0.05
LATE_DUPLICATES_S = 0.3


class Pace(msgspec.Struct, frozen=True):
    """How much is sent: `lanes` at once, each pausing `interval_s` after an acknowledgement."""

    lanes: int = 4
    interval_s: float = 0.02


class Load:
    """Producers and a consumer on one topic, from `start` to `stop`.

    Use as an async context manager: leaving it ends everything, whatever happened.
    """

    def __init__(
        self, name_servers: Sequence[str], topic: str, *, pace: Pace, queues: int = 4
    ) -> None:
        self.ledger = Ledger()
        self.acks = AckTimes()
        self.last_trouble = ""  # the newest reason why a message was not acknowledged
        self._topic = topic
        self._pace = pace
        self._queues = queues
        # A producer gives up connections that do not answer; the consumer's long polls must not
        # end with them, so each has its own.
        self._send_calls, self._pull_calls = Connections(), Connections()
        self._routes = Routes(name_servers, self._send_calls)
        self._pull_routes = Routes(name_servers, self._pull_calls)
        self._producer = Producer(
            self._routes,
            self._send_calls,
            group="gantry-trial",
            give_up_after_s=60.0,
            on_answer_lost=self.ledger.answer_lost,
        )
        self._consumer = Consumer(
            self._pull_routes,
            self._pull_calls,
            topic,
            self._on_received,
            group="gantry-trial",
            start=Start.EARLIEST,
        )
        self._sending = asyncio.Event()
        self._received = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._lanes: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tasks = [*self._lanes, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for routes in (self._routes, self._pull_routes):
            await routes.close()
        for calls in (self._send_calls, self._pull_calls):
            await calls.close()

    async def start(self) -> None:
        """Create the topic as soon as the name service takes it, then send and consume."""
        await self._create_topic()
        self._sending.set()
        self._lanes = [asyncio.create_task(self._send_forever()) for _ in range(self._pace.lanes)]
        self._tasks = [asyncio.create_task(self._consumer.run())]

    async def finish_sending(self, patience_s: float) -> None:
        """Start no further message and wait for the ones under way, at most `patience_s`."""
        self._sending.clear()
        if self._lanes:
            await asyncio.wait(self._lanes, timeout=patience_s)

    async def finish_consuming(self, patience_s: float) -> None:
        """Wait until everything acknowledged was consumed, at most `patience_s`.

        Then waits a moment longer, since a duplicate would come after its original.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self.ledger.outstanding():
                    self._received.clear()
                    await self._received.wait()
        await asyncio.sleep(LATE_DUPLICATES_S)

    @property
    def illegal_offsets(self) -> int:
        """How often a broker told the running consumer that its offset is not legal."""
        return self._consumer.illegal_offsets

    def raise_if_broken(self) -> None:
        """Raise what ended a lane or the consumer, if one of them has ended with an error."""
        for task in (*self._lanes, *self._tasks):
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _create_topic(self) -> None:
        while True:
            try:
                await create_topic(self._routes, self._topic, queues=self._queues, cluster=None)
                await self._routes.fetch(self._topic)
            except TopicNotFoundError as error:  # committed, but no group has a master yet
                self.last_trouble = str(error)
            except NameServiceError as error:
                self.last_trouble = str(error)
            else:
                return
            await asyncio.sleep(TOPIC_RETRY_S)

    async def _send_forever(self) -> None:
        while self._sending.is_set():
            message = self._producer.message(self._topic, BODY)
            self.ledger.sent(message.key)
            try:
                result = await self._producer.send(message)
            except SendFailedError as error:
                self.last_trouble = str(error)
                self.ledger.give_up(message.key)
                continue
            self.ledger.acknowledge(message.key, result.position)
            self.acks.add(time.monotonic())
            await asyncio.sleep(self._pace.interval_s)

    async def _on_received(self, received: Received) -> None:
        self.ledger.consume(received.key, received.position)
        self._consumer.done(received.position)
        self._received.set()
