"""Messages that are delivered later, or never: delayed ones, timers, and those of transactions.

A delayed message that was acknowledged is delivered once, and not before its time. So is one for a
certain moment, unless it was taken back in time: then it is never delivered. A transaction
that is committed is delivered once; its producer answers check-backs as it has decided, so this
holds also where the end of it was lost. One that is rolled back, or whose producer does not know
its end, is never delivered. Where brokers give transactions up, one whose producer never knows is
found where they put it, one that they answered to have ended is not, and none is both found there
and delivered. A copy more is excused by each answer to its send that was lost, and by
each delivery, or step of a timer, after which the log broke off: an epoch begins before the record
that says how far the level has come.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
from gantry_broker.clients.core.delay.parked import PROGRESS_GROUP
from gantry_broker.clients.core.transactions.records import GIVEN_UP_TOPIC
from gantry_broker.log.units import parse_unit
from gantry_broker.store.tables.names import OFFSETS_TOPIC
from gantry_broker.store.tables.offsets import decode_rows
from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.session import session
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.client import HeartbeatData, ProducerData
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.records import decode_offset_msg_id, decode_properties, decode_records
from gantry_protocol.records.properties import (
    DELAY_TIME_LEVEL,
    SCHEDULE_TOPIC,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from gantry_protocol.settings.delays import MAX_LEVELS
from sim.kernel.world import Violation
from sim.product.line import Line, is_unknown, send_ext
from sim.product.workload import Rests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.remoting.client import RemotingClient
    from sim.product.cluster import Cluster, Node
    from sim.product.watch import Watch

TOPIC = "parked"
LEVELS_MS = (300, 1_500)
TIMERS_MS = (50, 4_000)
IN_TIME_US = 300_000  # before its moment: nobody delivers a message that is taken back then
STEPS_MAX = 4  # until one of them; each store time is in ms
STEPS = -1  # what stands for the levels of all timers
BURST = 15
SETTINGS = {
    "delay_levels": " ".join(f"{delay_ms}ms" for delay_ms in LEVELS_MS),
    "transaction_timeout_s": 0.5,
    "transaction_check_interval_s": 0.4,
    "transaction_check_max": 1_000,
}
CHECKS_UNTIL_GIVEN_UP = 3
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
PRODUCERS = "parked"
GREETING = (
    RequestCode.HEART_BEAT,
    encode_body(HeartbeatData("parked", [ProducerData(PRODUCERS)], [])),
)


class _Message(msgspec.Struct):
    """What is known of one message.

    Attributes:
        due_us: when it may be delivered at the earliest.
        ends: whether it is to be delivered at all.
        ended: its end was answered with 0.
        given_up: how often it was found among those that were given up.
        taken_back: may be delivered or not.
    """

    due_us: int
    ends: bool = True
    acknowledged: bool = False
    lost_answers: int = 0
    delivered: int = 0
    ended: bool = False
    given_up: int = 0
    taken_back: bool = False


class Parked:
    """See the module.

    Args:
        cluster: where.
        watch: knows what is confirmed.
        gives_up: whether brokers give up transactions that nobody ends.

    Attributes:
        messages: by unique key.
        found: what must not have been delivered.
    """

    def __init__(self, cluster: Cluster, watch: Watch, *, gives_up: bool = False) -> None:
        self.messages: dict[str, _Message] = {}
        self.found: list[str] = []
        self._cluster = cluster
        self._watch = watch
        self._gives_up = gives_up
        self._stops = False
        self._outcomes: dict[str, int] = {}  # of transactions
        cluster.topics.append(TOPIC)

    def start(self) -> None:
        """Begin."""
        self._cluster.client("delaying", self._delay).boot()
        self._cluster.client("timers", self._time).boot()
        self._cluster.client("transactions", self._transact).boot()
        self._cluster.client("parked-consumer", self._consume).boot()
        if self._gives_up:
            self._cluster.client("given-up-consumer", self._find).boot()

    def stop_sending(self) -> None:
        """Send nothing more; check-backs are answered still."""
        self._stops = True

    @property
    def is_settled(self) -> bool:
        return bool(self.found) or not self._missing()

    def _missing(self) -> list[str]:
        return [
            key
            for key, message in self.messages.items()
            if message.acknowledged
            and not (message.given_up or message.delivered or message.taken_back)
            and (message.ends or (self._gives_up and self._outcomes[key] == UNKNOWN))
        ]

    def judge(self) -> None:
        """Raises Violation: something is lost, or came too early, too often, or against its end."""
        broken_off = Counter(self._broken_off())
        self.found += [
            f"{key} is delivered too often: {message}"
            for key, message in self.messages.items()
            if message.delivered > self._copies(key, message) + broken_off[key]
        ]
        self.found += [
            f"{key} is given up, and more: {message}"
            for key, message in self.messages.items()
            if message.given_up
            and not message.lost_answers
            and (message.ended or message.delivered or key not in self._outcomes)
        ]
        if self.found:
            raise Violation(f"{len(self.found)} parked messages: {self.found[:3]}")
        missing = self._missing()
        if missing:
            raise Violation(f"{len(missing)} parked are not delivered: {missing[:4]}")

    def _copies(self, key: str, message: _Message) -> int:
        """How often a message may be stored; a half message is, each time that it is sent."""
        if key in self._outcomes:
            return message.lost_answers + message.acknowledged
        return 1

    def _broken_off(self) -> Iterator[str]:
        """Keys of what was delivered in an append whose end is not in the log."""
        log, starts, at = self._watch.confirmed, self._watch.logs.starts, 0
        open_appends: dict[int, list[str]] = {}  # by level, from 0
        while at < len(log):
            if at in starts:
                yield from chain.from_iterable(open_appends.values())
                open_appends.clear()
            unit = parse_unit(bytes(log[at : at + (1 << 17)]), 0, at, check_body=False)
            data, at = bytes(log[at : at + unit.size]), at + unit.size
            topics = (TOPIC, OFFSETS_TOPIC, SCHEDULE_TOPIC)
            if unit.record is None or unit.record.topic not in topics:
                continue
            (record,) = decode_records(data)
            if record.topic == OFFSETS_TOPIC:
                for group, _, level, _ in decode_rows(record.body):
                    if group == PROGRESS_GROUP:
                        open_appends.pop(level if level < MAX_LEVELS else STEPS, None)
                continue
            properties = decode_properties(record.properties)
            if TIMER_OUT_MS in properties:
                open_appends.setdefault(STEPS, []).append(properties[UNIQ_KEY])
            elif record.topic == TOPIC and DELAY_TIME_LEVEL in properties:
                level = int(properties[DELAY_TIME_LEVEL]) - 1
                open_appends.setdefault(level, []).append(properties[UNIQ_KEY])

    # ---- clients

    async def _delay(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        async with session(self._cluster.name_servers) as client:
            line, rests = Line(client), Rests(self._cluster, node.name, BURST)
            while not self._stops:
                await rests.after_turn()
                level = rng.randint(1, len(LEVELS_MS))
                parked_us = int(LEVELS_MS[level - 1] * 1000 * (1 - self._cluster.drift))
                due_us = self._cluster.world.now_us + parked_us - 1000  # a store time is in ms
                key = self._new(rng, _Message(due_us))
                ext = send_ext(TOPIC, key, rng.randrange(2), f"DELAY\x01{level}\x02")
                await self._send(line, key, ext)
                await asyncio.sleep(rng.choice([0.0, 0.02, 0.1]))

    async def _time(self, node: Node) -> None:
        """Messages for a moment, of which some are taken back."""
        rng = self._cluster.world.stream(f"load/{node.name}")
        async with session(self._cluster.name_servers) as client:
            line, rests = Line(client), Rests(self._cluster, node.name, BURST)
            while not self._stops:
                await rests.after_turn()
                delay_ms = rng.randint(*TIMERS_MS)
                waits_us = int(delay_ms * 1000 * (1 - self._cluster.drift))
                due_us = self._cluster.world.now_us + waits_us - 1000 * STEPS_MAX
                key = self._new(rng, _Message(due_us))
                asked = f"TIMER_DELAY_MS\x01{delay_ms}\x02"
                answer = await self._send(line, key, send_ext(TOPIC, key, rng.randrange(2), asked))
                await asyncio.sleep(rng.choice([0.0, 0.02, 0.1]))
                if answer is not None and rng.random() < 0.3:
                    await self._recall(line, key, (answer.ext or {}).get("recallHandle", ""))

    async def _recall(self, line: Line, key: str, handle: str) -> None:
        message = self.messages[key]
        message.taken_back = bool(handle)
        ext = {"topic": TOPIC, "recallHandle": handle, "producerGroup": PRODUCERS}
        answer = await line.ask(RequestCode.RECALL_MESSAGE, ext)
        is_done = answer is not None and answer.code == ResponseCode.SUCCESS
        in_time = self._cluster.world.now_us < message.due_us - IN_TIME_US
        if is_done and in_time and not message.delivered:
            self._cluster.world.count("taken-back")
            message.ends = False

    async def _transact(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        async with session(self._cluster.name_servers) as client:
            line = Line(client, on_request=self._checked, greeting=GREETING)
            rests = Rests(self._cluster, node.name, BURST)
            while True:
                if self._stops:
                    await line.ask(*GREETING[:1], {}, GREETING[1])
                    await asyncio.sleep(0.5)
                    continue
                await rests.after_turn()
                outcome = rng.choice([COMMIT, COMMIT, ROLLBACK, UNKNOWN])
                key = self._new(rng, _Message(0, ends=outcome == COMMIT))
                self._outcomes[key] = outcome
                half = f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02"
                ext = {**send_ext(TOPIC, key, rng.randrange(2), half), "a": PRODUCERS, "f": 4}
                answer = await self._send(line, key, ext)
                if answer is not None and rng.random() < 0.7:
                    end = await line.ask(RequestCode.END_TRANSACTION, _end(answer, outcome))
                    done = end is not None and end.code == ResponseCode.SUCCESS
                    self.messages[key].ended = done and outcome != UNKNOWN
                    if rng.random() < 0.3:
                        await self._end_again(line, answer, outcome, rng)
                await asyncio.sleep(rng.choice([0.0, 0.02, 0.1]))

    async def _end_again(
        self, line: Line, sent: RemotingCommand, outcome: int, rng: Random
    ) -> None:
        """End it as it is not, which its first end outlasts. Raises Violation: that is taken."""
        again, key = _end(sent, outcome), (sent.ext or {})["transactionId"]
        if self.messages[key].ended:
            other = {**again, "commitOrRollback": COMMIT if outcome == ROLLBACK else ROLLBACK}
            await line.ask(RequestCode.END_TRANSACTION, other)
            self._cluster.world.count("ended-otherwise")
        wrong = rng.choice([{"commitOrRollback": 5}, {"tranStateTableOffset": 10**9}])
        if outcome == UNKNOWN and "tranStateTableOffset" in wrong:
            return
        answer = await line.ask(RequestCode.END_TRANSACTION, {**again, **wrong})
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            raise Violation(f"a transaction is ended by {wrong}: {answer}")

    def _new(self, rng: Random, message: _Message) -> str:
        key = f"{rng.getrandbits(128):032X}"
        self.messages[key] = message
        return key

    async def _send(self, line: Line, key: str, ext: dict[str, object]) -> RemotingCommand | None:
        """Send until it is acknowledged; the answer, None for none.

        A half message is sent until nobody knows whether it is stored; another one three times
        more.
        """
        message, tries = self.messages[key], 1 if key in self._outcomes else 4
        while True:
            answer = await line.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                message.acknowledged = True
                self._cluster.world.count("parked")
                return answer
            if is_unknown(answer):
                message.lost_answers += 1
                if message.lost_answers == tries:
                    return None
                self._cluster.world.count("parked-again")
            await asyncio.sleep(0.05)

    def _checked(self, line: RemotingClient, check: RemotingCommand) -> None:
        """39: how did this transaction end?"""
        if check.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        ext = check.ext or {}
        outcome = self._outcomes[ext["transactionId"]]
        self._cluster.world.count("check-back")
        copied = ("commitLogOffset", "tranStateTableOffset", "msgId", "transactionId")
        said = {name: ext[name] for name in copied}
        said |= {
            "commitOrRollback": str(outcome),
            "fromTransactionCheck": "true",
            "producerGroup": PRODUCERS,
        }
        line.oneway(request(RequestCode.END_TRANSACTION, said, oneway=True))

    async def _consume(self, node: Node) -> None:
        await self._receive(TOPIC, self._delivered)

    async def _find(self, node: Node) -> None:
        await self._receive(GIVEN_UP_TOPIC, self._was_given_up)

    async def _receive(self, topic: str, look: Callable[[str], None]) -> None:
        async with session(self._cluster.name_servers) as client:

            async def received(item: ReceivedRecord) -> None:
                look(item.key)
                consumer.done(item.position)

            consumer = Consumer(client.routes, client.calls, topic, received, start=Start.EARLIEST)
            while True:
                with suppress(Exception):
                    await consumer.run()
                await asyncio.sleep(0.2)

    def _was_given_up(self, key: str) -> None:
        self._cluster.world.count("given-up")
        self.messages[key].given_up += 1

    def _delivered(self, key: str) -> None:
        """Look at one delivery; a consumer survives whatever is raised here."""
        message = self.messages[key]
        message.delivered += 1
        if not message.ends and (not message.taken_back or self._cluster.clocks_agree):
            self.found.append(f"{key} was not committed, or taken back, and is delivered")
        early_us = message.due_us - self._cluster.world.now_us
        if early_us > 0 and self._cluster.clocks_agree:
            self.found.append(f"{key} is delivered {early_us} us before its time")


def _end(sent: RemotingCommand, outcome: int) -> dict[str, object]:
    """The header of 37, from the answer to 310."""
    ext = sent.ext or {}
    return {
        "commitLogOffset": decode_offset_msg_id(ext["msgId"])[1],
        "commitOrRollback": outcome,
        "fromTransactionCheck": False,
        "msgId": ext["transactionId"],
        "producerGroup": PRODUCERS,
        "topic": TOPIC,
        "transactionId": ext["transactionId"],
        "tranStateTableOffset": ext["queueOffset"],
    }
