"""Producers that send batches, as two tenants of a group: one is free, one has a quota.

What is in the log at the end is compared with the answers: a batch that was acknowledged stands
there whole, once, at the places that it was told, in its order. One that was refused is not there
at all, and neither is one with a message that no batch may have. Of one whose answer was lost a
beginning may be there: a master may die in the midst of it.

A send that comes too fast waits or is answered 215, and is sent anew until it is stored, once. Only
the tenant with a quota is ever answered so, and what the group took of it, in messages, is never
more than the quota grants in the time, and a burst for each master.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import msgspec
from gantry_broker.clients.quotas import BURST_S
from gantry_broker.clients.throttle import SEND_PATIENCE_S
from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.records import (
    BatchMessage,
    decode_offset_msg_id,
    decode_properties,
    decode_records,
    encode_batch,
)
from gantry_protocol.records.properties import UNIQ_KEY
from sim.kernel.world import SECOND, Violation
from sim.product.line import Line, is_unknown, send_ext, topic_ext
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from gantry_protocol.command import RemotingCommand
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

FREE, SLOW = "batches", "slow%batches"
QUEUES = 2
SIZES = (1, 2, 7, 70, 300)  # below and above what counts as few
PER_SECOND = 150  # of the tenant with a quota
READ_BYTES_PER_SECOND = 200_000
SETTINGS = {
    "quotas": json.dumps(
        {
            "tenants": {
                "slow": {
                    "sendsPerSecond": PER_SECOND,
                    "sendBytesPerSecond": 100_000,
                    "readBytesPerSecond": READ_BYTES_PER_SECOND,
                }
            }
        }
    ),
    "max_batch_messages": max(SIZES),
}
FLAWS = ("empty", "delayed", "timed", "half", "cut", "all-delayed", "long", "no-queue")
FOR_FLAWS = (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER)
PULL_WITHIN_S = 15.0


class _Batch(msgspec.Struct):
    """What is known of one batch.

    Attributes:
        place: of its first message, once it is acknowledged.
        refused: for certain.
        again: it was sent again, since nobody knew, so that what was cut off stands behind.
    """

    topic: str
    queue_id: int
    keys: list[str]
    place: int | None = None
    refused: bool = False
    again: bool = False


class Batches(Clients):
    """See the module.

    Args:
        cluster: where.
        watch: is told of every acknowledgement.

    Attributes:
        batches: all that were sent.
        logs: the keys of each queue, by topic and queue, as they are read at the end.
    """

    unsettled = "batches are not ended or cannot be read"

    def __init__(self, cluster: Cluster, watch: Told) -> None:
        self.batches: list[_Batch] = []
        self.logs: dict[tuple[str, int], list[str]] = {}
        super().__init__(cluster)
        self._watch = watch
        self._sending = 0
        self._began_us = 0

    def start(self) -> None:
        """Begin."""
        for topic in (FREE, SLOW):
            name = f"batches-{topic.partition('%')[0]}"
            self._cluster.client(name, lambda node, topic=topic: self._send(node, topic)).boot()
        self._cluster.client("batches-reader", self._read).boot()

    # ---- sending

    async def _send(self, node: Node, topic: str) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        self._sending += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            await line.insist(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, QUEUES))
            self._began_us = self._cluster.world.now_us
            while not self._stops:
                await self._one(line, topic, rng)
                await asyncio.sleep(rng.random() * (0.1 if topic == SLOW else 0.3))
        self._sending -= 1
        self._busy -= 1

    async def _one(self, line: Line, topic: str, rng: Random) -> None:
        """One batch, until something is known of it."""
        size = rng.choice(SIZES)
        keys = [f"{rng.getrandbits(128):032X}" for _ in range(size)]
        batch = _Batch(topic, rng.randrange(QUEUES), keys)
        self.batches.append(batch)
        flaw = rng.choice(FLAWS) if rng.random() < 0.2 else ""
        ext, body = _request(batch, flaw, rng)
        code = rng.choice([RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2])
        while True:
            answer = await line.ask(code, ext, body, within_s=4.0)
            if answer is None or answer.code != ResponseCode.FLOW_CONTROL:
                if flaw or batch.again or not is_unknown(answer):
                    break
                batch.again, ext = True, {**ext, "e": rng.randrange(QUEUES)}
                self._cluster.world.count("batch-again")
                continue
            self._cluster.world.count("throttled")
            if topic != SLOW:
                raise Violation(f"{topic} has no quota and is answered {answer}")
            await asyncio.sleep(rng.random())
        self._judge_answer(batch, answer, flaw)

    def _judge_answer(self, batch: _Batch, answer: RemotingCommand | None, flaw: str) -> None:
        """Raises Violation: a batch with a flaw is taken, or one is acknowledged in part."""
        if answer is None:
            return
        if flaw and answer.code == ResponseCode.SUCCESS:
            raise Violation(f"a batch with a flaw, {flaw}, is answered {answer}")
        if answer.code in FOR_FLAWS:
            if not flaw:
                raise Violation(f"a sound batch is refused: {answer}")
            self._cluster.world.count(f"refused.{flaw}")
            batch.refused = True
        elif answer.code == ResponseCode.SUCCESS:
            ext = answer.ext or {}
            ids = ext["msgId"].split(",")
            offsets = [decode_offset_msg_id(one)[1] for one in ids]
            if len(ids) != len(batch.keys) or offsets != sorted(set(offsets)):
                raise Violation(f"{len(batch.keys)} messages are acknowledged at {offsets}")
            batch.place = int(ext["queueOffset"])
            self._cluster.world.count("batch")
            for at in {0, len(ids) - 1}:
                self._watch.acknowledged(batch.keys[at], ids[at])
        else:
            batch.refused = not is_unknown(answer) and not batch.again

    # ---- reading

    async def _read(self, node: Node) -> None:
        """Read everything, once nobody sends any more."""
        self._busy += 1
        while not self._stops or self._sending:
            await asyncio.sleep(0.1)
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            for topic in (FREE, SLOW):
                for queue_id in range(QUEUES):
                    self.logs[topic, queue_id] = await self._keys(line, topic, queue_id)
        self._busy -= 1

    async def _keys(self, line: Line, topic: str, queue_id: int) -> list[str]:
        where = {"topic": topic, "queueId": queue_id}
        bound = await line.insist(RequestCode.GET_MAX_OFFSET, where)
        end, keys = int((bound.ext or {})["offset"]), list[str]()
        while len(keys) < end:
            header = PullMessageRequestHeader(
                "batches", topic, queue_id, len(keys), 32, 4, 0, 0, 0, "*", "TAG"
            )
            answer = await line.ask(
                RequestCode.PULL_MESSAGE, to_ext(header), within_s=PULL_WITHIN_S
            )
            if answer is None or answer.code != ResponseCode.SUCCESS:
                await asyncio.sleep(0.1)
                continue
            for record in decode_records(answer.body):
                if record.queue_offset == len(keys):
                    keys.append(decode_properties(record.properties).get(UNIQ_KEY, ""))
        return keys

    # ---- the end

    def judge(self) -> None:
        """Raises Violation."""
        super().judge()
        there: dict[str, list[int]] = {}
        for keys in self.logs.values():
            for place, key in enumerate(keys):
                there.setdefault(key, []).append(place)
        for batch in self.batches:
            self._judge_batch(batch, [there.pop(key, []) for key in batch.keys])
        if there:
            raise Violation(f"nobody has sent {list(there)[:3]}")
        self._judge_quota()

    def _judge_batch(self, batch: _Batch, places: list[list[int]]) -> None:
        flat = [place for found in places for place in found]
        if batch.place is not None:
            # Without a gap, but where a failover has cut it and the next master stored the rest.
            if flat != sorted(flat) or {len(found) for found in places} != {1}:
                raise Violation(f"a batch was acknowledged at {batch.place}, and is at {flat}")
            if flat[0] != batch.place:
                raise Violation(f"a batch was acknowledged at {batch.place}, and begins at {flat}")
            is_whole = flat[-1] - flat[0] == len(flat) - 1
            if not is_whole and not self._cluster.doors and not batch.again:
                raise Violation(f"a batch that nobody gave a next master has gaps: {flat}")
            self._cluster.world.count("batch-whole" if is_whole else "batch-completed")
        elif batch.refused and flat:
            raise Violation(f"a batch of {len(batch.keys)} was refused, and is at {flat}")
        elif flat:
            self._cluster.world.count("batch-unknown-there")
            is_whole = batch.again or flat[0] == flat[-1] - len(flat) + 1
            if is_whole and all(len(one) <= 1 for one in places):
                return
            raise Violation(f"a batch of {len(batch.keys)} without an answer is at {flat}")

    def _judge_quota(self) -> None:
        """The group took no more than it granted; each process that was master had a burst."""
        taken = sum(len(keys) for (topic, _), keys in self.logs.items() if topic == SLOW)
        seconds = (self._cluster.world.now_us - self._began_us) / SECOND
        masters = max(
            int(group.master_epoch)
            for node in self._cluster.controllers
            for group in self._cluster.controller_of(node).machine.state.groups.values()
        )
        most = PER_SECOND * (seconds + masters * (BURST_S + SEND_PATIENCE_S))
        if taken > most + masters * max(SIZES):
            raise Violation(f"{taken} messages of the slow tenant in {seconds} s, {masters} epochs")


def _request(batch: _Batch, flaw: str, rng: Random) -> tuple[dict[str, object], bytes]:
    """The header and body of a batch with a flaw."""
    messages = [
        BatchMessage(rng.randbytes(rng.randint(1, 200)), f"{UNIQ_KEY}\x01{key}\x02")
        for key in batch.keys
    ]
    at = rng.randrange(len(messages))
    properties = messages[at].properties
    match flaw:
        case "empty":
            messages[at] = BatchMessage(b"", properties)
        case "delayed":
            messages[at] = BatchMessage(b"x", f"{properties}DELAY\x011\x02")
        case "timed":
            messages[at] = BatchMessage(b"x", f"{properties}TIMER_DELAY_SEC\x011\x02")
        case "half":
            messages[at] = BatchMessage(b"x", f"{properties}TRAN_MSG\x01true\x02")
        case "long":
            messages += [BatchMessage(b"x")] * max(SIZES)
    body = encode_batch(messages)
    ext = send_ext(batch.topic, f"{rng.getrandbits(128):032X}", batch.queue_id)
    ext["m"] = True
    match flaw:
        case "cut":
            body = body[:-1]
        case "all-delayed":
            ext["i"] = f"{ext['i']}DELAY\x011\x02"
        case "no-queue":
            ext["e"] = QUEUES
    return ext, body
