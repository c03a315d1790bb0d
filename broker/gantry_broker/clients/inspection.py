"""Requests of administrators who look at queues and clients.

Answers have upstream's names and forms (``AdminBrokerProcessor``). One answer is bounded: so many
queues, so many entries; who asks for more is told how to ask for less.
"""

import time
from collections.abc import Callable

import msgspec
from gantry_protocol.bodies import (
    MessageQueue,
    OffsetWrapper,
    encode_body,
    encode_consume_stats,
)
from gantry_protocol.bodies.inspection import (
    BrokerStats,
    GroupSubscription,
    ProducerInfo,
    ProducerTable,
    QueueEntries,
    QueueEntry,
    QueueTimeSpan,
    StatsItem,
    TimeSpans,
)
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers.brokeradmin import (
    GetConsumeStatsInBrokerRequestHeader,
    QueryConsumeQueueRequestHeader,
    TopicAndGroupRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.records import decode_records, entry_code
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import topic_rules
from gantry_broker.clients.progress import GroupProgress, Place
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import (
    FIRST,
    LAST,
    GetResult,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    ReadLimits,
    Refusal,
)

QUEUES_MAX = 20_000  # in one answer
ENTRIES_MAX = 256  # of 321
_ENTRIES_MAX_BYTES = 4 * 1024 * 1024
_COUNTED = ("TOPIC_PUT_NUMS", "GROUP_GET_NUMS")
_NO_TIME = -1


class Inspection:
    """Serves what is only looked at, on one group.

    Args:
        view: the group.
        sessions: who is connected.
        progress: positions of groups.
        traffic: how much goes through.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        view: GroupView,
        sessions: Sessions,
        progress: GroupProgress,
        traffic: Traffic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._view = view
        self._sessions = sessions
        self._progress = progress
        self._traffic = traffic
        self._clock = clock

    def all_consume_stats(
        self, conn: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """GetBrokerConsumeStats (317): the progress of every consumer group, topic by topic."""
        only_ordered = from_ext(GetConsumeStatsInBrokerRequestHeader, request.ext).is_order
        places = self._progress.places_of_all()
        topics = self._view.store.topics
        if only_ordered:
            places = {
                group: [place for place in some if (one := topics.lookup(place[0])) and one.order]
                for group, some in places.items()
            }
        count = sum(map(len, places.values()))
        if count > QUEUES_MAX:
            remark = f"{count} queues are too many for one answer: ask for one group at a time"
            return reply(request, ResponseCode.SYSTEM_BUSY, remark)

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                conn.reply(request, reply(request, *answers))
            else:
                conn.reply(request, reply(request, body=self._all_stats(places, answers)))

        self._progress.ask([place for some in places.values() for place in some], learned)
        return None

    def _all_stats(self, places: dict[str, list[Place]], answers: list[QueueOffsets]) -> bytes:
        behind = in_flight = 0
        listed: list[dict[str, list[msgspec.Raw]]] = []
        queues = iter(answers)
        for group, some in places.items():
            tables: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
            for place in some:
                row = self._progress.row(group, place, next(queues))
                tables.setdefault(place[0], {})[self._progress.queue(place)] = row
                behind += row.broker_offset - row.consumer_offset
                in_flight += row.pull_offset - row.consumer_offset
            rate = self._traffic.got_rate(group)
            stats = [msgspec.Raw(encode_consume_stats(table, rate)) for table in tables.values()]
            listed.append({group: stats})
        host, port = self._view.store_host
        return encode_body(
            {
                "brokerAddr": f"{host}:{port}",
                "consumeStatsList": listed,
                "totalDiff": behind,
                "totalInflightDiff": in_flight,
            }
        )

    def time_span(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """QueryConsumeTimeSpan (303): times of a topic's messages, and a group's place."""
        header = from_ext(TopicAndGroupRequestHeader, request.ext)
        topic = self._view.store.topics.lookup(header.topic)
        if topic is None:
            return reply(request, *topic_rules.unknown_topic(header.topic))
        committed = [
            self._view.store.committed.query(header.group, header.topic, queue_id) or 0
            for queue_id in range(topic.write_queue_nums)
        ]
        questions = [
            QueueQuestion(header.topic, queue_id, at)
            for queue_id, offset in enumerate(committed)
            for at in (FIRST, LAST, offset - 1 if offset else FIRST, offset)
        ]

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                conn.reply(request, reply(request, *answers))
                return
            now_ms = int(self._clock() * 1000)
            spans = []
            for queue_id, offset in enumerate(committed):
                first, last, consumed, following = answers[4 * queue_id : 4 * queue_id + 4]
                waits = offset < first.max_offset and following.stored_at is not None
                spans.append(
                    QueueTimeSpan(
                        MessageQueue(self._view.broker_name, queue_id, header.topic),
                        _time(first),
                        _time(last),
                        _time(consumed),
                        max(0, now_ms - _time(following)) if waits else 0,
                    )
                )
            conn.reply(request, reply(request, body=encode_body(TimeSpans(spans))))

        self._view.store.offsets(questions, learned)
        return None

    def queue(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """QueryConsumeQueue (321): the places of the messages of a queue, from an offset on."""
        header = from_ext(QueryConsumeQueueRequestHeader, request.ext)
        topic = self._view.store.topics.lookup(header.topic)
        if topic is None or not 0 <= header.queue_id < topic.read_queue_nums:
            remark = f"{header.queue_id}@{header.topic} is not exist!"
            return reply(request, ResponseCode.SYSTEM_ERROR, remark)
        if not 1 <= header.count <= ENTRIES_MAX or header.index < 0:
            remark = (
                f"ask for 1 to {ENTRIES_MAX} messages from 0 on, not for {header.count} from"
                f" {header.index}"
            )
            return reply(request, ResponseCode.INVALID_PARAMETER, remark)
        subscription, why = None, None
        if header.consumer_group:
            group = self._sessions.group(header.consumer_group)
            subscription = None if group is None else group.topics.get(header.topic)
            if subscription is None:
                why = f"{header.consumer_group}@{header.topic} is not online!"

        def was_read(result: GetResult | Refusal) -> None:
            if isinstance(result, Refusal):
                conn.reply(request, reply(request, *result))
                return
            entries = []
            for record in decode_records(result.body):
                code = entry_code(
                    record.topic.encode(), record.properties.encode(), record.store_timestamp
                )
                entries.append(QueueEntry(record.physical_offset, record.size, code))
            body = QueueEntries(entries, result.max_offset, result.min_offset, subscription, why)
            conn.reply(request, reply(request, body=encode_body(body)))

        limits = ReadLimits(header.count, _ENTRIES_MAX_BYTES)
        self._view.store.read(
            QueueRead(header.topic, header.queue_id, header.index, limits), was_read
        )
        return None

    def subscription(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """QuerySubscriptionByConsumer (345)."""
        header = from_ext(TopicAndGroupRequestHeader, request.ext)
        group = self._sessions.group(header.group)
        found = None if group is None else group.topics.get(header.topic)
        body = GroupSubscription(header.group, header.topic, found)
        return reply(request, body=encode_body(body))

    def producers(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetAllProducerInfo (328): connected producers, by group."""
        now_ms = int(self._clock() * 1000)
        table = {
            name: [
                ProducerInfo(
                    producer.client_id,
                    producer.connection.peer,
                    producer.language,
                    producer.version,
                    now_ms - self._sessions.silent_ms(producer),
                )
                for producer in self._sessions.producers(name)
            ]
            for name in self._sessions.producer_groups()
        }
        return reply(request, body=encode_body(ProducerTable(table)))

    def stats(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """ViewBrokerStatsData (315): messages put to a topic, or got by a ``topic@group``."""
        header = from_ext(ViewBrokerStatsDataRequestHeader, request.ext)
        topic = header.stats_key.partition("@")[0]
        if header.stats_name not in _COUNTED or self._view.store.topics.lookup(topic) is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return reply(request, ResponseCode.SYSTEM_ERROR, remark)
        minute, hour, day = (
            StatsItem(moved.messages, moved.rate, 1.0 if moved.messages else 0.0)
            for moved in self._traffic.moved(header.stats_key)
        )
        return reply(request, body=encode_body(BrokerStats(minute, hour, day)))


def _time(queue: QueueOffsets) -> int:
    return _NO_TIME if queue.stored_at is None else queue.stored_at
