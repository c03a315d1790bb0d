"""How far consumer groups have come: 208, 43, 300 and 343.

Lag is what people act on, so it is told as it is: of every queue that the group should read, also
those in which it has committed nothing yet; and never for a topic that its members do not want any
more, where nobody will ever catch up.
"""

from gantry_protocol.bodies import (
    ConsumerOffsets,
    GroupList,
    MessageQueue,
    OffsetWrapper,
    TopicList,
    encode_body,
    encode_consume_stats,
)
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers.brokeradmin import (
    GetConsumeStatsRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    TopicRequestHeader,
)
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.pulled import PulledOffsets
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueOffsets, QueueQuestion, Refusal
from gantry_broker.tables.resets import is_mark

Place = tuple[str, int, int | None]  # topic, queue id, committed offset


class Progress:
    """Serves questions about positions of groups.

    Args:
        view: the group.
        sessions: who subscribed to what.
        pulled: how far they have pulled.
        traffic: how fast they get messages.
    """

    def __init__(
        self, view: GroupView, sessions: Sessions, pulled: PulledOffsets, traffic: Traffic
    ) -> None:
        self._view = view
        self._sessions = sessions
        self._pulled = pulled
        self._traffic = traffic

    def consume_stats(self, conn: Connection, request: RemotingCommand) -> None:
        """208."""
        header = from_ext(GetConsumeStatsRequestHeader, request.ext)
        places = self._places(header.consumer_group, header.topic)

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                conn.reply(request, reply(request, *answers))
                return
            table = {
                MessageQueue(self._view.broker_name, queue_id, topic): _row(
                    queue, committed, self._pulled.offset(header.consumer_group, topic, queue_id)
                )
                for (topic, queue_id, committed), queue in zip(places, answers, strict=True)
            }
            rate = self._traffic.got_rate(header.consumer_group)
            conn.reply(request, reply(request, body=encode_consume_stats(table, rate)))

        self._view.store.offsets(
            [
                QueueQuestion(topic, queue_id, committed - 1 if committed else None)
                for topic, queue_id, committed in places
            ],
            learned,
        )

    def _places(self, group: str, only: str | None) -> list[Place]:
        store = self._view.store
        rows = {(row[1], row[2]): row[3] for row in store.committed.of_group(group)}
        present = self._sessions.group(group)
        wanted = {topic for topic, _ in rows} if present is None else set(present.topics)
        found: list[Place] = []
        for name in sorted(wanted):
            topic = store.topics.lookup(name)
            if topic is not None and only in (None, "", name):
                found += [
                    (name, queue_id, rows.get((name, queue_id)))
                    for queue_id in range(topic.read_queue_nums)
                ]
        return found

    def all_offsets(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """43."""
        table: dict[str, dict[int, int]] = {}
        for group, topic, queue_id, offset in self._view.store.committed.all():
            if not is_mark(group):
                table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        return reply(request, body=encode_body(ConsumerOffsets(table)))

    def groups_of_topic(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """300: who has consumed a topic, or is connected to do so."""
        topic = from_ext(TopicRequestHeader, request.ext).topic
        rows = self._view.store.committed.all()
        names = {group for group, name, _, _ in rows if name == topic and not is_mark(group)}
        names.update(self._sessions.subscribers(topic))
        return reply(request, body=encode_body(GroupList(sorted(names))))

    def topics_of_group(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """343."""
        group = from_ext(QueryTopicsByConsumerRequestHeader, request.ext).group
        names = {row[1] for row in self._view.store.committed.of_group(group)}
        present = self._sessions.group(group)
        names.update(() if present is None else present.topics)
        return reply(request, body=encode_body(TopicList(sorted(names))))


def _row(queue: QueueOffsets, committed: int | None, pulled: int | None) -> OffsetWrapper:
    """A group that has committed nothing would begin at the first message there is."""
    consumed = queue.min_offset if committed is None else committed
    return OffsetWrapper(
        broker_offset=queue.max_offset,
        consumer_offset=consumed,
        last_timestamp=queue.stored_at or 0,
        pull_offset=max(consumed, pulled or 0),
    )
