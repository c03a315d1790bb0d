"""Load for measurements of the tier: a log that is filled quickly, and producers that are timed.

Rule protected: a time is that of one acknowledged message as its application sees it, retries and
back-off included; a message that was not acknowledged ends the measurement, it is not left out.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError, RemotingError, WireError
from gantry_protocol.headers.client import SendMessageRequestHeaderV2
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.records.batch import BatchMessage, encode_batch

from gantry_cli.client.producer import DEFAULT_TOPIC, Producer
from gantry_cli.client.routes import NameServiceError, TopicNotFoundError
from gantry_cli.client.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from gantry_cli.client.routes import Queue
    from gantry_cli.client.session import Session

BODY_BYTES = 1024
QUEUES = 8
BATCH = 128  # messages of one request while filling
FILL_LANES = 4
FILL_TIMEOUT_S = 10.0
LANES = 4
INTERVAL_S = 0.01  # a lane's pause after an acknowledgement
GIVE_UP_AFTER_S = 30.0
TOPIC_PATIENCE_S = 30.0
TOPIC_RETRY_S = 0.05
_PROPERTIES = "UNIQ_KEY\x01AC11000100002A9F0000018BCFE56800\x02TAGS\x01red\x02"


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
            await create_topic(client.routes, topic, queues=QUEUES, cluster=None)
            route = await client.routes.fetch(topic)
        except (TopicNotFoundError, NameServiceError, WireError) as error:
            if time.monotonic() > deadline:
                raise GantryError(f"The topic {topic} has no route: {error}") from error
        else:
            if route.writable:
                return
        await asyncio.sleep(TOPIC_RETRY_S)


async def fill(client: Session, topic: str, size: int, told: Callable[[int], None]) -> None:
    """Send batches until `size` bytes of bodies are acknowledged.

    Raises:
        GantryError: a batch was not acknowledged.
    """
    batches = -(-size // (BATCH * BODY_BYTES))
    waiting = iter(range(batches))
    route = await client.routes.fetch(topic)

    async def lane() -> None:
        for number in waiting:
            await _send_batch(client, topic, route.writable[number % len(route.writable)], number)
            told(BATCH * BODY_BYTES)

    async with asyncio.TaskGroup() as lanes:
        for _ in range(FILL_LANES):
            lanes.create_task(lane())


async def _send_batch(client: Session, topic: str, queue: Queue, number: int) -> None:
    header = SendMessageRequestHeaderV2(
        producer_group="gantry-bench",
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=QUEUES,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        batch=True,
        broker_name=queue.broker_name,
    )
    messages = (BatchMessage(body(number * BATCH + i), _PROPERTIES) for i in range(BATCH))
    command = request(RequestCode.SEND_BATCH_MESSAGE, to_ext(header), encode_batch(messages))
    try:
        answer = await client.calls.call(queue.address, command, FILL_TIMEOUT_S)
    except RemotingError as error:
        raise GantryError(f"A batch was not acknowledged while the log was filled: {error}") from (
            error
        )
    if answer.code != ResponseCode.SUCCESS:
        raise GantryError(
            f"A batch was refused while the log was filled: {answer.remark} (code {answer.code})."
        )


class Senders:
    """Lanes that send one message after the other; use as an async context manager.

    Args:
        client: whose routes and connections they use.
        topic: where to.
        acknowledged: told the key of every acknowledged message; None: nobody wants to know.

    Attributes:
        times_ms: of every message that was begun since `flowing`, and acknowledged.
    """

    def __init__(
        self, client: Session, topic: str, acknowledged: Callable[[str], None] | None = None
    ) -> None:
        self.times_ms: list[float] = []
        self._acknowledged = acknowledged
        self._topic = topic
        self._producer = Producer(client.routes, client.calls, give_up_after_s=GIVE_UP_AFTER_S)
        self._sent = 0
        self._since = time.monotonic()
        self._lanes: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._lanes = [asyncio.create_task(self._lane()) for _ in range(LANES)]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
