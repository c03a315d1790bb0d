"""The load of a trial: paced producers and one consumer, all of it entered into a ledger.

Several lanes send, each one message at a time: a lane that waits for an answer sends nothing else,
as an application thread would. All share one connection per address. The lanes' acknowledgements
together form the stream whose gaps are measured.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
from gantry_protocol.errors import WireError

from gantry_cli.client.brokers import BrokerError
from gantry_cli.client.calls import Connections
from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.gaps import AckTimes
from gantry_cli.client.ledger import Ledger
from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.routes import NameServiceError, Routes, TopicNotFoundError
from gantry_cli.client.session import Session
from gantry_cli.client.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from gantry_cli.client.ledger import Position

BODY = b"x" * 64
TOPIC_RETRY_S = 0.05
LATE_DUPLICATES_S = 0.3
END_RETRY_S = 0.1
FAILED_PAUSE_S = 1.0  # a broker that refuses for good would be asked as fast as it answers


class LoadPace(msgspec.Struct, frozen=True):
    """The pace of sending: `lanes` at once, each pausing `interval_s` after an acknowledgement."""

    lanes: int = 4
    interval_s: float = 0.02


class History(Protocol):
    """Takes what happens to each message, by its key; a position is queue and offset in words."""

    def sent(self, key: str, /) -> None:
        """It goes to the producer now."""

    def answer_lost(self, key: str, /) -> None:
        """An attempt was not answered; it may be stored."""

    def acknowledged(self, key: str, position: str, /) -> None:
        """It is stored there."""

    def given_up(self, key: str, /) -> None:
        """No attempt was acknowledged, and none will be made."""

    def consumed(self, key: str, position: str, /) -> None:
        """It came out there."""


class Load:
    """Producers and a consumer on one topic.

    Use as an async context manager: leaving it ends everything, whatever happened.

    Args:
        name_servers: whom to ask for routes.
        topic: where to send; it is created, or changed to `queues` queues.
        pace: how much is sent.
        queues: of the topic.
        keep_messages: settled messages that the ledger remembers one by one; None: all.
        keep_times: acknowledgements whose times are remembered; None: all.
        history: gets every event, too; None: nobody wants a history.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        topic: str,
        *,
        pace: LoadPace,
        queues: int = 4,
        keep_messages: int | None = None,
        keep_times: int | None = None,
        history: History | None = None,
    ) -> None:
        self._history = history
        self.ledger = Ledger(keep=keep_messages)
        self.acks = AckTimes(keep=keep_times)
        self.last_trouble = ""  # the newest reason why a message was not acknowledged
        self.sending = True  # whether lanes may start messages, as soon as there is a topic
        self.started = False  # there is a topic
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
            on_answer_lost=self._answer_lost,
        )
        self._consumer = Consumer(
            self._pull_routes,
            self._pull_calls,
            topic,
            self._on_received,
            group="gantry-trial",
            start=Start.EARLIEST,
        )
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
        self.started = True
        self._tasks = [asyncio.create_task(self._consumer.run())]
        if self.sending:
            self._fill_lanes()

    async def finish_sending(self, patience_s: float) -> None:
        """Start no further message and wait for the ones under way, at most `patience_s`."""
        self.sending = False
        if self._lanes:
            await asyncio.wait(self._lanes, timeout=patience_s)

    def resume_sending(self) -> None:
        """Send again after `finish_sending`; harmless while sending. The pause is no gap."""
        if not self.sending:
            self.acks.interrupt()
        self.sending = True
        if self.started:
            self._fill_lanes()

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

    async def read_to_the_end(self, patience_s: float) -> bool:
        """Wait until the consumer has read every queue to its end; False when it has not."""
        deadline = time.monotonic() + patience_s
        while not await self._consumer.at_end():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(END_RETRY_S)
        return True

    @property
    def illegal_offsets(self) -> int:
        """The number of times that a broker called the running consumer's offset illegal."""
        return self._consumer.illegal_offsets

    def raise_if_broken(self) -> None:
        """Raise what ended a lane or the consumer, if one of them has ended with an error."""
        for task in (*self._lanes, *self._tasks):
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _create_topic(self) -> None:
        while True:
            try:
                client = Session(self._send_calls, self._routes)
                await create_topic(client, self._topic, queues=self._queues, cluster=None)
                await self._routes.fetch(self._topic)
            except TopicNotFoundError as error:  # committed, but no group has a master yet
                self.last_trouble = str(error)
            except (NameServiceError, BrokerError, WireError) as error:
                self.last_trouble = str(error)
            else:
                return
            await asyncio.sleep(TOPIC_RETRY_S)

    def _fill_lanes(self) -> None:
        """Replace the lanes that came to their end; one that broke stays, to be told of."""
        self._lanes = [lane for lane in self._lanes if not _ended_well(lane)]
        missing = self._pace.lanes - len(self._lanes)
        self._lanes += [asyncio.create_task(self._send_forever()) for _ in range(missing)]

    async def _send_forever(self) -> None:
        while self.sending:
            message = self._producer.message(self._topic, BODY)
            self._sent(message.key)
            try:
                result = await self._producer.send(message)
            except SendFailedError as error:
                self.last_trouble = str(error)
                self._gave_up(message.key)
                await asyncio.sleep(FAILED_PAUSE_S)
                continue
            self._acknowledged(message.key, result.position)
            await asyncio.sleep(self._pace.interval_s)

    def _sent(self, key: str) -> None:
        self.ledger.sent(key)
        if self._history is not None:
            self._history.sent(key)

    def _answer_lost(self, key: str) -> None:
        self.ledger.answer_lost(key)
        if self._history is not None:
            self._history.answer_lost(key)

    def _acknowledged(self, key: str, position: Position) -> None:
        self.ledger.acknowledge(key, position)
        self.acks.add(time.monotonic())
        if self._history is not None:
            self._history.acknowledged(key, place(position))

    def _gave_up(self, key: str) -> None:
        self.ledger.give_up(key)
        if self._history is not None:
            self._history.given_up(key)

    async def _on_received(self, received: ReceivedRecord) -> None:
        ours = self._producer.made(received.key)
        self.ledger.consume(received.key, received.position, ours=ours)
        if self._history is not None:
            self._history.consumed(received.key, place(received.position))
        self._consumer.done(received.position)
        self._received.set()


def place(position: Position) -> str:
    """A position as a history names it: `GROUP/QUEUE@OFFSET`."""
    return f"{position.broker_name}/{position.queue_id}@{position.queue_offset}"


def _ended_well(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
