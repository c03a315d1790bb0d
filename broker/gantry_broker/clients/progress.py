"""Progress of consumer groups, for admin tools.

Lag is what people act on, so it is told as it is: of every queue that the group should read, also
those in which it has committed nothing yet; and never for a topic that its members do not want any
more, where nobody will ever catch up.
"""

from collections.abc import Mapping
from functools import partial

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
from gantry_protocol.queue_map import Segment
from gantry_protocol.remoting.connection import Connection
from msgspec.structs import replace

from gantry_broker.clients.mapped.whole import Found, WholeQueues
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
        whole: queues of mapped topics.
    """

    def __init__(
        self,
        view: GroupView,
        sessions: Sessions,
        pulled: PulledOffsets,
        traffic: Traffic,
        whole: WholeQueues,
    ) -> None:
        self._view = view
        self._whole = whole
        self._sessions = sessions
        self._pulled = pulled
        self._traffic = traffic

    def consume_stats(self, conn: Connection, request: RemotingCommand) -> None:
        """GetConsumeStats (208)."""
        header = from_ext(GetConsumeStatsRequestHeader, request.ext)
        group = header.consumer_group
        rows = {(row[1], row[2]): row[3] for row in self._view.store.committed.of_group(group)}
        places = self._places(group, rows, header.topic)
        present = self._sessions.group(group)
        taken = self._taken(places) if self._whole.is_seen_by(present) else {}
        plain = [place for place in places if place[0] not in taken]
        whole = [
            ((topic, number), rows.get((topic, segment.queue_id)), segment)
            for topic, queues in taken.items()
            for number, segment in queues.items()
        ]
        questions = [(place[0], item.queue_id, offset) for place, offset, item in whole]
        unknown = [place for place, offset, _ in whole if offset is None]
        left = {} if present is not None else {key: rows[key] for key in rows if key[0] in taken}

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                conn.reply(request, reply(request, *answers))
                return
            pairs = zip(plain, answers, strict=False)
            table = {self.queue(place): self.row(group, place, queue) for place, queue in pairs}
            ends = answers[len(plain) :]

            def found(committed: Found, beginnings: Found) -> None:
                for (place, offset, segment), queue in zip(whole, ends, strict=True):
                    if present is None and place in committed:
                        continue  # told by the group that has its offset
                    known = {**beginnings, **committed}.get(place, offset)
                    at = max(queue.min_offset, segment.start) if known is None else known
                    seen = self.row(group, (place[0], segment.queue_id, at), queue)
                    end = max(queue.max_offset, segment.start)
                    table[self.queue((*place, None))] = self._whole_row(place, seen, end)
                self._whole.left_behind(conn, group, left, told)

            def told(committed: Found, last: Found) -> None:
                for place, offset in committed.items():
                    if place in last:
                        seen = OffsetWrapper(last[place], offset, 0)
                        table[self.queue((*place, None))] = self._whole_row(
                            place, seen, last[place]
                        )
                rate = self._traffic.got_rate(group)
                conn.reply(request, reply(request, body=encode_consume_stats(table, rate)))

            self._whole.positions(conn, group, unknown, found)

        self.ask([*plain, *questions], learned)

    def _taken(self, places: list[Place]) -> dict[str, dict[int, Segment]]:
        """The mapped topics of these places, and their queues that messages come to here."""
        topics = dict.fromkeys(place[0] for place in places)
        found = {topic: self._whole.taken(topic) for topic in topics}
        return {topic: queues for topic, queues in found.items() if queues is not None}

    def _whole_row(self, place: tuple[str, int], seen: OffsetWrapper, end: int) -> OffsetWrapper:
        """The row of a queue that may have begun elsewhere; what nobody can read is left out."""
        at = seen.consumer_offset
        at = min(end, at + self._whole.left_out(place, at))
        pulled = max(at, seen.pull_offset)
        return replace(seen, broker_offset=end, consumer_offset=at, pull_offset=pulled)

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
                found += [
                    (name, queue_id, rows.get((name, queue_id)))
                    for queue_id in map(partial(own, name), range(topic.read_queue_nums))
                ]
        return found

    def all_offsets(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetAllConsumerOffset (43)."""
        table: dict[str, dict[int, int]] = {}
        for group, topic, queue_id, offset in self._view.store.committed.all():
            if not is_mark(group):
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
        """QueryTopicsByConsumer (343)."""
        group = from_ext(QueryTopicsByConsumerRequestHeader, request.ext).group
        names = {row[1] for row in self._view.store.committed.of_group(group)}
        present = self._sessions.group(group)
        names.update(() if present is None else present.topics)
        return reply(request, body=encode_body(TopicList(sorted(names))))
