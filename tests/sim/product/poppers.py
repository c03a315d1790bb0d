"""Consumers by POP: they take jobs, hide them for longer, acknowledge them, or forget them.

What was acknowledged with 0 is handed out to nobody who asks after that, whoever is master by then.
A job that somebody has is handed out to nobody else before its invisible time is over: by the
steady clocks of one master, or by the wall clocks of two (the pop times of the two answers). Every
job that its producer was acknowledged is done at the end.

One group takes any job, another one takes queues in order: there no job is handed out for the first
time before those in front of it are done. A third one has some jobs that nobody can do: these come
to its dead letters, once each, and no other job needs to be there.

An administrator changes how a group is given its queues, and a member asks which are its own.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.session import session
from gantry_protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
    encode_body,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.records import decode_properties, decode_records
from gantry_protocol.records.properties import UNIQ_KEY
from sim.kernel.world import MS, Violation
from sim.product.cluster import GROUP
from sim.product.line import Line
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from gantry_protocol.command import RemotingCommand
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

TOPIC = "pops"
GROUPS = ("any", "ordered", "few")
FEW = "few"  # of whose jobs nobody can do some
TRIES = 2  # again
DEAD = f"%DLQ%{FEW}"
MEMBERS = 2  # of each group
INVISIBLE_MS = (300, 1_000, 4_000)
WITHIN_S = 4.0
# Of an acknowledgement: whoever is busy has done nothing, nor has a master before it.
KNOWN = (ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE, ResponseCode.SYSTEM_BUSY)

Place = tuple[int, int]  # queue id and offset: a send that was repeated is two jobs


class _Job(msgspec.Struct):
    """A job as one group sees it.

    Attributes:
        done_us: when an acknowledgement was answered 0; None before.
        pop_ms: the pop time of the newest receipt, by the master's wall clock.
        free_us: it is handed out to nobody else before, by the clock of a master that stays.
        free_ms: the same by the wall clock, for another master.
        tried: how often it was handed out.
        maybe_done: nobody knows what became of an acknowledgement, and it was not handed out since.
    """

    done_us: int | None = None
    pop_ms: int = 0
    free_us: int = 0
    free_ms: int = 0
    tried: int = 0
    maybe_done: bool = False


class _Receipt(msgspec.Struct):
    """One delivery of a job, as its consumer knows it."""

    queue_id: int
    offset: int
    start: str
    pop_ms: str
    invisible_ms: str
    revive: str
    key: str

    @property
    def place(self) -> Place:
        """The place of the job."""
        return self.queue_id, self.offset

    def ext(self, group: str) -> dict[str, object]:
        """The header of what is asked with it."""
        text = (
            f"{self.start} {self.pop_ms} {self.invisible_ms} {self.revive} 0 {GROUP}"
            f" {self.queue_id} {self.offset}"
        )
        return {
            "consumerGroup": group,
            "topic": TOPIC,
            "queueId": self.queue_id,
            "offset": self.offset,
            "extraInfo": text,
        }


class Poppers(Clients):
    """See the module.

    Args:
        cluster: where.
        watch: is told of every acknowledgement of a producer.
    """

    unsettled = "jobs are not done"

    def __init__(self, cluster: Cluster, watch: Told) -> None:
        super().__init__(cluster)
        self._watch = watch
        self._jobs: dict[str, dict[Place, _Job]] = {group: {} for group in GROUPS}
        self._sent: list[Place] = []  # acknowledged
        self._keys: dict[Place, str] = {}
        self._dead: Counter[str] = Counter()  # letters, by the key of the job
        cluster.topics.append(TOPIC)

    def start(self) -> None:
        """Begin."""
        self._cluster.client("pops", self._send).boot()
        self._cluster.client("pop-modes", self._modes).boot()
        self._cluster.client("pop-letters", self._read_letters).boot()
        for group in GROUPS:
            for number in range(MEMBERS):

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
            if not (group == FEW and self._dead[self._keys[place]])
            and (place not in jobs or not (jobs[place].done_us or jobs[place].maybe_done))
        ]

    def judge(self) -> None:
        """Raises Violation: a job was never done."""
        missing = self._missing()
        if missing or self._busy:
            known = [(group, place, self._jobs[group].get(place)) for group, place in missing]
            raise Violation(f"{len(missing)} jobs are not done: {known[:3]}")
        jobs = Counter(self._keys.values())
        for key, letters in self._dead.items():
            if letters > max(jobs[key], 1):
                raise Violation(f"{key} is {letters} times among the dead letters")

    # ---- sending

    async def _send(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            producer = Producer(client.routes, client.calls)
            while not self._stops:
                message = producer.message(TOPIC, b"job")
                with suppress(SendFailedError):
                    result = await producer.send(message)
                    self._watch.acknowledged(message.key, result.offset_id)
                    place = result.position
                    self._sent.append((place.queue_id, place.queue_offset))
                    self._keys[self._sent[-1]] = message.key
                await asyncio.sleep(rng.random() * 0.2)
        self._busy -= 1

    # ---- consuming

    async def _consume(self, node: Node, group: str) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while True:
                invisible_ms = rng.choice(INVISIBLE_MS)
                asked = {
                    "consumerGroup": group,
                    "topic": TOPIC,
                    "queueId": rng.choice([-1, -1, 0]),
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
                        "initMode": 0,
                    },
                    within_s=WITHIN_S,
                )
                if answer is None or answer.code != ResponseCode.SUCCESS:
                    await asyncio.sleep(rng.random() * 0.1)
                    continue
                receipts = _receipts(answer)
                for receipt in receipts:
                    self._given(group, receipt, asked_us, invisible_ms)
                receipts = [one for one in receipts if not _is_hopeless(group, one)]
                if len(receipts) > 1 and rng.random() < 0.4:
                    await self._acknowledge(line, group, receipts)
                    continue
                for receipt in receipts:
                    await self._work(line, group, receipt, rng)

    async def _is_told(self, line: Line, asked: dict[str, object]) -> bool:
        """Wait until there is something. Raises Violation: the answer is none."""
        answer = await line.ask(RequestCode.NOTIFICATION, asked, within_s=WITHIN_S)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return False
        self._cluster.world.count("notified")
        found = (answer.ext or {}).get("hasMsg")
        if found not in ("true", "false"):
            raise Violation(f"whether there is a message: {answer.ext}")
        return found == "true"

    async def _acknowledge(self, line: Line, group: str, receipts: list[_Receipt]) -> None:
        """All in one request, which passes over those that somebody else has by now."""
        acks = [
            {
                "c": group, "t": TOPIC, "q": receipt.queue_id, "pt": int(receipt.pop_ms), "r": "0",
                "so": receipt.offset, "b": base64.b64encode(b"\x01").decode(),
            }
            for receipt in receipts
        ]  # fmt: skip
        body = json.dumps({"brokerName": GROUP, "acks": acks}).encode()
        answer = await line.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body, within_s=WITHIN_S)
        now_us = self._cluster.world.now_us
        for receipt in receipts:
            job = self._jobs[group][receipt.place]
            if job.pop_ms != int(receipt.pop_ms):
                continue
            job.maybe_done = True
            if answer is not None and answer.code == ResponseCode.SUCCESS and now_us < job.free_us:
                job.done_us = job.done_us or now_us  # nobody else can have had it
                self._cluster.world.count("acked by batch")

    def _given(self, group: str, receipt: _Receipt, asked_us: int, invisible_ms: int) -> None:
        """Raises Violation: a job is handed out that is done, or that somebody has."""
        now_us = self._cluster.world.now_us
        self._keys[receipt.place] = receipt.key  # of a repeated send, too
        job = self._jobs[group].setdefault(receipt.place, _Job())
        if job.done_us is not None and asked_us > job.done_us:
            raise Violation(f"done at {job.done_us}, and handed out: {receipt}")
        if int(receipt.pop_ms) < job.pop_ms:
            return  # an answer that was long on its way: somebody else has got it since
        if job.tried:
            if now_us < job.free_us and int(receipt.pop_ms) < job.free_ms:
                raise Violation(f"handed out to two: {job}, {receipt}")
            self._cluster.world.count("popped-again")
        if group == "ordered" and not job.tried:
            self._judge_order(receipt)
        job.tried += 1
        job.maybe_done = False  # it was not done, and an older receipt does nothing any more
        job.pop_ms = int(receipt.pop_ms)
        job.free_us, job.free_ms = self._hidden(asked_us, job.pop_ms, invisible_ms)
        self._cluster.world.count("popped")

    def _hidden(self, asked_us: int, pop_ms: int, invisible_ms: int) -> tuple[int, int]:
        """Until when a job is hidden, by the clock of a master and by the wall clock."""
        least_us = int(invisible_ms * MS * (1 - 2 * self._cluster.drift)) - MS
        return asked_us + least_us, pop_ms + invisible_ms

    def _judge_order(self, receipt: _Receipt) -> None:
        """Raises Violation: one in front of it was never handed out."""
        for place in self._sent:
            is_before = place[0] == receipt.queue_id and place[1] < receipt.offset
            if is_before and place not in self._jobs["ordered"]:
                raise Violation(f"{receipt} comes before {place}")

    async def _work(self, line: Line, group: str, receipt: _Receipt, rng: Random) -> None:
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
        ack = await line.ask(RequestCode.ACK_MESSAGE, receipt.ext(group), within_s=WITHIN_S)
        job = self._jobs[group][receipt.place]
        if ack is None or ack.code not in KNOWN:
            job.maybe_done = True
        elif ack.code == ResponseCode.SUCCESS:
            job.done_us = job.done_us or self._cluster.world.now_us
            self._cluster.world.count("acked")

    # ---- modes and dead letters

    async def _modes(self, node: Node) -> None:
        """Change the mode of a group, and ask as its member. Raises Violation: an odd answer."""
        rng = self._cluster.world.stream(f"load/{node.name}")
        group = "any"
        data = HeartbeatData(
            node.name,
            [ProducerData("pop-modes")],
            [ConsumerData(group, subscription_data_set=[SubscriptionData(TOPIC)])],
        )
        heartbeat = (RequestCode.HEART_BEAT, encode_body(data))
        question = {"topic": TOPIC, "consumerGroup": group, "clientId": node.name}
        async with session(self._cluster.name_servers) as client:
            line = Line(client, greeting=heartbeat)
            config = encode_body(SubscriptionGroupConfig(FEW, retry_max_times=TRIES))
            await line.insist(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config)
            while not self._stops:
                await line.ask(heartbeat[0], {}, heartbeat[1])
                mode = rng.choice(["POP", "PULL"])
                body = {**question, "mode": mode, "popShareQueueNum": rng.choice([0, 1, 3])}
                set_mode = await line.ask(
                    RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(body).encode()
                )
                answer = await line.ask(
                    RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(question).encode()
                )
                if set_mode is not None and set_mode.code == ResponseCode.SUCCESS:
                    self._judge_assignment(answer, mode)
                await asyncio.sleep(rng.random())

    def _judge_assignment(self, answer: RemotingCommand | None, mode: str) -> None:
        """Raises Violation: other queues than its only member has, or in another mode."""
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        found = json.loads(answer.body).get("messageQueueAssignments")
        if found is None:
            return  # nobody can say now: it keeps what it has
        self._cluster.world.count(f"assigned {mode}")
        queues = {one["messageQueue"]["queueId"] for one in found}
        is_shared = mode == "POP" and queues == {-1}  # a broker chooses the queue
        if any(one["mode"] != mode for one in found) or not (is_shared or queues):
            raise Violation(f"the queues of {mode} are {found}")

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
                    self._dead[decode_properties(record.properties)[UNIQ_KEY]] += 1
                    self._cluster.world.count("dead-letter")
                    at = record.queue_offset + 1


def _is_hopeless(group: str, receipt: _Receipt) -> bool:
    """Whether nobody can do this job."""
    return group == FEW and receipt.offset % 4 == 0


def _receipts(answer: RemotingCommand) -> list[_Receipt]:
    """The receipts of an answer, as Java's client makes them."""
    ext = answer.ext or {}
    starts = {
        int(queue_id): start
        for _, queue_id, start in (part.split(" ") for part in ext["startOffsetInfo"].split(";"))
    }
    return [
        _Receipt(
            record.queue_id,
            record.queue_offset,
            starts[record.queue_id],
            ext["popTime"],
            ext["invisibleTime"],
            ext["reviveQid"],
            decode_properties(record.properties)[UNIQ_KEY],
        )
        for record in decode_records(answer.body)
    ]
