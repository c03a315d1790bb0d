"""What admin tools ask a broker about its topics and groups: 202, 203, 208, 351; and 17."""

from gantry_protocol.bodies import (
    ClientConnection,
    ConsumerConnections,
    MessageQueue,
    OffsetWrapper,
    TopicConfig,
    TopicOffset,
    encode_body,
    encode_consume_stats,
    encode_topic_stats,
)
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers.brokeradmin import (
    CreateTopicRequestHeader,
    GetConsumeStatsRequestHeader,
    TopicRequestHeader,
)
from gantry_protocol.headers.client import ConsumerGroupRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import topic_rules
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.view import GroupView, Refusal


class Statistics:
    """Serves admin requests on one group."""

    def __init__(self, view: GroupView, sessions: Sessions, creation: TopicCreation) -> None:
        self._view = view
        self._sessions = sessions
        self._creation = creation

    def create_topic(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """17: the controller commits the topic, then it comes back through the log."""
        header = from_ext(CreateTopicRequestHeader, request.ext)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag,
            order=header.order,
        )
        refusal = self._view.accepting_writes() or topic_rules.check_creatable(topic)
        if refusal is not None:
            return reply(request, *refusal)

        def created(refusal: Refusal | None) -> None:
            answer = reply(request) if refusal is None else reply(request, *refusal)
            conn.reply(request, answer)

        self._view.create_topic(topic, created, if_absent=False)
        return None

    def topic_config(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """351."""
        name = from_ext(TopicRequestHeader, request.ext).topic
        topic = self._view.store.topics.lookup(name)
        if topic is None:
            return reply(request, *topic_rules.unknown_topic(name))
        return reply(request, body=encode_body(topic))

    def topic_stats(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """202."""
        name = from_ext(TopicRequestHeader, request.ext).topic
        topic = self._view.store.topics.lookup(name)
        if topic is None:
            return reply(request, *topic_rules.unknown_topic(name))
        store = self._view.store
        table = {}
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            high = store.max_offset(name, queue_id)
            table[self._queue(name, queue_id)] = TopicOffset(
                last_update_timestamp=store.store_time(name, queue_id, high - 1) or 0,
                max_offset=high,
                min_offset=store.min_offset(name, queue_id),
            )
        return reply(request, body=encode_topic_stats(table))

    def consume_stats(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """208."""
        header = from_ext(GetConsumeStatsRequestHeader, request.ext)
        store = self._view.store
        table = {}
        for _, topic, queue_id, offset in store.offsets.of_group(header.consumer_group):
            if header.topic in (None, "", topic):
                table[self._queue(topic, queue_id)] = OffsetWrapper(
                    broker_offset=store.max_offset(topic, queue_id),
                    consumer_offset=offset,
                    last_timestamp=store.store_time(topic, queue_id, offset - 1) or 0,
                )
        return reply(request, body=encode_consume_stats(table))

    def consumer_connections(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """203."""
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
