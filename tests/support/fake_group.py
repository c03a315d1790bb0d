"""A name server and one broker group in memory, behind the client's `Caller` seam.

It stores what is sent and serves what is stored; faults are queued per request code and met in
order. It knows no replication: its word is the truth that a client's account is compared with.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable

from gantry_protocol.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import ConnectError, ConnectionClosed, RequestTimeout
from gantry_protocol.records import MessageRecord, encode_record
from gantry_protocol.send_answer import MAY_BE_STORED

ADDRESS = "10.0.0.1:10911"
NAME_SERVER = "10.0.0.9:9876"
TEMPLATE = "TBW102"
"""The topic whose route names every group, as unmodified clients ask for it."""

Fault = Callable[["FakeGroup", RemotingCommand], RemotingCommand]


class FakeGroup:
    """One group `orders` whose topics all have `queues` queues."""

    def __init__(self, *, queues: int = 2, topics: tuple[str, ...] = ("t",)) -> None:
        self.queues = queues
        self.topics = set(topics)
        self.logs: dict[tuple[str, int], list[MessageRecord]] = defaultdict(list)
        self.committed: dict[tuple[str, str, int], int] = {}
        self.faults: dict[int, deque[Fault]] = defaultdict(deque)
        self.address = ADDRESS
        self.ghosts: tuple[str, ...] = ()  # groups in the route where nobody listens
        self.asked: list[tuple[str, int]] = []
        self.stored = asyncio.Event()
        self.readers: dict[int, str] = {}
        self.suggested = 0

    def fail(self, code: RequestCode, *faults: Fault) -> None:
        """The next requests with `code` meet these, one each."""
        self.faults[code].extend(faults)

    async def call(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        """Serve one request, or meet the next fault for its code."""
        await asyncio.sleep(0)
        self.asked.append((address, command.code))
        if address.startswith("ghost"):
            raise ConnectError(f"{address} refused the connection", refused=True)
        if self.faults[command.code]:
            return self.faults[command.code].popleft()(self, command)
        return await self.serve(command)

    async def serve(self, command: RemotingCommand) -> RemotingCommand:
        """The honest answer."""
        match command.code:
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return self._route(command)
            case RequestCode.UPDATE_AND_CREATE_TOPIC:
                self.topics.add((command.ext or {})["topic"])
                return reply(command)
            case RequestCode.SEND_MESSAGE_V2:
                return self.store(command)
            case RequestCode.PULL_MESSAGE:
                return await self._pull(command)
            case RequestCode.QUERY_CONSUMER_OFFSET | RequestCode.UPDATE_CONSUMER_OFFSET:
                return self._offset(command)
            case RequestCode.GET_MIN_OFFSET:
                return reply(command, ext={"offset": "0"})
            case RequestCode.GET_MAX_OFFSET:
                assert command.ext is not None
                log = self.logs[command.ext["topic"], int(command.ext["queueId"])]
                return reply(command, ext={"offset": str(len(log))})
        return reply(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def store(self, command: RemotingCommand) -> RemotingCommand:
        """Store one message and acknowledge it."""
        ext = command.ext or {}
        queue_id = int(ext["e"])
        log = self.logs[ext["b"], queue_id]
        log.append(
            MessageRecord(
                topic=ext["b"],
                queue_id=queue_id,
                body=command.body,
                properties=ext["i"],
                queue_offset=len(log),
            )
        )
        self.stored.set()
        sent = {"msgId": "0" * 32, "queueId": str(queue_id), "queueOffset": str(len(log) - 1)}
        return reply(command, ext=sent)

    def _route(self, command: RemotingCommand) -> RemotingCommand:
        topic = (command.ext or {})["topic"]
        if topic not in self.topics and topic != TEMPLATE:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        names = ("orders", *self.ghosts)
        route = TopicRouteData(
            self.brokers(), [QueueData(name, 6, self.queues, self.queues) for name in names], {}
        )
        return reply(command, body=encode_body(route))

    def brokers(self) -> list[BrokerData]:
        """The groups of a route."""
        ghosts = [BrokerData({0: f"{name}:10911"}, name, "gantry") for name in self.ghosts]
        return [BrokerData({0: self.address, **self.readers}, "orders", "gantry"), *ghosts]

    async def _pull(self, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext or {}
        offset, count = int(ext["queueOffset"]), int(ext["maxMsgNums"])
        log = self.logs[ext["topic"], int(ext["queueId"])]
        if offset >= len(log):
            self.stored.clear()
            try:
                async with asyncio.timeout(int(ext["suspendTimeoutMillis"]) / 1000):
                    await self.stored.wait()
            except TimeoutError:
                pass
        found = log[offset : offset + count]
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        return reply(
            command,
            code,
            ext={
                "suggestWhichBrokerId": str(self.suggested),
                "nextBeginOffset": str(offset + len(found)),
                "minOffset": "0",
                "maxOffset": str(len(log)),
            },
            body=b"".join(encode_record(record) for record in found),
        )

    def _offset(self, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext or {}
        place = (ext["consumerGroup"], ext["topic"], int(ext["queueId"]))
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.committed[place] = int(ext["commitOffset"])
            return reply(command)
        if place not in self.committed:
            return reply(command, ResponseCode.QUERY_NOT_FOUND)
        return reply(command, ext={"offset": str(self.committed[place])})


def refuse(code: int, remark: str = "no") -> Fault:
    """Nothing happens; the answer is `code`."""
    return lambda group, command: reply(command, code, remark)


def lose_answer(group: FakeGroup, command: RemotingCommand) -> RemotingCommand:
    """The message is stored and the connection ends."""
    group.store(command)
    raise ConnectionClosed("the connection ended")


def lose_request(group: FakeGroup, command: RemotingCommand) -> RemotingCommand:
    """Nothing is stored and the connection ends."""
    raise ConnectionClosed("the connection ended")


def time_out(group: FakeGroup, command: RemotingCommand) -> RemotingCommand:
    """Nothing is stored and nobody answers."""
    raise RequestTimeout("no answer")


def nobody_listens(group: FakeGroup, command: RemotingCommand) -> RemotingCommand:
    """The address is not there."""
    raise ConnectError("nobody listens", refused=True)


def stored_only(group: FakeGroup, command: RemotingCommand) -> RemotingCommand:
    """Stored on the master, not replicated in time: code 12."""
    answer = group.store(command)
    answer.code = ResponseCode.FLUSH_SLAVE_TIMEOUT
    return answer


def stored_in_doubt(group: FakeGroup, command: RemotingCommand) -> RemotingCommand:
    """Stored on a master that may be none any more: code 14, and the mark."""
    group.store(command)
    answer = reply(command, ResponseCode.SERVICE_NOT_AVAILABLE, "cut off")
    answer.ext = {MAY_BE_STORED: "true"}
    return answer


def acknowledge_only(group: FakeGroup, command: RemotingCommand) -> RemotingCommand:
    """Acknowledged and not stored: what a group must never do."""
    answer = group.store(command)
    ext = command.ext or {}
    group.logs[ext["b"], int(ext["e"])].pop()
    return answer


def store_twice(group: FakeGroup, command: RemotingCommand) -> RemotingCommand:
    """Stored twice and acknowledged once, although no answer was lost."""
    group.store(command)
    return group.store(command)
