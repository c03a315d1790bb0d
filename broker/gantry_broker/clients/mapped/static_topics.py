"""Static topics, as upstream's tools make and show them (RIP-21): 513, and part of 351.

A tool works out where each queue shall be and tells every broker its part. Only that wish is taken
over: for each queue the group of its last item. The ends and the first offsets of segments, which
the tool would set from what it has seen, are the masters' and the controllers' own.
"""

import msgspec
from gantry_protocol.bodies import TopicConfig, decode_request, encode_body
from gantry_protocol.bodies.queue_maps import (
    QueuePlaces,
    StaticQueueItem,
    StaticQueuesOfGroup,
    static_queues,
)
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.command import request as new_request
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.queue_maps import MapQueuesRequestHeader
from gantry_protocol.queue_map import QueueMap
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.connection import Connection
from msgspec.structs import replace

from gantry_broker.clients.view import GroupView

CALL_TIMEOUT_S = 2.0


class StaticTopicConfig(TopicConfig, frozen=True):
    """Upstream's ``TopicConfigAndQueueMapping``."""

    mapping_detail: StaticQueuesOfGroup | None = None


class StaticTopics:
    """Serves tools on one group."""

    def __init__(self, view: GroupView) -> None:
        self._view = view

    def change(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """UpdateAndCreateStaticTopic (513); 0 once the controllers have the wish."""
        wish = decode_request(StaticQueuesOfGroup, request.body)
        hosted = wish.hosted_queues if isinstance(wish.hosted_queues, dict) else {}
        places = {number: items[-1].bname for number, items in hosted.items() if items}
        if not places:
            return reply(request)  # a group that gets nothing
        header = MapQueuesRequestHeader(
            self._view.cluster, wish.topic, wish.total_queues, wish.epoch
        )
        command = new_request(
            RequestCode.GANTRY_MAP_QUEUES, to_ext(header), encode_body(QueuePlaces(places))
        )

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, RemotingCommand):
                answer = reply(request, outcome.code, outcome.remark)
            else:
                answer = reply(request, outcome.answer_code, str(outcome))
            conn.reply(request, answer)

        self._view.queues.ask_controllers(command, done)
        return None

    def config(self, topic: TopicConfig) -> TopicConfig:
        """The answer to 351: with the queues that this group has, for a mapped topic."""
        queues = self._view.queues.of(topic.topic_name)
        if queues is None:
            return topic
        detail = _detail(topic.topic_name, queues, self._view.broker_name)
        return StaticTopicConfig(**msgspec.structs.asdict(topic), mapping_detail=detail)


def _detail(topic: str, queues: QueueMap, group: str) -> StaticQueuesOfGroup:
    """One item for each queue: offsets are the same everywhere, so it has no offset of its own."""
    hosted = {
        number: [StaticQueueItem(queue.moves, number, group)]
        for number, queue in enumerate(queues.queues)
        if queue.open.group == group
    }
    shown = static_queues(topic, queues, group)
    return replace(shown, hosted_queues=hosted, curr_id_map={number: number for number in hosted})
