"""Topics, through the name service: controllers commit them first, brokers then apply them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_protocol.bodies import ClusterInfo, TopicList, decode_body
from gantry_protocol.bodies.route import PERM_READ, PERM_WRITE
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.headers.brokeradmin import CreateTopicRequestHeader, DeleteTopicRequestHeader
from gantry_protocol.headers.codec import to_ext

from gantry_cli.client.routes import Routes, refusal

if TYPE_CHECKING:
    from gantry_protocol.command import RemotingCommand

NO_LEADER_RETRY_S = 0.1


async def list_topics(routes: Routes) -> list[str]:
    """The names of all topics, sorted."""
    answer = await _ask(
        routes, request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), "The list of topics"
    )
    return sorted(decode_body(TopicList, answer.body).topic_list)


async def cluster_info(routes: Routes) -> ClusterInfo:
    """Clusters, their groups, and the addresses of the groups' members."""
    answer = await _ask(
        routes, request(RequestCode.GET_BROKER_CLUSTER_INFO), "The list of clusters"
    )
    return decode_body(ClusterInfo, answer.body)


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
