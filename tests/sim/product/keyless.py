"""Producers whose messages have no unique key, as ali-ons for Node sends them, through doors.

The broker makes up a key that nobody else knows. So a send that a door gives the next master again
is known by what it says, and when a message is sent twice in one millisecond each copy answers one
send. What was acknowledged is there, at its place; what was refused is not; and of each message
there are no more copies than sends that were not refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.records import decode_records
from sim.kernel.world import Violation
from sim.product.line import Line, is_unknown, send_ext, topic_ext
from sim.product.workload import Clients

if TYPE_CHECKING:
    from gantry_protocol.command import RemotingCommand
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told

TOPIC = "keyless"
QUEUES = 2
TWINS = 3  # of one message, at most, sent at once
PRODUCERS = 2


class Keyless(Clients):
    """See the module.

    Args:
        cluster: where.
        watch: is told of every acknowledgement.

    Attributes:
        acknowledged: the places of each message: queue and offset.
        maybe: sends of each message that may have been stored, acknowledged ones counted.
    """

    unsettled = "messages without a key are not ended or cannot be read"

    def __init__(self, cluster: Cluster, watch: Told) -> None:
        self.acknowledged: dict[bytes, list[tuple[int, int]]] = {}
        self.maybe: Counter[bytes] = Counter()
        self.there: dict[bytes, list[tuple[int, int]]] = {}
        super().__init__(cluster)
        self._watch = watch
        self._sending = 0

    def start(self) -> None:
        """Begin."""
        for number in range(PRODUCERS):
            self._cluster.client(f"keyless-{number}", self._send).boot()
        self._cluster.client("keyless-reader", self._read).boot()

    async def _send(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        self._sending += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            await line.insist(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, QUEUES))
            while not self._stops:
                body = b"%s-%d-%032x" % (
                    node.name.encode(), len(self.acknowledged), rng.getrandbits(128)
                )  # fmt: skip
                ext = send_ext(TOPIC, "", rng.randrange(QUEUES))
                ext["i"], ext["g"] = "WAIT\x01true\x02", self._cluster.world.now_us // 1000
                self.acknowledged[body] = []
                twins = rng.choice([1, 1, 1, TWINS])
                await asyncio.gather(*(self._one(line, ext, body) for _ in range(twins)))
                await asyncio.sleep(rng.random() * 0.1)
        self._sending -= 1
        self._busy -= 1

    async def _one(self, line: Line, ext: dict[str, object], body: bytes) -> None:
        answer = await line.ask(RequestCode.SEND_MESSAGE_V2, ext, body, within_s=4.0)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self._note(answer, body)
        elif not is_unknown(answer):
            return
        self.maybe[body] += 1

    def _note(self, answer: RemotingCommand, body: bytes) -> None:
        """Raises Violation: one record answers two sends."""
        said = answer.ext or {}
        place = (int(said["queueId"]), int(said["queueOffset"]))
        if place in self.acknowledged[body]:
            raise Violation(f"two sends of {body!r} are acknowledged with one record, {place}")
        self.acknowledged[body].append(place)
        self._watch.acknowledged(body.decode(), said["msgId"])

    # ---- the end

    async def _read(self, node: Node) -> None:
        """Read everything, once nobody sends any more."""
        self._busy += 1
        while not self._stops or self._sending:
            await asyncio.sleep(0.1)
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            for queue_id in range(QUEUES):
                where = {"topic": TOPIC, "queueId": queue_id}
                bound = await line.insist(RequestCode.GET_MAX_OFFSET, where)
                at, end = 0, int((bound.ext or {})["offset"])
                while at < end:
                    header = PullMessageRequestHeader(
                        "keyless", TOPIC, queue_id, at, 32, 4, 0, 0, 0, "*", "TAG"
                    )
                    answer = await line.insist(RequestCode.PULL_MESSAGE, to_ext(header))
                    for record in decode_records(answer.body):
                        place = (queue_id, record.queue_offset)
                        self.there.setdefault(record.body, []).append(place)
                        at = record.queue_offset + 1
        self._busy -= 1

    def judge(self) -> None:
        """Raises Violation."""
        super().judge()
        for body, places in self.there.items():
            if body not in self.acknowledged:
                raise Violation(f"nobody has sent {body!r}")
            if len(places) > self.maybe[body] and not self._may_be_twice(body):
                raise Violation(
                    f"{body!r} was sent {self.maybe[body]} times and is at {places}, acknowledged"
                    f" at {self.acknowledged[body]}"
                )
        for body, places in self.acknowledged.items():
            missing = set(places) - set(self.there.get(body, ()))
            if missing:
                raise Violation(f"{body!r} was acknowledged at {missing} and is not there")

    def _may_be_twice(self, body: bytes) -> bool:
        """Whether the answer to a send of it was lost on a way that does not say so."""
        return self.maybe[body] > len(self.acknowledged[body])
