"""Progress of consumer groups, and moving it: 208, 222 and the ends of queues.

A reset is planned here and carried out by brokers. The plan names an offset for each queue, so what
a person agreed to is what happens, also when messages come in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.bodies import (
    MessageQueue,
    OffsetWrapper,
    TopicConfig,
    decode_body,
    decode_queue_table,
)
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.brokeradmin import (
    GetConsumeStatsRequestHeader,
    ResetOffsetRequestHeader,
)
from gantry_protocol.headers.client import (
    OffsetResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
)
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.queue_map import MAPPED

from gantry_cli.client.brokers import BrokerError, GroupAddress, ask, broker_groups, together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_protocol.command import RemotingCommand

    from gantry_cli.client.routes import Queue
    from gantry_cli.client.session import Session

EARLIEST, LATEST = "earliest", "latest"


class QueueProgress(msgspec.Struct, frozen=True, order=True):
    """One queue as one consumer group sees it.

    Attributes:
        next: the first offset the group has not consumed.
        end: one past the last message.
        lag: messages between the two.
        consumed_at_ms: when the last consumed message was stored; 0 when that is not known.
    """

    topic: str
    broker_group: str
    queue: int
    next: int
    end: int
    lag: int
    consumed_at_ms: int


class Move(msgspec.Struct, frozen=True, order=True):
    """The effect of a reset on one queue; ``before`` is None where the group has no offset yet."""

    topic: str
    broker_group: str
    queue: int
    before: int | None
    after: int

    @property
    def again(self) -> int:
        """Messages that are consumed again; below 0, how many are skipped."""
        return 0 if self.before is None else self.before - self.after


class Target(msgspec.Struct, frozen=True):
    """The target of a reset: exactly one of the three."""

    end: str | None = None  # EARLIEST or LATEST
    time_ms: int | None = None
    offset: int | None = None


async def progress(
    client: Session, groups: Sequence[GroupAddress], consumer_group: str, topic: str | None = None
) -> list[QueueProgress]:
    """All queues that ``consumer_group`` consumes, or has consumed.

    Raises:
        BrokerError: a broker group did not answer.
    """
    header = GetConsumeStatsRequestHeader(consumer_group, topic)

    async def of_group(group: GroupAddress) -> list[QueueProgress]:
        command = request(RequestCode.GET_CONSUME_STATS, to_ext(header))
        answer = await ask(client, group, command, f"The progress of {consumer_group!r}")
        table = decode_queue_table(answer.body, OffsetWrapper)
        return [
            QueueProgress(
                topic=queue.topic,
                broker_group=queue.broker_name,
                queue=queue.queue_id,
                next=seen.consumer_offset,
                end=seen.broker_offset,
                lag=max(0, seen.broker_offset - seen.consumer_offset),
                consumed_at_ms=seen.last_timestamp,
            )
            for queue, seen in table.items()
        ]

    return sorted(row for rows in await together(groups, of_group) for row in rows)


async def plan_reset(
    client: Session,
    consumer_group: str,
    topic: str,
    target: Target,
    *,
    queue: int | None = None,
    broker_group: str | None = None,
) -> list[Move]:
    """The effect of a reset to ``target``, queue by queue; nothing is changed.

    Raises:
        NameServiceError: there is no such topic.
        BrokerError: a broker group did not answer.
        GantryError: no queue is meant, or the offset is in none of them.
    """
    groups = await broker_groups(client.routes, only=broker_group)
    names = {group.name for group in groups}
    known = {
        (row.broker_group, row.queue): row.next
        for row in await progress(client, groups, consumer_group, topic)
    }
    route = await client.routes.fetch(topic)
    wanted = [
        item
        for item in route.readable
        if item.broker_name in names and queue in (None, item.queue_id)
    ]
    if not wanted:
        where = "" if queue is None else f" {queue}"
        raise GantryError(f"Topic {topic!r} has no queue{where} there that can be read.")

    offsets = {} if target.offset is None else await _named(client, wanted, topic, target.offset)

    async def of_queue(one: Queue) -> Move:
        after = offsets.get(one)
        if after is None:
            after = await _offset(client, one, topic, target)
        before = known.get((one.broker_name, one.queue_id))
        return Move(topic, one.broker_name, one.queue_id, before, after)

    return sorted(await together(wanted, of_queue))


async def reset(client: Session, consumer_group: str, moves: Sequence[Move]) -> None:
    """Carry a plan out, one queue after the other.

    Raises:
        BrokerError: a queue could not be moved; it says how many were.
    """
    groups = {group.name: group for group in await broker_groups(client.routes)}
    for number, move in enumerate(moves):
        header = ResetOffsetRequestHeader(
            topic=move.topic,
            group=consumer_group,
            timestamp=-1,
            is_force=True,
            queue_id=move.queue,
            offset=move.after,
        )
        command = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, to_ext(header))
        what = f"Queue {move.queue} was not moved, {number} of {len(moves)} were"
        answer = await ask(client, groups[move.broker_group], command, what)
        queue = MessageQueue(move.broker_group, move.queue, move.topic)
        if decode_queue_table(answer.body, int).get(queue) != move.after:
            raise BrokerError(f"{what}: {move.broker_group} answered with another offset.")


async def _offset(client: Session, queue: Queue, topic: str, target: Target) -> int:
    """The offset of a ``target`` that is an end or a time in one queue."""
    if target.end is not None:
        first, following = await _ends(client, queue, topic)
        return first if target.end == EARLIEST else following
    assert target.time_ms is not None
    header = SearchOffsetRequestHeader(topic, queue.queue_id, target.time_ms)
    command = request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, to_ext(header))
    return await _answered(client, queue, command)


async def _named(
    client: Session, queues: Sequence[Queue], topic: str, offset: int
) -> dict[Queue, int]:
    """The offset to which each queue goes that is to go to ``offset``.

    Of a mapped topic a queue may have parts in several broker groups. One that does not have the
    offset, where another one does, goes to the end of its part that is next to it.
    """

    async def of_queue(one: Queue) -> tuple[Queue, int, int]:
        return one, *await _ends(client, one, topic)

    ends = await together(queues, of_queue)
    there = {queue.queue_id for queue, first, following in ends if first <= offset <= following}
    is_mapped: bool | None = None
    for queue, first, following in ends:
        if first <= offset <= following:
            continue
        if queue.queue_id in there and is_mapped is None:
            is_mapped = await _is_mapped(client, queue, topic)
        if queue.queue_id not in there or not is_mapped:
            raise GantryError(
                f"Offset {offset} is not in queue {queue.queue_id} of {queue.broker_name}, "
                f"which has {first} to {following}; choose another, or one queue with --queue."
            )
    return {queue: min(max(offset, first), following) for queue, first, following in ends}


async def _is_mapped(client: Session, queue: Queue, topic: str) -> bool:
    """Whether the queues of a topic are in one broker group each, and move."""
    command = request(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
    group = GroupAddress(queue.broker_name, "", queue.address)
    answer = await ask(client, group, command, f"The settings of {topic!r} are not known")
    return MAPPED in decode_body(TopicConfig, answer.body).attributes


async def _ends(client: Session, queue: Queue, topic: str) -> tuple[int, int]:
    """The first offset, and one past the last."""
    codes = (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    first, following = [await _bound(client, queue, topic, code) for code in codes]
    return first, following


async def _bound(client: Session, queue: Queue, topic: str, code: RequestCode) -> int:
    command = request(code, to_ext(QueueRequestHeader(topic, queue.queue_id)))
    return await _answered(client, queue, command)


async def _answered(client: Session, queue: Queue, command: RemotingCommand) -> int:
    group = GroupAddress(queue.broker_name, "", queue.address)
    what = f"The offsets of queue {queue.queue_id} are not known"
    answer = await ask(client, group, command, what)
    return from_ext(OffsetResponseHeader, answer.ext).offset
