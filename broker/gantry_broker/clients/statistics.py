"""Statistics of topics and members for admin tools; creation of topics."""

from itertools import chain

from gantry_protocol.bodies import (
    ClientConnection,
    ConsumerConnections,
    MessageQueue,
    TopicConfig,
    TopicOffset,
    decode_request,
    encode_body,
    encode_topic_stats,
)
from gantry_protocol.bodies.inspection import TopicConfigList
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers.brokeradmin import (
    CreateTopicRequestHeader,
    TopicRequestHeader,
)
from gantry_protocol.headers.client import ConsumerGroupRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import topic_rules
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.mapped.static_topics import StaticTopics
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import LAST, QueueOffsets, QueueQuestion, Refusal

LIST_MAX = 1024  # topics in one request


class Statistics:
    """Serves admin requests on one group."""

    def __init__(
        self,
        view: GroupView,
        sessions: Sessions,
        creation: TopicCreation,
        traffic: Traffic,
        static: StaticTopics,
    ) -> None:
        self._static = static
        self._view = view
        self._traffic = traffic
        self._sessions = sessions
        self._creation = creation

    def create_topic(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """UpdateAndCreateTopic (17): the controller commits it, then it comes through the log."""
        header = from_ext(CreateTopicRequestHeader, request.ext)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag,
            order=header.order,
            attributes=_modification(header.attributes),
        )
        return self._create(conn, request, [topic])

    def create_topics(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """UpdateAndCreateTopicList (18): none is made if one of them may not be."""
        topics = decode_request(TopicConfigList, request.body).topic_config_list
        if len(topics) > LIST_MAX:
            remark = f"a request may name {LIST_MAX} topics, not {len(topics)}"
            return reply(request, ResponseCode.INVALID_PARAMETER, remark)
        return self._create(conn, request, topics)

    def _create(
        self, conn: Connection, request: RemotingCommand, topics: list[TopicConfig]
    ) -> RemotingCommand | None:
        refusals = (self._view.accepting_writes(), *map(topic_rules.check_creatable, topics))
        new = (self._creation.refuse_new(conn, topic.topic_name) for topic in topics)
        refusal = next((item for item in chain(refusals, new) if item is not None), None)
        if refusal is not None or not topics:
            return reply(request) if refusal is None else reply(request, *refusal)
        outcomes: list[Refusal | None] = []

        def created(refusal: Refusal | None) -> None:
            outcomes.append(refusal)
            if len(outcomes) == len(topics):
                refusals = [outcome for outcome in outcomes if outcome is not None]
                answer = reply(request, *refusals[0]) if refusals else reply(request)
                conn.reply(request, answer)

        for topic in topics:
            self._creation.begin(topic, created, conn, if_absent=False)
        return None

    def topic_config(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetTopicConfig (351)."""
        name = from_ext(TopicRequestHeader, request.ext).topic
        topic = self._view.store.topics.lookup(name)
        if topic is None:
            return reply(request, *topic_rules.unknown_topic(name))
        return reply(request, body=encode_body(self._static.config(topic)))

    def topic_stats(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """GetTopicStatsInfo (202)."""
        name = from_ext(TopicRequestHeader, request.ext).topic
        topic = self._view.store.topics.lookup(name)
        if topic is None:
            return reply(request, *topic_rules.unknown_topic(name))
        queues = range(max(topic.read_queue_nums, topic.write_queue_nums))

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                conn.reply(request, reply(request, *answers))
                return
            table = {
                self._queue(name, queue_id): TopicOffset(
                    last_update_timestamp=queue.stored_at or 0,
                    max_offset=queue.max_offset,
                    min_offset=queue.min_offset,
                )
                for queue_id, queue in zip(queues, answers, strict=True)
            }
            rate = self._traffic.put_rate(name)
            conn.reply(request, reply(request, body=encode_topic_stats(table, rate)))

        own = self._view.queues.own
        questions = [QueueQuestion(name, own(name, item), LAST) for item in queues]
        self._view.store.offsets(questions, learned)
        return None

    def consumer_connections(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetConsumerConnectionList (203)."""
        name = from_ext(ConsumerGroupRequestHeader, request.ext).consumer_group
        group = self._sessions.group(name)
        if group is None:
            remark = f"the consumer group[{name}] not online"
            return reply(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        members = [
            ClientConnection(
                client_id=member.client_id,
                client_addr=member.connection.peer,
                language=member.language,
                version=member.version,
            )
            for member in group.members.values()
        ]
        body = ConsumerConnections(
            connection_set=members,
            subscription_table=group.topics,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return reply(request, body=encode_body(body))

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(broker_name=self._view.broker_name, queue_id=queue_id, topic=topic)


def _modification(text: str | None) -> dict[str, str]:
    """What becomes of a topic's attributes, by their names with ``+`` or ``-`` before them."""
    parts = [item.partition("=") for item in (text or "").split(",") if item]
    return {name: value for name, _, value in parts}
