"""Progress of consumer groups, for admin tools.

Lag is what people act on, so it is told as it is: of every queue that the group should read, also
those in which it has committed nothing yet; and never for a topic that its members do not want any
more, where nobody will ever catch up.
"""

from collections.abc import Callable, Mapping
from functools import partial

from gantry_protocol.bodies import (
    ConsumerOffsets,
    GroupList,
    MessageQueue,
    OffsetWrapper,
    TopicConfig,
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
from gantry_protocol.lite import is_lite_queue, parent_and_lite
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.pulled import PulledOffsets
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.topic_rules import is_system_group
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import (
    Learned,
    QueueKey,
    QueueOffsets,
    QueueQuestion,
    Refusal,
)
from gantry_broker.store.tables.resets import is_mark

Place = tuple[str, int, int | None]  # topic, queue id, committed offset


class GroupProgress:
    """Serves questions about positions of groups.

    Args:
        view: the group.
        sessions: who subscribed to what.
        pulled: how far they have pulled.
        traffic: how fast they get messages.

    Attributes:
        is_popped: whether a consumer group pops from a queue here, be it a closed segment.
    """

    def __init__(
        self, view: GroupView, sessions: Sessions, pulled: PulledOffsets, traffic: Traffic
    ) -> None:
        self._view = view
        self._sessions = sessions
        self._pulled = pulled
        self._traffic = traffic
        self.is_popped: Callable[[str, str, int], bool] = lambda *place: False

    def consume_stats(self, conn: Connection, request: RemotingCommand) -> None:
        """GetConsumeStats (208)."""
        header = from_ext(GetConsumeStatsRequestHeader, request.ext)
        group = header.consumer_group
        rows = {(row[1], row[2]): row[3] for row in self._view.store.committed.of_group(group)}
        places = self._places(group, rows, header.topic)

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                conn.reply(request, reply(request, *answers))
                return
            table = {
                self.queue(place): self.row(group, place, queue)
                for place, queue in zip(places, answers, strict=True)
            }
            rate = self._traffic.got_rate(group)
            conn.reply(request, reply(request, body=encode_consume_stats(table, rate)))

        self.ask(places, learned)

    def places_of_all(self) -> dict[str, list[Place]]:
        """The queues that each consumer group should read, those of the broker itself left out."""
        rows: dict[str, dict[QueueKey, int]] = {
            name: {}
            for name in (
                *self._view.consumers.configs.subscription_group_table,
                *self._sessions.consumer_groups(),
            )
        }
        for group, topic, queue_id, offset in self._view.store.committed.all():
            if not is_mark(group) and not is_system_group(group):
                rows.setdefault(group, {})[topic, queue_id] = offset
        return {group: self._places(group, rows[group], None) for group in sorted(rows)}

    def ask(self, places: list[Place], learned: Learned) -> None:
        """The store's offsets of some queues, in their order."""
        self._view.store.offsets(
            [
                QueueQuestion(topic, queue_id, committed - 1 if committed else None)
                for topic, queue_id, committed in places
            ],
            learned,
        )

    def queue(self, place: Place) -> MessageQueue:
        """The name of a queue on this group."""
        topic, queue_id, _ = place
        return MessageQueue(self._view.broker_name, queue_id, topic)

    def row(self, group: str, place: Place, queue: QueueOffsets) -> OffsetWrapper:
        """The progress of a group in a queue.

        One that has committed nothing would begin at the first message there is.
        """
        topic, queue_id, committed = place
        consumed = queue.min_offset if committed is None else committed
        return OffsetWrapper(
            broker_offset=queue.max_offset,
            consumer_offset=consumed,
            last_timestamp=queue.stored_at or 0,
            pull_offset=max(consumed, self._pulled.offset(group, topic, queue_id) or 0),
        )

    def _places(self, group: str, rows: Mapping[QueueKey, int], only: str | None) -> list[Place]:
        """Queues of the topics that members want, or without any of those that it read.

        Args:
            group: its name.
            rows: what it has committed.
            only: a topic; all of them when it is None or empty.
        """
        present = self._sessions.group(group)
        wanted = {topic for topic, _ in rows} if present is None else set(present.topics)
        own = self._view.queues.own
        found: list[Place] = []
        for name in sorted(wanted):
            topic = self._view.store.topics.lookup(name)
            if topic is not None and only in (None, "", name):
                newest = list(map(partial(own, name), range(topic.read_queue_nums)))
                found += [
                    (name, queue_id, rows.get((name, queue_id)))
                    for queue_id in [*newest, *self._older(group, topic, rows, newest)]
                ]
        return found

    def _older(
        self, group: str, topic: TopicConfig, rows: Mapping[QueueKey, int], newest: list[int]
    ) -> list[int]:
        """Closed segments that a group pops here, besides those that are its newest ones."""
        if MAPPED not in topic.attributes:
            return []
        name = topic.topic_name
        return [
            queue_id
            for at, queue_id in rows
            if at == name and queue_id not in newest and self.is_popped(group, name, queue_id)
        ]

    def all_offsets(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetAllConsumerOffset (43); without lite topics, of which there may be a million."""
        table: dict[str, dict[int, int]] = {}
        for group, topic, queue_id, offset in self._view.store.committed.all():
            if not (is_mark(group) or is_system_group(group) or is_lite_queue(topic)):
                table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        return reply(request, body=encode_body(ConsumerOffsets(table)))

    def groups_of_topic(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """QueryTopicConsumeByWho (300): groups that have consumed a topic or are connected."""
        topic = from_ext(TopicRequestHeader, request.ext).topic
        rows = self._view.store.committed.all()
        names = {group for group, name, _, _ in rows if name == topic and not is_mark(group)}
        names.update(self._sessions.subscribers(topic))
        return reply(request, body=encode_body(GroupList(sorted(names))))

    def topics_of_group(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """QueryTopicsByConsumer (343): of lite topics the parent."""
        group = from_ext(QueryTopicsByConsumerRequestHeader, request.ext).group
        names = {
            parent_and_lite(row[1])[0] if is_lite_queue(row[1]) else row[1]
            for row in self._view.store.committed.of_group(group)
        }
        present = self._sessions.group(group)
        names.update(() if present is None else present.topics)
        return reply(request, body=encode_body(TopicList(sorted(names))))
