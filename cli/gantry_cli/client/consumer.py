"""A pull consumer: every queue of a topic, with long polling and offsets that survive failovers.

The rule protected here: within one run, an offset that was handed out is never asked for again, so
a record that arrives twice was served twice by the group. Offsets are kept per queue of a broker
group, not per address: after a failover the next pull continues where the last one ended. Only what
the caller has declared done is ever committed.

A pull goes to the member that the answer to the last one named, and to the master again once that
member does not answer.

What it refuses: to guess. A broker that calls an offset illegal is followed, and counted, because
within a correct group it must not happen while the consumer runs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.bodies import CheckClientRequestBody, SubscriptionData, encode_body
from gantry_protocol.bodies.route import MASTER_ID
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import GantryError, RemotingError, ResolveError, WireError
from gantry_protocol.headers.client import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.records import MessageRecord, decode_properties, decode_records
from gantry_protocol.records.properties import UNIQ_KEY

from gantry_cli.client.ledger import Position
from gantry_cli.client.routes import NameServiceError, Queue, Routes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gantry_cli.client.calls import Caller

PULL_FLAGS = 0x2 | 0x4  # the broker may wait; the subscription is in the request, not in a session
POSITIONED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
SQL92 = "SQL92"
CALL_TIMEOUT_S = 1.0
FIRST_RETRY_S = 0.02
MAX_RETRY_S = 0.3
QUEUES_MAX = 4096  # one task each; a topic with more belongs to a real client


class Start(Enum):
    """The first offset of a queue without a committed one, or whose committed one is ignored."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


class ReceivedRecord(msgspec.Struct, frozen=True):
    """One record, as it was handed out."""

    key: str
    position: Position
    record: MessageRecord


class _QueueState:
    """One queue being read. `queue` changes when its master is reached elsewhere."""

    __slots__ = ("committed", "done_offset", "member", "next_offset", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.next_offset: int | None = None  # the first offset not handed out; None: not known yet
        self.done_offset: int | None = None  # the first offset not declared done; None: nothing is
        self.committed: int | None = None  # what the broker was last told
        self.member = MASTER_ID  # the broker id of the member that is asked


class Consumer:
    """Reads all queues of one topic and hands every record to a callback, in queue order.

    Args:
        routes: where the topic lives.
        calls: the network; long polls stay outstanding on it.
        topic: what to read.
        group: the consumer group whose offsets are read and committed.
        on_received: awaited once for each record; while it waits, its queue is not read on.
        start: where to begin.
        sql: the filter that records must pass; None for all.
        suspend_s: how long a broker may hold a pull that finds nothing.
        batch_max: records asked for by one pull.
        route_interval_s: how often new queues are looked for.
        commit_interval_s: how often offsets are committed; None: only when `commit` is called.

    Attributes:
        read_bytes: by the broker id of the member that was asked, how much it gave.
    """

    def __init__(
        self,
        routes: Routes,
        calls: Caller,
        topic: str,
        on_received: Callable[[ReceivedRecord], Awaitable[None]],
        *,
        group: str = "gantry",
        start: Start = Start.COMMITTED,
        sql: str | None = None,
        suspend_s: float = 2.0,
        batch_max: int = 32,
        route_interval_s: float = 1.0,
        commit_interval_s: float | None = 1.0,
    ) -> None:
        self._routes = routes
        self._calls = calls
        self._topic = topic
        self._group = group
        self._on_received = on_received
        self._start = start
        self._sql = sql
        self._suspend_s = suspend_s
        self._batch_max = batch_max
        self._route_interval_s = route_interval_s
        self._commit_interval_s = commit_interval_s
        self._states: dict[tuple[str, int], _QueueState] = {}
        self.illegal_offsets = 0  # answers 21 while running: the broker moved our offset
        self.read_bytes = Counter[int]()
        self.errors = 0  # pulls without a usable answer

    async def run(self) -> None:
        """Read until cancelled. Offsets stay as they are; `commit` may be called afterwards."""
        async with asyncio.TaskGroup() as tasks:
            if self._commit_interval_s is not None:
                tasks.create_task(self._commit_every(self._commit_interval_s))
            while True:
                for state in self._new_queues(await self._route()):
                    tasks.create_task(self._read(state))
                await asyncio.sleep(self._route_interval_s)

    def done(self, position: Position) -> None:
        """The record at `position`, and with it all before it in its queue, is dealt with."""
        state = self._states[position.broker_name, position.queue_id]
        state.done_offset = max(state.done_offset or 0, position.queue_offset + 1)

    async def commit(self) -> bool:
        """Tell the brokers what was declared done; False if one of them did not confirm."""
        everything = True
        for state in list(self._states.values()):  # a new route may add some meanwhile
            offset = state.done_offset
            if offset is None or offset == state.committed:
                continue
            header = UpdateConsumerOffsetRequestHeader(
                self._group, self._topic, state.queue.queue_id, offset
            )
            answer = await self._call(
                state.queue, RequestCode.UPDATE_CONSUMER_OFFSET, header, CALL_TIMEOUT_S
            )
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                state.committed = offset
            else:
                everything = False
        return everything

    async def at_end(self) -> bool:
        """Whether everything in all queues was handed out; False also where nobody can say."""
        for state in list(self._states.values()):  # a new route may add some meanwhile
            bound = QueueRequestHeader(self._topic, state.queue.queue_id)
            end = _offset(
                await self._call(state.queue, RequestCode.GET_MAX_OFFSET, bound, CALL_TIMEOUT_S)
            )
            if end is None or state.next_offset is None or state.next_offset < end:
                return False
        return bool(self._states)

    async def _route(self) -> tuple[Queue, ...]:
        try:
            route = await self._routes.fetch(self._topic)
        except (NameServiceError, WireError):
            return ()  # what is being read goes on being read
        return route.readable[:QUEUES_MAX]

    def _new_queues(self, queues: tuple[Queue, ...]) -> list[_QueueState]:
        found = []
        for queue in queues:
            state = self._states.get((queue.broker_name, queue.queue_id))
            if state is None:
                state = self._states[queue.broker_name, queue.queue_id] = _QueueState(queue)
                found.append(state)
            state.queue = queue
        return found

    async def _commit_every(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self.commit()

    async def _read(self, state: _QueueState) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            if state.next_offset is None:
                state.next_offset = await self._first_offset(state.queue)
            if state.next_offset is not None and await self._pull(state, state.next_offset):
                retry_s = FIRST_RETRY_S
                continue
            self.errors += 1
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, MAX_RETRY_S)

    async def _first_offset(self, queue: Queue) -> int | None:
        """Where reading `queue` begins; None when the broker could not say."""
        if self._start is Start.COMMITTED:
            header = QueryConsumerOffsetRequestHeader(
                self._group, self._topic, queue.queue_id, set_zero_if_not_found=False
            )
            answer = await self._call(
                queue, RequestCode.QUERY_CONSUMER_OFFSET, header, CALL_TIMEOUT_S
            )
            if answer is None or answer.code != ResponseCode.QUERY_NOT_FOUND:
                return _offset(answer)
        at_end = self._start is Start.LATEST
        code = RequestCode.GET_MAX_OFFSET if at_end else RequestCode.GET_MIN_OFFSET
        bound = QueueRequestHeader(self._topic, queue.queue_id)
        return _offset(await self._call(queue, code, bound, CALL_TIMEOUT_S))

    async def _pull(self, state: _QueueState, offset: int) -> bool:
        """One pull; False when it brought no position to go on from."""
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=self._topic,
            queue_id=state.queue.queue_id,
            queue_offset=offset,
            max_msg_nums=self._batch_max,
            sys_flag=PULL_FLAGS,
            commit_offset=0,
            suspend_timeout_ms=int(self._suspend_s * 1000),
            sub_version=0,
            subscription="*" if self._sql is None else self._sql,
            expression_type="TAG" if self._sql is None else SQL92,
            broker_name=state.queue.broker_name,
        )
        member, timeout_s = state.member, self._suspend_s + CALL_TIMEOUT_S
        state.member = MASTER_ID  # unless its answer names another one
        answer = await self._call(
            state.queue, RequestCode.PULL_MESSAGE, header, timeout_s, member=member
        )
        if answer is None or answer.code not in POSITIONED:
            return False
        try:
            position = from_ext(PullMessageResponseHeader, answer.ext)
            records = decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []
        except WireError:
            return False
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self.illegal_offsets += 1
        state.next_offset, state.member = (
            position.next_begin_offset,
            position.suggest_which_broker_id,
        )
        self.read_bytes[member] += len(answer.body)
        for record in records:
            if record.queue_offset >= offset:  # a broker may begin before what was asked for
                await self._on_received(_received(state.queue.broker_name, record))
        return True

    async def _call(
        self,
        queue: Queue,
        code: RequestCode,
        header: msgspec.Struct,
        timeout_s: float,
        *,
        member: int = MASTER_ID,
    ) -> RemotingCommand | None:
        """The answer, or None when none came."""
        command = request(code, to_ext(header))
        try:
            return await self._calls.call(queue.at(member), command, timeout_s)
        except (RemotingError, ResolveError, WireError):
            return None


async def check_filter(calls: Caller, queue: Queue, topic: str, group: str, sql: str) -> None:
    """Have a broker say what is wrong with a filter, before anything is read with it.

    Raises:
        GantryError: the broker refuses it, or does not answer.
    """
    wanted = SubscriptionData(topic, sql, expression_type=SQL92)
    body = encode_body(CheckClientRequestBody("gantry", group, wanted))
    command = request(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    answer = await calls.call(queue.at(MASTER_ID), command, CALL_TIMEOUT_S)
    if answer.code != ResponseCode.SUCCESS:
        raise GantryError(answer.remark or f"the broker refuses the filter with {answer.code}")


def _offset(answer: RemotingCommand | None) -> int | None:
    if answer is None or answer.code != ResponseCode.SUCCESS:
        return None
    try:
        return from_ext(OffsetResponseHeader, answer.ext).offset
    except WireError:
        return None


def _received(broker_name: str, record: MessageRecord) -> ReceivedRecord:
    key = decode_properties(record.properties).get(UNIQ_KEY, "")
    return ReceivedRecord(key, Position(broker_name, record.queue_id, record.queue_offset), record)
