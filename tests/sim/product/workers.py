"""A consumer group as clients make one: members that divide queues, fail, send back, are reset.

Members heartbeat, ask who they are (38), pull by their subscription, and commit with their pulls.
Each job says how often it fails. Then it is sent back (36) and comes again from the retry topic,
one try later and not before its delay; one that fails too often goes to the dead letters, and no
other does. Every acknowledged job is consumed or dead at the end, whoever of the members hangs up.

An administrator moves the group back (222) while it consumes. Once that is answered, every job from
there on is handed out again, whatever members commit meanwhile and whoever is master by then.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.session import session
from gantry_protocol.bodies import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    decode_body,
    encode_body,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import reply
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.brokeradmin import ResetOffsetRequestHeader
from gantry_protocol.headers.client import (
    ConsumerSendMsgBackRequestHeader,
    PullMessageRequestHeader,
    UnregisterClientRequestHeader,
)
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.records import MessageRecord, decode_properties, decode_records
from gantry_protocol.records.properties import RETRY_TOPIC, UNIQ_KEY
from sim.kernel.world import Violation
from sim.product.line import Line

if TYPE_CHECKING:
    from random import Random

    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.remoting.client import RemotingClient
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

TOPIC, WORKERS = "jobs", "workers"
RETRY, DEAD = f"%RETRY%{WORKERS}", f"%DLQ%{WORKERS}"
QUEUES = [(RETRY, 0), (TOPIC, 0), (TOPIC, 1)]
MEMBERS = 2
TRIES_MAX = 2  # after the first
DELAY_LEVEL = 1
COMMITS_AND_WAITS = 1 | 2
HEARTBEAT_S = 1.0
MOVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class _Job(msgspec.Struct):
    """One job.

    Attributes:
        fails: how many tries fail.
        place: queue and offset, once it is acknowledged.
        back_us: when try number N was sent back first.
        given_us: when it was handed out from ``place`` last; -1 for never.
        owed_us: it must be handed out from there after this; None where a reset went past it.
    """

    fails: int
    place: tuple[int, int] | None = None
    back_us: dict[int, int] = msgspec.field(default_factory=dict)
    given_us: int = -1
    owed_us: int | None = 0
    is_done: bool = False
    is_dead: bool = False


class Workers:
    """See the module.

    Args:
        cluster: where.
        watch: is told of every acknowledgement.
        delay_ms: of the delay level that failed jobs wait for.

    Attributes:
        jobs: by unique key.
        found: what must not be.
    """

    def __init__(self, cluster: Cluster, watch: Told, delay_ms: int) -> None:
        self.jobs: dict[str, _Job] = {}
        self.found: list[str] = []
        self._cluster = cluster
        self._watch = watch
        self._delay_us = int(delay_ms * 1000 * (1 - cluster.drift)) - 1000  # store times are in ms
        self._stops = False
        self._sending = 0
        self._resetting = 0
        cluster.topics.append(TOPIC)

    def start(self) -> None:
        """Begin."""
        self._cluster.client("jobs", self._send).boot()
        for number in range(MEMBERS):
            self._cluster.client(f"worker-{number}", self._work).boot()
        self._cluster.client("resets", self._reset).boot()
        self._cluster.client("dead-letters", self._read_dead).boot()

    def stop_sending(self) -> None:
        """Send and reset nothing more; what there is goes on being worked at."""
        self._stops = True

    @property
    def is_settled(self) -> bool:
        return bool(self.found) or not (self._sending or self._resetting or self._missing())

    def _missing(self) -> list[str]:
        """What is promised and has not come."""
        missing = []
        for key, job in self.jobs.items():
            if job.place is None:
                continue
            if job.owed_us is not None and job.given_us <= job.owed_us:
                missing.append(f"{key} at {job.place} is owed since {job.owed_us}: {job}")
            elif job.given_us >= 0 and not (job.is_dead if job.fails > TRIES_MAX else job.is_done):
                missing.append(f"{key} did not come to its end: {job}")
        return missing

    def judge(self) -> None:
        """Raises Violation: a job is lost, came too early, or died of what does not kill."""
        if self.found:
            raise Violation(f"{len(self.found)} jobs: {self.found[:3]}")
        if not self.is_settled:
            missing = self._missing()
            raise Violation(
                f"{len(missing)} jobs are missing, {self._sending + self._resetting} under way: "
                f"{missing[:3]}"
            )

    # ---- sending

    async def _send(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._sending += 1
        async with session(self._cluster.name_servers) as client:
            producer = Producer(client.routes, client.calls)
            while not self._stops:
                message = producer.message(TOPIC, b"job")
                job = self.jobs[message.key] = _Job(rng.choice([0, 0, 0, 1, 2, 3]))
                with suppress(SendFailedError):
                    result = await producer.send(message)
                    self._watch.acknowledged(message.key, result.offset_id)
                    job.place = (result.position.queue_id, result.position.queue_offset)
                await asyncio.sleep(rng.random() * 0.2)
        self._sending -= 1

    # ---- members

    async def _work(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        subscriptions = [SubscriptionData(topic) for topic in (RETRY, TOPIC)]
        data = HeartbeatData(
            node.name,
            [ProducerData("workers-producers")],
            [ConsumerData(WORKERS, subscription_data_set=subscriptions)],
        )
        heartbeat = (RequestCode.HEART_BEAT, encode_body(data))
        async with session(self._cluster.name_servers) as client:
            line = Line(client, on_request=self._asked, greeting=heartbeat)
            offsets: dict[tuple[str, int], int] = {}
            while True:
                await line.ask(heartbeat[0], {}, heartbeat[1])
                mine = await self._mine(line, node.name)
                offsets = {queue: offset for queue, offset in offsets.items() if queue in mine}
                deadline_us = self._cluster.world.now_us + int(HEARTBEAT_S * 1e6)
                while mine and self._cluster.world.now_us < deadline_us:
                    for queue in mine:
                        await self._pull(line, queue, offsets)
                if not mine:
                    await asyncio.sleep(0.2)
                if not self._stops and rng.random() < 0.05:
                    await self._leave(line, node.name, rng)
                    offsets.clear()

    async def _leave(self, line: Line, name: str, rng: Random) -> None:
        """End, politely or not, and begin anew later."""
        self._cluster.world.count("member-left")
        if rng.random() < 0.5:
            header = UnregisterClientRequestHeader(name, "workers-producers", WORKERS)
            await line.ask(RequestCode.UNREGISTER_CLIENT, to_ext(header))
        line.hang_up()
        await asyncio.sleep(rng.random())

    async def _mine(self, line: Line, name: str) -> list[tuple[str, int]]:
        """The queues of this member, by the rule that all members have."""
        answer = await line.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": WORKERS})
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return []
        members = sorted(decode_body(ConsumerIdList, answer.body).consumer_id_list)
        if name not in members:
            self.found.append(f"{name} is told that it is no member: {members}")
            return []
        place = members.index(name)
        return [queue for at, queue in enumerate(QUEUES) if at % len(members) == place]

    async def _pull(
        self, line: Line, queue: tuple[str, int], offsets: dict[tuple[str, int], int]
    ) -> None:
        topic, queue_id = queue
        offset = offsets.get(queue)
        if offset is None:
            offset = await self._committed(line, topic, queue_id)
            if offset is None:
                await asyncio.sleep(0.1)
                return
        header = PullMessageRequestHeader(
            WORKERS, topic, queue_id, offset, 8, COMMITS_AND_WAITS, offset, 100, 0
        )
        answer = await line.ask(RequestCode.PULL_MESSAGE, to_ext(header))
        if answer is None or answer.code not in MOVED:
            await asyncio.sleep(0.05)
            return
        if answer.code == ResponseCode.SUCCESS:
            for record in decode_records(answer.body):
                await self._take(line, record)
        offsets[queue] = int((answer.ext or {})["nextBeginOffset"])

    async def _committed(self, line: Line, topic: str, queue_id: int) -> int | None:
        """Where the group is; its beginning if it is nowhere yet."""
        where = {"consumerGroup": WORKERS, "topic": topic, "queueId": queue_id}
        asked = {**where, "setZeroIfNotFound": False}
        answer = await line.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
        if answer is not None and answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        return int((answer.ext or {})["offset"])

    async def _take(self, line: Line, record: MessageRecord) -> None:
        """Do a job, or fail and send it back."""
        properties = decode_properties(record.properties)
        key, tries = properties[UNIQ_KEY], record.reconsume_times
        job = self.jobs[key]
        self._given(key, job, record, properties)
        if tries >= job.fails:
            job.is_done = True
            return
        job.back_us.setdefault(tries, self._cluster.world.now_us)
        self._cluster.world.count("sent-back")
        header = ConsumerSendMsgBackRequestHeader(
            record.physical_offset, WORKERS, DELAY_LEVEL, key, TOPIC, False, TRIES_MAX
        )
        await line.insist(RequestCode.CONSUMER_SEND_MSG_BACK, to_ext(header))

    def _given(
        self, key: str, job: _Job, record: MessageRecord, properties: dict[str, str]
    ) -> None:
        now_us, tries = self._cluster.world.now_us, record.reconsume_times
        if record.topic == TOPIC:
            place = (record.queue_id, record.queue_offset)
            if job.place in (None, place):
                job.given_us = now_us
            if tries:
                self.found.append(f"{key} has {tries} tries in its own topic")
            return
        back_us = job.back_us.get(tries - 1)
        if back_us is None or properties.get(RETRY_TOPIC) != TOPIC:
            self.found.append(f"{key} comes for the {tries}. time and was not sent back: {job}")
        elif now_us < back_us + self._delay_us and self._cluster.clocks_agree:
            self.found.append(f"{key} comes again {now_us - back_us} us after it was sent back")

    def _asked(self, line: RemotingClient, request: RemotingCommand) -> RemotingCommand | None:
        """What brokers ask members: 221, 307 and 309 are answered, 40 is for the next round."""
        self._cluster.world.count(f"asked-{request.code}")
        if request.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return reply(request, body=b'{"messageQueueTable":{}}')
        return reply(request, body=b"{}")

    # ---- resets

    async def _reset(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._resetting += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while not self._stops:
                await asyncio.sleep(rng.choice([0.5, 1.5, 4.0]))
                await self._one_reset(line, rng)
        self._resetting -= 1

    async def _one_reset(self, line: Line, rng: Random) -> None:
        queue_id = rng.randrange(2)
        places = [job.place[1] for job in self._in(queue_id) if job.place and job.given_us >= 0]
        if not places:
            return
        target = rng.choice([0, rng.choice(places), max(places)])
        header = ResetOffsetRequestHeader(TOPIC, WORKERS, -1, True, queue_id, target)
        asked_us = self._cluster.world.now_us
        for job in self._in(queue_id):
            if job.place and job.place[1] < target and job.owed_us is not None:
                late = job.given_us <= job.owed_us
                job.owed_us = None if late else job.owed_us  # perhaps it goes past this one
        answer = await line.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, to_ext(header), within_s=5.0
        )
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        self._cluster.world.count("reset")
        for job in self._in(queue_id):
            if job.place and job.place[1] >= target:
                job.owed_us = asked_us

    def _in(self, queue_id: int) -> list[_Job]:
        return [job for job in self.jobs.values() if job.place and job.place[0] == queue_id]

    # ---- the dead

    async def _read_dead(self, node: Node) -> None:
        async with session(self._cluster.name_servers) as client:
            make = partial(Consumer, client.routes, client.calls, DEAD, start=Start.EARLIEST)

            async def received(item: ReceivedRecord) -> None:
                self._cluster.world.count("dead-letter")
                job, tries = self.jobs[item.key], item.record.reconsume_times
                job.is_dead = True
                if tries != TRIES_MAX + 1 or TRIES_MAX not in job.back_us:
                    self.found.append(f"{item.key} is dead after {tries} tries: {job}")

            consumer = make(received, group="undertaker")
            while True:
                with suppress(GantryError, OSError, ExceptionGroup):
                    await consumer.run()
                await asyncio.sleep(0.2)
