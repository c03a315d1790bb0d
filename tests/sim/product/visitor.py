"""A client that looks through what fronts say of a group whose brokers are all off.

It asks each front by itself, everything, and compares it with what the log says up to the head of
the tier (``heads``): messages, ends and times of queues, committed offsets. At the head and beyond
there is nothing yet, and nobody is led anywhere else. What would have to be stored is refused.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_broker.front.settings import FIRST_PORT
from gantry_broker.store.tables.resets import is_mark
from gantry_protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    decode_body,
    encode_body,
)
from gantry_protocol.bodies.client import ConsumerIdList, LockBatchBody, MessageQueue
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.client import RemotingClient
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, GROUP
from sim.product.heads import Head
from sim.product.line import send_ext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_controller.metadata.topic_table import Topic
    from gantry_protocol.records import MessageRecord
    from sim.product.cluster import Cluster, Node
    from sim.product.tier_watch import TierWatch
    from sim.product.watch import Watch

ME = "visitor"
HAS_SUBSCRIPTION = 4
BATCH = 32
WITHIN_S = 5.0
NOTHING_YET = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


class Visitor:
    """See the module; each visit is one of its own.

    Args:
        cluster: whose brokers are off, and in which nothing else goes wrong.
        watch: knows the log.
        tier: knows the tier's head.

    Attributes:
        left: fronts that were not looked through yet.
    """

    def __init__(self, cluster: Cluster, watch: Watch, tier: TierWatch) -> None:
        self.left = [node.machine.address for node in cluster.fronts]
        self._cluster = cluster
        self._head = Head(watch.confirmed, tier.chain.end)
        self._rng = cluster.world.stream(f"visits/{cluster.world.now_us}")

    def start(self) -> None:
        """Begin."""
        self._cluster.client(f"{ME}-{len(self._cluster.clients)}", self._visit).boot()

    async def _visit(self, node: Node) -> None:
        while self.left:
            client = RemotingClient()
            try:
                self._at = await client.connect(f"{self.left[0]}:{FIRST_PORT}", WITHIN_S)
                await self._look_through()
            except RemotingError:
                await asyncio.sleep(0.2)  # a connection that was old
            else:
                del self.left[0]
            finally:
                client.abort()

    async def _look_through(self) -> None:
        """Raises Violation."""
        table = self._topics()
        for name, topic in table.items():
            for queue_id in range(topic.read_queue_nums):
                is_known = topic.since <= self._head.version
                said = self._head.messages(name, queue_id) if is_known else []
                await self._queue(name, queue_id, said)
        await self._offsets(table)
        await self._members()
        await self._refusals()
        self._cluster.world.count("looked-through")

    def _topics(self) -> Mapping[str, Topic]:
        """As the controllers have them."""
        nodes = self._cluster.controllers
        states = [self._cluster.controller_of(node).machine.state for node in nodes]
        newest = max(states, key=lambda state: int(state.index))
        found: Mapping[str, Topic] = newest.topic_table((CLUSTER, GROUP)).topics
        return found

    # ---- one queue

    async def _queue(self, topic: str, queue_id: int, said: list[MessageRecord]) -> None:
        where = {"topic": topic, "queueId": queue_id}
        end = self._head.ends.get((topic, queue_id), 0)
        first = said[0].queue_offset if said else end
        await self._is(RequestCode.GET_MIN_OFFSET, where, "offset", first)
        await self._is(RequestCode.GET_MAX_OFFSET, where, "offset", end)
        await self._earliest(where, said)
        offset = first
        while offset < end:
            answer = await self._pull(topic, queue_id, offset)
            if answer.code != ResponseCode.SUCCESS:
                raise Violation(f"{where} is asked for {offset} and answered {answer}")
            for record in decode_records(answer.body):
                if record.queue_offset < offset:
                    continue
                if record != said[offset - first]:
                    raise Violation(f"{where} has {record} at {offset}, not {said[offset - first]}")
                offset += 1
        for beyond in (end, end + self._rng.randint(1, 50)):
            answer = await self._pull(topic, queue_id, beyond)
            following = int((answer.ext or {}).get("nextBeginOffset", -1))
            if answer.code not in NOTHING_YET or following != beyond:
                raise Violation(f"{where} ends at {end}, and {beyond} is answered {answer}")
        if said and self._cluster.clocks_agree:
            await self._times(where, said)

    async def _earliest(self, where: dict[str, object], said: list[MessageRecord]) -> None:
        """The time of the first message, or of its run."""
        answer = await self._ask(RequestCode.GET_EARLIEST_MSG_STORETIME, where)
        found = int((answer.ext or {}).get("timestamp", -2))
        if not (0 < found <= said[0].store_timestamp if said else found == -1):
            raise Violation(f"the first message of {where} is {said[:1]}, and not of {found}")

    async def _times(self, where: dict[str, object], said: list[MessageRecord]) -> None:
        """A time leads to where its first message stands, or somewhere before it."""
        since = self._rng.choice(said).store_timestamp
        offset = next(one.queue_offset for one in said if one.store_timestamp >= since)
        ask = {**where, "timestamp": since}
        answer = await self._ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ask)
        found = int((answer.ext or {}).get("offset", -1))
        if answer.code or not said[0].queue_offset <= found <= offset:
            raise Violation(f"{where} has {since} at {offset}, and is answered {answer}")

    # ---- groups of consumers

    async def _offsets(self, topics: Mapping[str, Topic]) -> None:
        """Committed offsets are those of the head, or there are none."""
        head = self._head
        known = {row: offset for row, offset in head.offsets.items() if row[1] in topics}
        asked = [*known, *((f"{row[0]}-x", *row[1:]) for row in known)]
        for row in asked:
            if is_mark(row[0]):
                continue
            of_topic = topics[row[1]].since <= head.version
            ask = dict(zip(("consumerGroup", "topic", "queueId"), row, strict=True))
            answer = await self._ask(
                RequestCode.QUERY_CONSUMER_OFFSET, {**ask, "setZeroIfNotFound": False}
            )
            found = None if answer.code else int((answer.ext or {})["offset"])
            wanted = known.get(row) if of_topic else None
            if found != wanted or answer.code not in (0, ResponseCode.QUERY_NOT_FOUND):
                raise Violation(f"the offset of {row} is {wanted}, and is answered {answer}")

    async def _members(self) -> None:
        """A member is told of itself, until it goes."""
        topics = [SubscriptionData("orders", "*")]
        consumer = ConsumerData(ME, subscription_data_set=topics)
        await self._ask(RequestCode.HEART_BEAT, body=encode_body(HeartbeatData(ME, [], [consumer])))
        if await self._listed() != [ME]:
            raise Violation(f"{ME} is not the only member: {await self._listed()}")
        await self._ask(RequestCode.UNREGISTER_CLIENT, {"clientID": ME, "consumerGroup": ME})
        if await self._listed():
            raise Violation(f"{ME} has left, and is a member: {await self._listed()}")

    async def _listed(self) -> list[str]:
        answer = await self._ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": ME})
        return decode_body(ConsumerIdList, answer.body).consumer_id_list if not answer.code else []

    async def _refusals(self) -> None:
        """What would have to be stored, or is a master's to say. Raises Violation."""
        queue = {"topic": "orders", "queueId": 0, "consumerGroup": ME}
        lock = LockBatchBody(ME, ME, [MessageQueue(GROUP, 0, "orders")])
        for code, ext, body in (
            (RequestCode.SEND_MESSAGE_V2, send_ext("orders", "0" * 32), b"x"),
            (RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 1}, b""),
            (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0}, b""),
            (RequestCode.LOCK_BATCH_MQ, {}, encode_body(lock)),
        ):
            answer = await self._ask(code, ext, body)
            if answer.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                raise Violation(f"{code.name} is answered {answer} without a broker")

    # ---- questions

    async def _is(
        self, code: RequestCode, where: dict[str, object], name: str, wanted: int
    ) -> None:
        answer = await self._ask(code, where)
        if answer.code or (answer.ext or {}).get(name) != str(wanted):
            raise Violation(f"{code.name} of {where} is {wanted}, and is answered {answer}")

    async def _pull(self, topic: str, queue_id: int, offset: int) -> RemotingCommand:
        header = PullMessageRequestHeader(
            ME, topic, queue_id, offset, BATCH, HAS_SUBSCRIPTION, 0, 0, 0, "*", "TAG"
        )
        return await self._ask(RequestCode.PULL_MESSAGE, to_ext(header))

    async def _ask(
        self, code: RequestCode, ext: Mapping[str, object] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in (ext or {}).items()
        }
        command = request(code, texts, body)
        command.language = "JAVA"  # others are not told that a group has no members
        return await self._at.call(command, WITHIN_S)
