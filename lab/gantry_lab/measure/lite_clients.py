"""Clients of a million lite topics: who sends, who consumes, and what became of each message.

A message is a number: its unique key and, for the first of a lite topic, the lite topic's name hold
it. So what is known of a million messages is a few bytes for each. Rule protected: a message counts
as consumed when a consumer has it, as done when its acknowledgement was answered 0, and as given
twice whenever a consumer gets it again, whatever the reason. The place of its record tells whether
it was handed out again or stored again.
"""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Self

from gantry_cli.client.gaps import AckTimes
from gantry_cli.client.producer import Message, Producer
from gantry_cli.client.routes import NameServiceError, Queue
from gantry_cli.client.session import Session, session
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.lite import COMPLETE_ADD, LiteSubscription, LiteSubscriptions
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import GantryError, RemotingError, ResolveError
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.headers.lite import PopLiteMessageRequestHeader, PopLiteMessageResponseHeader
from gantry_protocol.headers.pop import AckMessageRequestHeader
from gantry_protocol.lite import LITE_TOPIC
from gantry_protocol.records import (
    MessageRecord,
    decode_properties,
    decode_records,
    encode_properties,
)
from gantry_protocol.records.properties import UNIQ_KEY

from gantry_lab.bench.broker.frames import lite, lite_key, lite_name
from gantry_lab.bench.broker.work import TOLD_EVERY, Work
from gantry_lab.bench.load import Reply
from gantry_lab.bench.members import GROUP as BROKER_GROUP

PARENT, GROUP = "gantry-bench-lite", "gantry-bench-agents"
NAMES = 2_000  # of one client; its quota unless its group says otherwise
SESSIONS = 32  # clients share connections, as the programs of one host would share a proxy
BATCH = 32  # messages of one pop, at most
POLL_MS = 1_000
CALL_PATIENCE_S = 30.0
SCAN_PATIENCE_S = 300.0  # of a pop by which a master looks through all that a client takes
RETRY_S = 0.02
SUBSCRIBED_TOGETHER = 8
BODY = b"x" * 100
PAUSE_S = 0.01  # of the producer, after an acknowledgement
GIVE_UP_AFTER_S = 60.0
SEED = 7
NO_MASTER = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION)

ACKNOWLEDGED, TAKEN, DONE = 1, 2, 4  # of a message; a sum of these


class LiteAccount:
    """The facts about each message.

    Attributes:
        sent: messages that were acknowledged to producers.
        consumed: those of them that some consumer got.
        undone: messages that some consumer got and was not told to be done.
        twice: deliveries of what a consumer had already.
        twice_done: those of them whose message was done: its acknowledgement was answered 0.
        stored_twice: those of them that came from another record than the first time.
    """

    def __init__(self) -> None:
        self.sent = self.consumed = self.undone = self.twice = self.twice_done = 0
        self.stored_twice = 0
        self._states = bytearray()
        self._offsets = array("q")  # where each was in its queue, when it was got first

    @property
    def missing(self) -> int:
        """Acknowledged messages that no consumer has got; at the end they are lost."""
        return self.sent - self.consumed

    def acknowledged(self, number: int) -> None:
        """A producer was told that this message is safe."""
        before = self._note(number, ACKNOWLEDGED)
        if not before & ACKNOWLEDGED:
            self.sent += 1
            self.consumed += bool(before & TAKEN)

    def taken(self, number: int, offset: int) -> None:
        """A consumer got it from this offset of its lite topic."""
        before = self._note(number, TAKEN)
        if before & TAKEN:
            self.twice += 1
            self.twice_done += bool(before & DONE)
            self.stored_twice += offset != self._offsets[number]
            return
        self._offsets[number] = offset
        self.undone += 1
        self.consumed += bool(before & ACKNOWLEDGED)

    def done(self, number: int) -> None:
        """The consumer that got it was told that it is done."""
        before = self._note(number, DONE)
        assert before & TAKEN, "nobody acknowledges what he has not got"
        self.undone -= not before & DONE

    def _note(self, number: int, fact: int) -> int:
        """A fact about a message; what was known before."""
        if number >= len(self._states):
            more = number + 1 - len(self._states)
            self._states.extend(bytes(more))
            self._offsets.extend([-1] * more)
        before = self._states[number]
        self._states[number] = before | fact
        return before


def names_of(client: int, topics: int) -> list[str]:
    """The lite topics that a client takes: each lite topic has one client."""
    return [
        lite_name(number) for number in range(client * NAMES, min((client + 1) * NAMES, topics))
    ]


def number_of(record: MessageRecord) -> int:
    """Of a message of a lite topic."""
    return int(decode_properties(record.properties)[UNIQ_KEY][-8:], 16)


# ---- who sends


class LiteSends(Work):
    """One message for each number, by whichever slot is free; a refused one is sent again.

    Args:
        numbers: of lite topics and messages, in the order of sending.
        queues: of the parent; slots take them in turn.
        slots: how many.
        account: is told of acknowledgements.
        told: how many messages more were acknowledged, each thousand.
    """

    def __init__(
        self,
        numbers: Iterator[int],
        queues: Sequence[Queue],
        slots: int,
        account: LiteAccount,
        told: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._numbers = numbers
        self._account = account
        self._told = told
        self._templates = [
            lite(slot, PARENT, queues[slot % len(queues)], BODY) for slot in range(slots)
        ]
        self._under_way: list[int | None] = [None] * slots

    def first(self, slot: int) -> bytearray | None:
        """The message that was refused, or the next one; None when there is none left."""
        if self._under_way[slot] is None:
            self._under_way[slot] = next(self._numbers, None)
        number = self._under_way[slot]
        return None if number is None else self._templates[slot].numbered(number)

    def following(self, slot: int, _reply: Reply, _body: memoryview) -> bytearray | None:
        """See `first`."""
        number, self._under_way[slot] = self._under_way[slot], None
        assert number is not None, "a slot is answered what it has sent"
        self._account.acknowledged(number)
        self.messages += 1
        if self.messages % TOLD_EVERY == 0:
            self._told(TOLD_EVERY)
        return self.first(slot)


class LiteMessage(Message, frozen=True):
    """A message to a lite topic."""

    lite: str = ""

    def properties(self) -> str:
        """See `Message`."""
        return super().properties() + encode_properties({LITE_TOPIC: self.lite})


class LiteWriter:
    """A producer that sends to lite topics at random, one message after the other.

    Args:
        client: whose routes and connections it uses.
        topics: how many lite topics there are; messages are numbered behind theirs.
        account: is told of acknowledgements.

    Attributes:
        times: of acknowledgements.
        lost_answers: attempts whose outcome nobody knows; each was made again.
    """

    def __init__(self, client: Session, topics: int, account: LiteAccount) -> None:
        self.times = AckTimes()
        self.lost_answers = 0
        self.stops = False
        self._topics = topics
        self._account = account
        self._producer = Producer(
            client.routes,
            client.calls,
            give_up_after_s=GIVE_UP_AFTER_S,
            on_answer_lost=self._answer_lost,
        )

    async def run(self) -> None:
        """Send until `stops`."""
        chosen = random.Random(SEED)
        number = self._topics
        while not self.stops:
            name = lite_name(chosen.randrange(self._topics))
            await self._producer.send(LiteMessage(PARENT, lite_key(number), BODY, lite=name))
            self._account.acknowledged(number)
            self.times.add(time.monotonic())
            number += 1
            await asyncio.sleep(PAUSE_S)

    def _answer_lost(self, _: str) -> None:
        self.lost_answers += 1


# ---- who consumes


class LiteConsumers:
    """As many clients of one shared group as it takes; use as an async context manager.

    Args:
        name_servers: who knows the master.
        topics: how many lite topics there are.
        invisible_ms: for how long a message that was handed out is nobody else's.
        account: is told what they get.

    Attributes:
        pops: when each that brought messages was asked, and when it was answered.
        stops: they end with what they have.
    """

    def __init__(
        self, name_servers: list[str], topics: int, invisible_ms: int, account: LiteAccount
    ) -> None:
        self.pops: list[tuple[float, float]] = []
        self.stops = False
        self._name_servers = name_servers
        self._topics = topics
        self._invisible_ms = invisible_ms
        self._account = account
        self._sessions: list[Session] = []
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for _ in range(min(SESSIONS, self.count)):
            self._sessions.append(await self._open.enter_async_context(session(self._name_servers)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    @property
    def count(self) -> int:
        """Of clients."""
        return -(-self._topics // NAMES)

    async def subscribe(self) -> None:
        """Have every client say what it takes.

        Raises:
            GantryError: somebody was refused.
        """
        gate = asyncio.Semaphore(SUBSCRIBED_TOGETHER)

        async def one(client: int) -> None:
            names = names_of(client, self._topics)
            word = LiteSubscription(COMPLETE_ADD, _name(client), GROUP, PARENT, names)
            body = encode_body(LiteSubscriptions([word]))
            command = request(RequestCode.LITE_SUBSCRIPTION_CTL, {}, body)
            async with gate:
                answer = await self._ask(client, command, CALL_PATIENCE_S)
            if answer is None or answer.code != ResponseCode.SUCCESS:
                raise GantryError(f"A client could not subscribe: {answer}.")

        await asyncio.gather(*map(one, range(self.count)))

    async def run(self) -> None:
        """Take messages and acknowledge them until `stops`."""
        await asyncio.gather(*map(self._consume, range(self.count)))

    async def follow(self) -> None:
        """Have every client know who is the master now."""
        await asyncio.gather(*(one.routes.fetch(PARENT) for one in self._sessions))

    async def look(self) -> int:
        """Each client asks once, without waiting; how many messages they got.

        Raises:
            GantryError: somebody was not answered.
        """
        return sum(await asyncio.gather(*map(self._look, range(self.count))))

    async def _consume(self, client: int) -> None:
        while not self.stops:
            if await self._pop(client, POLL_MS, CALL_PATIENCE_S) is None:
                await asyncio.sleep(RETRY_S)

    async def _look(self, client: int) -> int:
        deadline_s = time.monotonic() + SCAN_PATIENCE_S
        while (found := await self._pop(client, 0, SCAN_PATIENCE_S)) is None:
            if time.monotonic() > deadline_s:
                raise GantryError("A client that looked for messages was not answered.")
            await asyncio.sleep(RETRY_S)
        return found

    async def _pop(self, client: int, poll_ms: int, patience_s: float) -> int | None:
        """Take some messages and acknowledge them; how many. None: nobody answered, or said no."""
        header = PopLiteMessageRequestHeader(
            _name(client), GROUP, PARENT, BATCH, self._invisible_ms, poll_ms
        )
        asked_s = time.monotonic()
        command = request(RequestCode.POP_LITE_MESSAGE, to_ext(header))
        answer = await self._ask(client, command, patience_s)
        if answer is not None and answer.code == ResponseCode.POLLING_TIMEOUT:
            return 0
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        self.pops.append((asked_s, time.monotonic()))
        told = from_ext(PopLiteMessageResponseHeader, answer.ext)
        records = decode_records(answer.body)
        for record in records:
            self._account.taken(number_of(record), record.queue_offset)
        await asyncio.gather(*(self._acknowledge(client, told, record) for record in records))
        return len(records)

    async def _acknowledge(
        self, client: int, told: PopLiteMessageResponseHeader, record: MessageRecord
    ) -> None:
        """Acknowledge one; again while nobody answers, and until it is free for others."""
        receipt = (
            f"{record.queue_offset} {told.pop_time} {told.invisible_time} {told.revive_qid} 0"
            f" {BROKER_GROUP} {record.queue_id} {record.queue_offset}"
        )
        header = AckMessageRequestHeader(
            consumer_group=GROUP,
            topic=PARENT,
            queue_id=record.queue_id,
            extra_info=receipt,
            offset=record.queue_offset,
            lite_topic=decode_properties(record.properties)[LITE_TOPIC],
        )
        command = request(RequestCode.ACK_MESSAGE, to_ext(header))
        deadline_s = time.monotonic() + self._invisible_ms / 1000
        while time.monotonic() < deadline_s:
            answer = await self._ask(client, command, CALL_PATIENCE_S)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self._account.done(number_of(record))
                return
            if answer is not None and answer.code == ResponseCode.NO_MESSAGE:
                return  # somebody else may have it by now
            await asyncio.sleep(RETRY_S)

    async def _ask(
        self, client: int, command: RemotingCommand, patience_s: float
    ) -> RemotingCommand | None:
        """The master's answer; None if nobody answers, or there is no master."""
        own = self._sessions[client % len(self._sessions)]
        try:
            queues = (await own.routes.find(PARENT)).writable
            answer = (
                await own.calls.call(queues[0].address, command, patience_s) if queues else None
            )
        except (RemotingError, ResolveError, NameServiceError):
            answer = None
        if answer is None or answer.code in NO_MASTER:
            own.routes.refresh_soon(PARENT)
        return answer


def _name(client: int) -> str:
    return f"agent-{client:04d}"
