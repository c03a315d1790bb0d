"""A producer: sends a message until it is acknowledged, and says what it does not know.

The rule protected here: a retry repeats the same message under the same unique key, and every
attempt whose answer was lost is reported, because it may have been stored. What it refuses: to call
a message sent that is merely stored (codes 10, 11, 12), and to retry what must be refused again.
"""

from __future__ import annotations

import asyncio
import time
from enum import Enum
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import (
    ConnectionClosed,
    GantryError,
    RemotingError,
    RequestTimeout,
    ResolveError,
)
from gantry_protocol.headers.client import (
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.records import UniqueKeys, encode_properties
from gantry_protocol.records.properties import KEYS, TAGS, UNIQ_KEY, WAIT_STORE_MSG_OK
from gantry_protocol.send_answer import MAY_BE_STORED

from gantry_cli.client.ledger import Position
from gantry_cli.client.routes import NameServiceError, Queue, Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_cli.client.calls import Caller

DEFAULT_TOPIC = "TBW102"  # the topic whose settings upstream's brokers copy for a new one
DEFAULT_QUEUES = 4
FIRST_BACKOFF_S = 0.005
MAX_BACKOFF_S = 0.05
FIRST_AVOIDANCE_S = 1.0
MAX_AVOIDANCE_S = 30.0


class AttemptOutcome(Enum):
    """The outcome of one attempt for the message."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused, and may be accepted later"
    UNKNOWN = "stored or not, nobody can say"
    REJECTED = "refused for good"


OUTCOMES = {
    ResponseCode.SUCCESS: AttemptOutcome.ACKNOWLEDGED,
    ResponseCode.SYSTEM_ERROR: AttemptOutcome.REFUSED,  # e.g. in-sync replicas not enough
    ResponseCode.SYSTEM_BUSY: AttemptOutcome.REFUSED,
    ResponseCode.SERVICE_NOT_AVAILABLE: AttemptOutcome.REFUSED,  # not the master, or shutting down
    ResponseCode.NO_PERMISSION: AttemptOutcome.REFUSED,
    ResponseCode.TOPIC_NOT_EXIST: AttemptOutcome.REFUSED,  # new topics reach brokers a little later
    ResponseCode.FLUSH_DISK_TIMEOUT: AttemptOutcome.UNKNOWN,  # these three are on the master,
    ResponseCode.SLAVE_NOT_AVAILABLE: AttemptOutcome.UNKNOWN,  # and may go with it
    ResponseCode.FLUSH_SLAVE_TIMEOUT: AttemptOutcome.UNKNOWN,
}


class SendFailedError(GantryError):
    """A message that was not acknowledged.

    Attributes:
        lost_answers: attempts whose outcome is unknown; the message may be stored as often.
    """

    def __init__(self, message: str, *, lost_answers: int) -> None:
        super().__init__(message)
        self.lost_answers = lost_answers


class SendResult(msgspec.Struct, frozen=True):
    """An acknowledged message."""

    key: str
    position: Position
    offset_id: str
    attempts: int
    lost_answers: int


class Message(msgspec.Struct, frozen=True):
    """A message to be sent: `key` is unique and stays the same in all attempts."""

    topic: str
    key: str
    body: bytes
    tags: str | None = None
    keys: str | None = None

    def properties(self) -> str:
        """The property text of the record."""
        pairs = {UNIQ_KEY: self.key, WAIT_STORE_MSG_OK: "true"}
        if self.keys:
            pairs[KEYS] = self.keys
        if self.tags:
            pairs[TAGS] = self.tags
        return encode_properties(pairs)


class Avoidance:
    """Broker groups that failed lately: other groups are tried first, for a bounded time.

    Without it, each message has to find out anew which groups are gone, and with many of them it
    runs out of time. A group that fails again when its time is over is avoided for twice as long.
    Nobody is avoided if there is nobody else.
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, float]] = {}  # when it ends, how long it is

    def failed(self, broker_name: str, now_s: float) -> None:
        """An attempt at this group came to nothing; many at the same time count once."""
        until_s, last_s = self._until.get(broker_name, (now_s, 0.0))
        if now_s >= until_s:
            length_s = min(max(FIRST_AVOIDANCE_S, 2 * last_s), MAX_AVOIDANCE_S)
            self._until[broker_name] = (now_s + length_s, length_s)

    def served(self, broker_name: str) -> None:
        """The group took a message."""
        self._until.pop(broker_name, None)

    def best(self, queues: Sequence[Queue], avoid: str | None, now_s: float) -> Sequence[Queue]:
        """The queues of groups that did not fail lately; else of others than `avoid`; else all."""
        well = [
            queue
            for queue in queues
            if queue.broker_name != avoid and self._until.get(queue.broker_name, (0.0,))[0] <= now_s
        ]
        return well or [queue for queue in queues if queue.broker_name != avoid] or queues


class Producer:
    """Sends messages to the masters of a topic's groups, queue by queue in turn.

    Args:
        routes: where topics live.
        calls: the network.
        group: the producer group's name.
        send_timeout_s: for one attempt; then the connection is given up and the send repeated.
        give_up_after_s: for one message, over all its attempts.
        on_answer_lost: told the key of every attempt whose outcome is unknown, when that is known.
    """

    def __init__(
        self,
        routes: Routes,
        calls: Caller,
        *,
        group: str = "gantry",
        send_timeout_s: float = 1.0,
        give_up_after_s: float = 10.0,
        on_answer_lost: Callable[[str], None] | None = None,
    ) -> None:
        self._routes = routes
        self._calls = calls
        self._group = group
        self._send_timeout_s = send_timeout_s
        self._give_up_after_s = give_up_after_s
        self._on_answer_lost = on_answer_lost
        self._keys = UniqueKeys("127.0.0.1")
        self._avoidance = Avoidance()
        self._turn = 0

    def message(
        self, topic: str, body: bytes, *, tags: str | None = None, keys: str | None = None
    ) -> Message:
        """A new message with a unique key of its own."""
        return Message(topic, self._keys.next(time.time_ns() // 1_000_000), body, tags, keys)

    def made(self, key: str) -> bool:
        """Whether `key` is of a message of this producer."""
        return self._keys.made(key)

    async def send(self, message: Message) -> SendResult:
        """Send `message` until it is acknowledged.

        A cancellation leaves the outcome unknown; it is not reported to `on_answer_lost`.

        Raises:
            SendFailedError: refused for good, or not acknowledged in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._give_up_after_s
        attempts = lost_answers = 0
        backoff_s = 0.0
        avoid: str | None = None
        while True:
            attempts += 1
            queue, outcome, answer, reason = await self._attempt(message, avoid)
            if outcome is AttemptOutcome.ACKNOWLEDGED:
                assert queue is not None
                assert answer is not None
                self._avoidance.served(queue.broker_name)
                return _result(message.key, queue, answer, attempts, lost_answers)
            if outcome is AttemptOutcome.UNKNOWN:
                lost_answers += 1
                if self._on_answer_lost is not None:
                    self._on_answer_lost(message.key)
            if outcome is AttemptOutcome.REJECTED or loop.time() + backoff_s >= deadline:
                raise SendFailedError(
                    f"The message {message.key} for topic {message.topic!r} was not acknowledged "
                    f"in {attempts} attempts: {reason}",
                    lost_answers=lost_answers,
                )
            self._routes.refresh_soon(message.topic)
            if queue is not None:
                self._avoidance.failed(queue.broker_name, loop.time())
            avoid = queue.broker_name if queue is not None else None
            await asyncio.sleep(backoff_s)
            backoff_s = min(max(FIRST_BACKOFF_S, 2 * backoff_s), MAX_BACKOFF_S)

    async def _attempt(
        self, message: Message, avoid: str | None
    ) -> tuple[Queue | None, AttemptOutcome, RemotingCommand | None, str]:
        """One attempt: the queue, what it says about the message, the answer, and why."""
        queue: Queue | None = None
        try:
            route = await self._routes.find(message.topic)
            queue = self._next_queue(route.writable, avoid)
            if queue is None:
                return (
                    None,
                    AttemptOutcome.REFUSED,
                    None,
                    "the topic has no queue that takes writes.",
                )
            answer = await self._calls.call(
                queue.address, self._request(message, queue), self._send_timeout_s
            )
        except (RequestTimeout, ConnectionClosed) as error:
            return queue, AttemptOutcome.UNKNOWN, None, str(error)
        except (RemotingError, ResolveError, NameServiceError) as error:
            return queue, AttemptOutcome.REFUSED, None, str(error)
        outcome = outcome_of(answer.code)
        if MAY_BE_STORED in (answer.ext or {}):
            outcome = AttemptOutcome.UNKNOWN
        return queue, outcome, answer, f"{answer.remark or 'no reason given'} (code {answer.code})."

    def _next_queue(self, queues: tuple[Queue, ...], avoid: str | None) -> Queue | None:
        """The next queue in turn, of a group that did not fail lately, if there is any."""
        if not queues:
            return None
        self._turn += 1
        others = self._avoidance.best(queues, avoid, asyncio.get_running_loop().time())
        return others[self._turn % len(others)]

    def _request(self, message: Message, queue: Queue) -> RemotingCommand:
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=message.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=DEFAULT_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=0,
            properties=message.properties(),
            reconsume_times=0,
            broker_name=queue.broker_name,
        )
        return request(RequestCode.SEND_MESSAGE_V2, to_ext(header), message.body)


def outcome_of(code: int) -> AttemptOutcome:
    """The outcome behind `code`; a code that is not listed will not get better by waiting."""
    try:
        return OUTCOMES.get(ResponseCode(code), AttemptOutcome.REJECTED)
    except ValueError:
        return AttemptOutcome.REJECTED


def _result(
    key: str, queue: Queue, answer: RemotingCommand, attempts: int, lost_answers: int
) -> SendResult:
    header = from_ext(SendMessageResponseHeader, answer.ext)
    return SendResult(
        key=key,
        position=Position(queue.broker_name, header.queue_id, header.queue_offset),
        offset_id=header.msg_id,
        attempts=attempts,
        lost_answers=lost_answers,
    )
