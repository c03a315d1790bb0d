"""Consumers by POP: they take jobs, hide them for longer, acknowledge them, or forget them.

What was acknowledged with 0 is handed out to nobody who asks after that, whoever is master by then.
A job that somebody has is handed out to nobody else before its invisible time is over: by the
steady clocks of one master, or by the wall clocks of two (the pop times of the two answers). Every
job that its producer was acknowledged is done at the end.

One group takes any job, another one takes queues in order: there no job is handed out for the first
time before those in front of it are done. A third one has some jobs that nobody can do: these come
to its dead letters, once each, after all their tries, and are handed out to nobody from then on. A
job that was acknowledged while somebody had it is no dead letter.

Each answer says how often the job was handed out before, at least as often as anybody knows. Who is
told that there is a message is told of one that is not done.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections import Counter, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.session import session
from gantry_protocol.bodies import SubscriptionGroupConfig, encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.queue_map import number_of
from gantry_protocol.records import decode_properties, decode_records, offset_msg_id
from gantry_protocol.records.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from sim.kernel.world import MS, Violation
from sim.product.cluster import GROUP
from sim.product.line import Line
from sim.product.workload import Clients

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from gantry_broker.clients.consumers import Consumers
    from gantry_cli.client.session import Session
    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.records import MessageRecord
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

TOPIC = "pops"
QUEUES = 2
GROUPS = ("any", "ordered", "few")
FEW = "few"  # of whose jobs nobody can do some
TRIES = 2  # again
DEAD = f"%DLQ%{FEW}"
BODY = b"job"
MEMBERS = 2  # of each group
INVISIBLE_MS = (300, 1_000, 4_000)
WITHIN_S = 4.0
# Of an acknowledgement: whoever is busy has done nothing, nor has a master before it.
REFUSED = (ResponseCode.NO_MESSAGE, ResponseCode.SYSTEM_BUSY)
KNOWN = (ResponseCode.SUCCESS, *REFUSED)

Place = tuple[int, int]  # queue id and offset: a send that was repeated is two jobs


class Job(msgspec.Struct):
    """A job as one group sees it.

    Attributes:
        done_us: when an acknowledgement was answered 0; None before.
        pop_ms: the pop time of the newest receipt, by the master's wall clock.
        free_us: it is handed out to nobody else before, by the clock of a master that stays.
        free_ms: the same by the wall clock, for another master.
        tried: how often it was handed out.
        before: how often it had been handed out before the newest time that anybody knows of.
        is_sure: it was acknowledged while nobody else could have it, nor the dead letters.
        maybe_done: nobody knows what became of an acknowledgement, and it was not handed out since.
    """

    done_us: int | None = None
    pop_ms: int = 0
    free_us: int = 0
    free_ms: int = 0
    tried: int = 0
    before: int = -1
    is_sure: bool = False
    maybe_done: bool = False


class Receipt(msgspec.Struct):
    """One delivery of a job, as its consumer knows it."""

    queue_id: int
    offset: int
    start: str
    pop_ms: str
    invisible_ms: str
    revive: str
    before: int
    id: str
    broker: str
    topic: str

    @property
    def place(self) -> Place:
        """The place of the job; a segment of a mapped queue has its offsets."""
        return number_of(self.queue_id), self.offset

    def ext(self, group: str) -> dict[str, object]:
        """The header of what is asked with it."""
        text = (
            f"{self.start} {self.pop_ms} {self.invisible_ms} {self.revive} 0 {self.broker}"
            f" {self.queue_id} {self.offset}"
        )
        return {
            "consumerGroup": group,
            "topic": self.topic,
            "queueId": self.queue_id,
            "offset": self.offset,
            "extraInfo": text,
        }


class _Claim(NamedTuple):
    """An answer that there is a message.

    Attributes:
        group: for whom.
        queue_id: where; below 0 anywhere.
        asked_us: when that was asked.
        told_us: when it was answered.
    """

    group: str
    queue_id: int
    asked_us: int
    told_us: int


class Poppers(Clients):
    """See the module.

    Args:
        cluster: where.
        watch: is told of every acknowledgement of a producer.

    Attributes:
        topic: of the jobs.
        queues: that consumers ask for; -1 for any.
        hasty: groups that acknowledge all that they are given at once.
    """

    unsettled = "jobs are not done"
    topic = TOPIC
    queues: tuple[int, ...] = (-1, -1, 0)
    hasty: tuple[str, ...] = ()

    def __init__(self, cluster: Cluster, watch: Told) -> None:
        super().__init__(cluster)
        self._watch = watch
        self._jobs: dict[str, dict[Place, Job]] = {group: {} for group in GROUPS}
        self._sent: list[Place] = []  # acknowledged
        self._begun_us: dict[Place, int] = {}  # when one of them was sent
        self._ids: dict[Place, str] = {}
        self._letters: Counter[str] = Counter()  # by the id of the job
        self._dead_us: dict[str, int] = {}  # when a job was read there
        self._claims: list[_Claim] = []
        self._acked: set[tuple[str, Place]] = set()  # or about to be
        self._is_set_up = False
        self._knew: list[Consumers | None] = []  # of brokers that had read our settings
        self._make_topic()

    def _make_topic(self) -> None:
        """Have the topic made."""
        self._cluster.topics.append(self.topic)

    def start(self) -> None:
        """Begin."""
        self._cluster.client("pops", self._send).boot()
        self._cluster.client("pop-few", self._set_up).boot()
        self._cluster.client("pop-letters", self._read_letters).boot()
        self._start_consumers(GROUPS)

    def _start_consumers(self, groups: Iterable[str], members: int = MEMBERS) -> None:
        for group in groups:
            for number in range(members):

                async def run(node: Node, group: str = group) -> None:
                    await self._consume(node, group)

                self._cluster.client(f"popper-{group}-{number}", run).boot()

    @property
    def is_settled(self) -> bool:
        return not self._busy and not self._missing()

    def _missing(self) -> list[tuple[str, Place]]:
        return [
            (group, place)
            for group, jobs in self._jobs.items()
            for place in self._sent
            if not (group == FEW and self._ids[place] in self._dead_us)
            and (place not in jobs or not (jobs[place].done_us or jobs[place].maybe_done))
        ]

    def judge(self) -> None:
        """Raises Violation: a job was never done, or was and is a dead letter, or is two."""
        missing = self._missing()
        if missing or self._busy:
            known = [(group, place, self._jobs[group].get(place)) for group, place in missing]
            raise Violation(f"{len(missing)} jobs are not done: {known[:3]}")
        for one, letters in self._letters.items():
            if letters > 1:
                raise Violation(f"{one} is {letters} times among the dead letters")
        for place, job in self._jobs[FEW].items():
            if job.is_sure and self._ids[place] in self._dead_us:
                raise Violation(f"acknowledged in time, and a dead letter: {place}, {job}")
        for claim in self._claims:
            if not any(self._explains(place, claim) for place in self._places(claim)):
                raise Violation(f"there was nothing: {claim}")

    def _places(self, claim: _Claim) -> list[Place]:
        """Of all jobs that the answer may have meant."""
        known = dict.fromkeys([*self._sent, *self._jobs[claim.group]])
        return [place for place in known if claim.queue_id in (-1, place[0])]

    def _explains(self, place: Place, claim: _Claim) -> bool:
        """Whether a job was there at the time, and not done."""
        job = self._jobs[claim.group].get(place, Job())
        over_us = [job.done_us or math.inf]
        if claim.group == FEW:
            over_us.append(self._dead_us.get(self._ids[place], math.inf))
        is_there = self._begun_us.get(place, 0) < claim.told_us
        return is_there and min(over_us) > claim.asked_us

    # ---- sending

    async def _send(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            producer = Producer(client.routes, client.calls)
            while not self._stops:
                message = producer.message(TOPIC, BODY)
                begun_us = self._cluster.world.now_us
                with suppress(SendFailedError):
                    result = await producer.send(message)
                    self._watch.acknowledged(message.key, result.offset_id)
                    place = result.position
                    self._sent.append((place.queue_id, place.queue_offset))
                    self._begun_us[self._sent[-1]] = begun_us
                    self._ids[self._sent[-1]] = result.offset_id
                await asyncio.sleep(rng.random() * 0.2)
        self._busy -= 1

    # ---- consuming

    async def _consume(self, node: Node, group: str) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        async with session(self._cluster.name_servers) as client:
            lines = self._lines_of(client)
            while group == FEW and not self._is_set_up:
                await asyncio.sleep(0.1)
            while True:
                await self._before_asking(group, lines, rng)
                broker, line = lines[0] if len(lines) == 1 else rng.choice(lines)
                invisible_ms = rng.choice(INVISIBLE_MS)
                asked = {
                    "consumerGroup": group,
                    "topic": self.topic,
                    "queueId": rng.choice(self.queues),
                    "pollTime": rng.choice([0, 500, 2_000]),
                    "bornTime": 0,
                    "order": group == "ordered",
                }
                if rng.random() < 0.2 and not await self._is_told(line, asked):
                    continue
                asked_us = self._cluster.world.now_us
                answer = await line.ask(
                    RequestCode.POP_MESSAGE,
                    {
                        **asked,
                        "maxMsgNums": rng.choice([1, 4, 32]),
                        "invisibleTime": invisible_ms,
                        "initMode": self._begins_at(group),
                    },
                    within_s=WITHIN_S,
                )
                if answer is None or answer.code != ResponseCode.SUCCESS:
                    await asyncio.sleep(rng.random() * 0.1)
                    continue
                receipts = _receipts(answer, broker, self.topic)
                for receipt in receipts:
                    self._given(group, receipt, asked_us, invisible_ms)
                receipts = [one for one in receipts if not _is_hopeless(group, one)]
                is_hasty = len(receipts) > 1 and rng.random() < 0.4
                if is_hasty or group in self.hasty:
                    await self._acknowledge(line, group, receipts)
                    continue
                for receipt in receipts:
                    await self._work(line, group, receipt, rng)

    async def _before_asking(
        self, group: str, lines: Sequence[tuple[str, Line]], rng: Random
    ) -> None:
        """What a consumer does before it asks for jobs; it has none then."""

    def _lines_of(self, client: Session) -> list[tuple[str, Line]]:
        """The broker groups to pop from, with a connection to each."""
        return [(GROUP, Line(client))]

    def _begins_at(self, group: str) -> int:
        """0: with what is there; 1: with what is new."""
        return 0

    async def _is_told(self, line: Line, asked: dict[str, object]) -> bool:
        """Wait until there is something. Raises Violation: the answer is none."""
        asked_us = self._cluster.world.now_us
        answer = await line.ask(RequestCode.NOTIFICATION, asked, within_s=WITHIN_S)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return False
        self._cluster.world.count("notified")
        found = (answer.ext or {}).get("hasMsg")
        if found not in ("true", "false"):
            raise Violation(f"whether there is a message: {answer.ext}")
        if found == "true":
            told_us = self._cluster.world.now_us
            claim = _Claim(
                str(asked["consumerGroup"]), int(str(asked["queueId"])), asked_us, told_us
            )
            self._claims.append(claim)
            self._cluster.world.count("told of a message")
        return found == "true"

    async def _acknowledge(self, line: Line, group: str, receipts: list[Receipt]) -> None:
        """All in one request, which passes over those that somebody else has by now."""
        offsets = defaultdict(list)
        for receipt in receipts:
            offsets[receipt.queue_id, int(receipt.pop_ms)].append(receipt.offset)
        acks = [
            {
                "c": group, "t": self.topic, "q": queue_id, "pt": pop_ms, "r": "0",
                "so": min(found), "b": _bits(one - min(found) for one in found),
            }
            for (queue_id, pop_ms), found in offsets.items()
        ]  # fmt: skip
        self._acked |= {(group, receipt.place) for receipt in receipts}
        body = json.dumps({"brokerName": receipts[0].broker, "acks": acks}).encode()
        answer = await line.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body, within_s=WITHIN_S)
        now_us = self._cluster.world.now_us
        for receipt in receipts:
            job = self._jobs[group][receipt.place]
            if job.pop_ms != int(receipt.pop_ms):
                continue
            if answer is not None and answer.code in REFUSED:
                continue
            job.maybe_done = True
            is_done = answer is not None and answer.code == ResponseCode.SUCCESS
            if is_done and self._is_own(job, now_us):
                job.done_us, job.is_sure = job.done_us or now_us, True
                self._cluster.world.count("acked by batch")

    def _is_own(self, job: Job, now_us: int) -> bool:
        """Whether nobody else can have had a job since it was handed out, nor the dead letters.

        Another master counts its time by another wall clock.
        """
        return now_us < job.free_us and self._cluster.clocks_agree

    def _given(self, group: str, receipt: Receipt, asked_us: int, invisible_ms: int) -> None:
        """Raises Violation: a job is handed out that is done, or that somebody has."""
        now_us = self._cluster.world.now_us
        self._ids[receipt.place] = receipt.id  # of a repeated send, too
        if group == FEW:
            self._judge_tries(receipt, asked_us)
        job = self._jobs[group].setdefault(receipt.place, Job())
        if job.done_us is not None and asked_us > job.done_us:
            raise Violation(f"done at {job.done_us}, and handed out: {receipt}")
        if int(receipt.pop_ms) < job.pop_ms:
            return  # an answer that was long on its way: somebody else has got it since
        if job.tried:
            if now_us < job.free_us and int(receipt.pop_ms) < job.free_ms:
                raise Violation(f"handed out to two: {job}, {receipt}")
            if receipt.before <= job.before:
                raise Violation(f"handed out before more often: {job}, {receipt}")
            self._cluster.world.count("popped-again")
        if group == "ordered" and not job.tried:
            self._judge_order(receipt)
        job.tried += 1
        job.before = receipt.before
        job.maybe_done = False  # it was not done, and an older receipt does nothing any more
        job.pop_ms = int(receipt.pop_ms)
        job.free_us, job.free_ms = self._hidden(asked_us, job.pop_ms, invisible_ms)
        self._cluster.world.count("popped")

    def _judge_tries(self, receipt: Receipt, asked_us: int) -> None:
        """Raises Violation: it was handed out too often, or is among the dead letters."""
        if receipt.before > TRIES and self._is_bounded():
            raise Violation(f"{receipt} may be tried {TRIES} times again")
        dead_us = self._dead_us.get(receipt.id)
        if dead_us is not None and asked_us > dead_us:
            raise Violation(f"a dead letter at {dead_us}, and handed out: {receipt}")

    def _hidden(self, asked_us: int, pop_ms: int, invisible_ms: int) -> tuple[int, int]:
        """Until when a job is hidden, by the clock of a master and by the wall clock."""
        least_us = int(invisible_ms * MS * (1 - 2 * self._cluster.drift)) - MS
        return asked_us + least_us, pop_ms + invisible_ms

    def _judge_order(self, receipt: Receipt) -> None:
        """Raises Violation: one in front of it was never handed out."""
        for place in self._sent:
            is_before = place[0] == receipt.place[0] and place[1] < receipt.offset
            if is_before and place not in self._jobs["ordered"]:
                raise Violation(f"{receipt} comes before {place}")

    async def _work(self, line: Line, group: str, receipt: Receipt, rng: Random) -> None:
        """Acknowledge a job, hide it for longer and acknowledge it then, or forget it."""
        chance = rng.random()
        if chance < 0.1 and not self._stops:
            return
        if chance < 0.25:
            hidden_ms = rng.choice(INVISIBLE_MS)
            asked_us = self._cluster.world.now_us
            job = self._jobs[group][receipt.place]
            free_us, free_ms = self._hidden(asked_us, int(receipt.pop_ms), hidden_ms)
            job.free_us, job.free_ms = min(job.free_us, free_us), min(job.free_ms, free_ms)
            answer = await line.ask(
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                {**receipt.ext(group), "invisibleTime": hidden_ms},
                within_s=WITHIN_S,
            )
            if answer is None or answer.code != ResponseCode.SUCCESS:
                return
            assert answer.ext is not None
            receipt.pop_ms, receipt.invisible_ms = answer.ext["popTime"], str(hidden_ms)
            if int(receipt.pop_ms) > job.pop_ms:
                job.pop_ms = int(receipt.pop_ms)
                job.free_us, job.free_ms = self._hidden(asked_us, job.pop_ms, hidden_ms)
            self._cluster.world.count("hidden")
        await asyncio.sleep(rng.choice([0.0, 0.01, 0.4]))
        self._acked.add((group, receipt.place))
        ack = await line.ask(RequestCode.ACK_MESSAGE, receipt.ext(group), within_s=WITHIN_S)
        job = self._jobs[group][receipt.place]
        if ack is None or ack.code not in KNOWN:
            job.maybe_done = True
        elif ack.code == ResponseCode.SUCCESS:
            now_us = self._cluster.world.now_us
            job.done_us = job.done_us or now_us
            is_newest = job.pop_ms == int(receipt.pop_ms)
            job.is_sure = job.is_sure or (is_newest and self._is_own(job, now_us))
            self._cluster.world.count("acked")

    # ---- dead letters

    async def _set_up(self, node: Node) -> None:
        """Bound the tries of the jobs of one group, before somebody takes any."""
        async with session(self._cluster.name_servers) as client:
            config = encode_body(SubscriptionGroupConfig(FEW, retry_max_times=TRIES))
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await Line(client).insist(code, {}, config)
        while not all(book and book.config(FEW).retry_max_times == TRIES for book in self._books()):
            await asyncio.sleep(0.1)
        self._knew = self._books()
        self._is_set_up = True

    def _books(self) -> list[Consumers | None]:
        """The settings that each broker has read; None where it has begun to read none."""
        groups = [self._cluster.group_of(node) for node in self._cluster.brokers]
        return [None if group is None else group.known_consumers for group in groups]

    def _is_bounded(self) -> bool:
        """Whether no broker began anew: that one takes upstream's bound until it has read ours."""
        return all(now is then for now, then in zip(self._books(), self._knew, strict=True))

    async def _read_letters(self, node: Node) -> None:
        """Read the dead letters as they come."""
        at = 0
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while True:
                await asyncio.sleep(0.2)
                header = PullMessageRequestHeader(
                    "letters", DEAD, 0, at, 32, 4, 0, 0, 0, "*", "TAG"
                )
                answer = await line.ask(RequestCode.PULL_MESSAGE, to_ext(header))
                if answer is None or answer.code != ResponseCode.SUCCESS:
                    continue
                for record in decode_records(answer.body):
                    self._buried(record)
                    at = record.queue_offset + 1

    def _buried(self, record: MessageRecord) -> None:
        """Raises Violation: a dead letter is not what was sent, or had not all its tries."""
        properties = decode_properties(record.properties)
        if record.body != BODY or properties.get(RETRY_TOPIC) != TOPIC:
            raise Violation(f"no job of this topic is dead: {record}")
        too_often = record.reconsume_times > TRIES + 1 and self._is_bounded()
        if too_often or record.reconsume_times <= TRIES:
            raise Violation(f"dead after {record.reconsume_times} tries: {record}")
        one = properties[ORIGIN_MESSAGE_ID]
        self._letters[one] += 1
        self._dead_us.setdefault(one, self._cluster.world.now_us)
        self._cluster.world.count("dead-letter")


def _is_hopeless(group: str, receipt: Receipt) -> bool:
    """Whether nobody can do this job."""
    return group == FEW and receipt.offset % 4 == 0


def _bits(numbers: Iterable[int]) -> str:
    """These numbers as a ``BitSet`` of Java, in Base64."""
    found = sum(1 << number for number in numbers)
    return base64.b64encode(found.to_bytes(found.bit_length() // 8 + 1, "little")).decode()


def _receipts(answer: RemotingCommand, broker: str, topic: str) -> list[Receipt]:
    """The receipts of an answer, as Java's client makes them."""
    ext = answer.ext or {}
    starts = {
        int(queue_id): start
        for _, queue_id, start in (part.split(" ") for part in ext["startOffsetInfo"].split(";"))
    }
    return [
        Receipt(
            record.queue_id,
            record.queue_offset,
            starts[record.queue_id],
            ext["popTime"],
            ext["invisibleTime"],
            ext["reviveQid"],
            record.reconsume_times,
            offset_msg_id(*record.store_host, record.physical_offset),
            broker,
            topic,
        )
        for record in decode_records(answer.body)
    ]
