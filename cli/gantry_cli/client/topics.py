"""Topics, through the name service: controllers commit them first, brokers then apply them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.bodies import TopicList, decode_body
from gantry_protocol.bodies.route import PERM_READ, PERM_WRITE
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import RemotingError, WireError
from gantry_protocol.headers.brokeradmin import CreateTopicRequestHeader, DeleteTopicRequestHeader
from gantry_protocol.headers.client import OffsetResponseHeader, QueueRequestHeader
from gantry_protocol.headers.codec import from_ext, to_ext

from gantry_cli.client.routes import Queue, Routes, refusal

if TYPE_CHECKING:
    from gantry_protocol.command import RemotingCommand

    from gantry_cli.client.calls import Caller

CALL_TIMEOUT_S = 1.0
NO_LEADER_RETRY_S = 0.1


async def list_topics(routes: Routes) -> list[str]:
    """The names of all topics, sorted."""
    answer = await _ask(
        routes, request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), "The list of topics"
    )
    return sorted(decode_body(TopicList, answer.body).topic_list)


async def create_topic(
    routes: Routes, topic: str, *, queues: int, cluster: str | None, broker_name: str | None = None
) -> None:
    """Create `topic` with `queues` queues on one group, or on all of them; or change it to that.

    Raises:
        NameServiceError: refused, or nobody answered.
    """
    header = CreateTopicRequestHeader(
        topic=topic,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=PERM_READ | PERM_WRITE,
        cluster_name=cluster,
        broker_name=broker_name,
    )
    command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, to_ext(header))
    await _ask(routes, command, f"Topic {topic!r} was not created")


async def delete_topic(routes: Routes, topic: str, *, cluster: str | None = None) -> None:
    """Delete `topic` everywhere. Raises like `create_topic`."""
    header = DeleteTopicRequestHeader(topic=topic, cluster_name=cluster)
    command = request(RequestCode.DELETE_TOPIC_IN_BROKER, to_ext(header))
    await _ask(routes, command, f"Topic {topic!r} was not deleted")


class QueueRow(msgspec.Struct, frozen=True):
    """One queue of a topic; an offset is None when the group did not answer."""

    group: str
    queue: int
    address: str
    access: str
    first: int | None
    next: int | None


async def describe_topic(routes: Routes, calls: Caller, topic: str) -> list[QueueRow]:
    """The queues of `topic` with their first and next offsets.

    Raises:
        NameServiceError: there is no such topic, or nobody answered.
    """
    route = await routes.fetch(topic)
    writable, readable = set(route.writable), set(route.readable)
    rows = []
    for queue in sorted(writable | readable, key=lambda one: (one.broker_name, one.queue_id)):
        access = ("read" if queue in readable else "") + (" write" if queue in writable else "")
        first, following = await asyncio.gather(
            _bound(calls, queue, topic, RequestCode.GET_MIN_OFFSET),
            _bound(calls, queue, topic, RequestCode.GET_MAX_OFFSET),
        )
        rows.append(
            QueueRow(
                queue.broker_name, queue.queue_id, queue.address, access.strip(), first, following
            )
        )
    return rows


async def _bound(calls: Caller, queue: Queue, topic: str, code: RequestCode) -> int | None:
    command = request(code, to_ext(QueueRequestHeader(topic, queue.queue_id)))
    try:
        answer = await calls.call(queue.address, command, CALL_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return from_ext(OffsetResponseHeader, answer.ext).offset
    except (RemotingError, WireError):
        return None


async def _ask(
    routes: Routes, command: RemotingCommand, what: str, *, patience_s: float = 3.0
) -> RemotingCommand:
    """The answer of code 0; while the controllers elect a leader, ask again."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        answer = await routes.ask(command)
        if answer.code == ResponseCode.SUCCESS:
            return answer
        leaderless = answer.code == ResponseCode.CONTROLLER_NOT_LEADER
        if not leaderless or asyncio.get_running_loop().time() >= deadline:
            raise refusal(answer, what)
        await asyncio.sleep(NO_LEADER_RETRY_S)
