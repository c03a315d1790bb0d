"""Topics: what there is is asked of the name service, and brokers are asked to change it.

As RocketMQ's tools do it: controllers take changes of topics from brokers, which show them the
quorum's key, and a group answers once the change is confirmed in its log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.bodies import TopicList, TopicRouteData, decode_body
from gantry_protocol.bodies.route import PERM_READ, PERM_WRITE
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import RemotingError, WireError
from gantry_protocol.headers.brokeradmin import CreateTopicRequestHeader, DeleteTopicRequestHeader
from gantry_protocol.headers.client import OffsetResponseHeader, QueueRequestHeader
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.headers.nameserver import GetRouteInfoRequestHeader

from gantry_cli.client import brokers
from gantry_cli.client.routes import Queue, Routes, TopicNotFoundError, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_protocol.command import RemotingCommand

    from gantry_cli.client.calls import Caller
    from gantry_cli.client.session import Session

CALL_TIMEOUT_S = 1.0
NO_LEADER_RETRY_S = 0.1


async def list_topics(routes: Routes) -> list[str]:
    """The names of all topics, sorted."""
    answer = await ask(
        routes, request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), "The list of topics"
    )
    return sorted(decode_body(TopicList, answer.body).topic_list)


async def create_topic(
    client: Session,
    topic: str,
    *,
    queues: int,
    cluster: str | None,
    broker_name: str | None = None,
    perm: int = PERM_READ | PERM_WRITE,
    attributes: Mapping[str, str | None] | None = None,
) -> None:
    """Create `topic` with `queues` queues on one group, or on all of them; or change it to that.

    With a `cluster` or a `broker_name` only there. An attribute that is None stays as it is.

    Raises:
        NameServiceError: no name server answers.
        BrokerError: a group refused it, or did not answer; others may have it.
    """
    header = CreateTopicRequestHeader(
        topic=topic,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        attributes=",".join(
            f"+{name}={value}" for name, value in (attributes or {}).items() if value is not None
        )
        or None,
    )
    what = f"Topic {topic!r} was not created"

    async def find() -> list[brokers.GroupAddress]:
        groups = await brokers.broker_groups(client.routes, only=broker_name)
        return [group for group in groups if cluster in (None, group.cluster)]

    async def change(group: brokers.GroupAddress) -> RemotingCommand:
        command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, to_ext(header))
        return await brokers.ask(client, group, command, what)

    if not await brokers.everywhere(find, change):
        raise brokers.BrokerError(f"{what}: there is no broker group of cluster {cluster!r}.")


async def delete_topic(client: Session, topic: str) -> None:
    """Delete `topic` on each broker group that has it.

    A broker answers once the end of the topic is confirmed in its log, so a topic of the same name
    may be made at once.

    Raises:
        NameServiceError: no name server answers.
        BrokerError: a broker group that has it did not answer.
    """
    command = request(RequestCode.DELETE_TOPIC_IN_BROKER, to_ext(DeleteTopicRequestHeader(topic)))
    what = f"Topic {topic!r} was not deleted"
    await brokers.everywhere(
        lambda: _groups_with(client, topic),
        lambda group: brokers.ask(client, group, command, what),
    )


async def _groups_with(client: Session, topic: str) -> list[brokers.GroupAddress]:
    try:
        route = await client.routes.fetch(topic)
    except TopicNotFoundError:
        return []
    addresses = {queue.broker_name: queue.address for queue in (*route.readable, *route.writable)}
    return [brokers.GroupAddress(name, "", address) for name, address in sorted(addresses.items())]


class Shape(msgspec.Struct, frozen=True, order=True):
    """The settings of a topic on one broker group."""

    broker_group: str
    cluster: str
    queues: int
    perm: int

    @property
    def access(self) -> str:
        """`read write`, one of the two, or `nothing`."""
        bits = ((PERM_READ, "read"), (PERM_WRITE, "write"))
        return " ".join(word for bit, word in bits if self.perm & bit) or "nothing"


async def shapes(routes: Routes, topic: str) -> list[Shape]:
    """The shape of `topic` on each broker group; empty when there is none of that name.

    Raises:
        NameServiceError: refused, or nobody answers.
    """
    header = GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)
    answer = await routes.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, to_ext(header)))
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return []
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(answer, f"The route of topic {topic!r} was refused")
    data = decode_body(TopicRouteData, answer.body)
    clusters = {broker.broker_name: broker.cluster for broker in data.broker_datas}
    return sorted(
        Shape(
            item.broker_name,
            clusters.get(item.broker_name, ""),
            max(item.read_queue_nums, item.write_queue_nums),
            item.perm,
        )
        for item in data.queue_datas
    )


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
    for queue in sorted(writable | readable, key=lambda item: (item.broker_name, item.queue_id)):
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


async def ask(
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
