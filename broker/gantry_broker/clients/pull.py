"""Pulls: PullMessage (11) and LitePullMessage (361).

Checks, codes and positions are upstream's (``PullMessageProcessor``, ``DefaultMessageStore``); how
one waits is ``pull_reads``.

A group whose offset was reset is answered with the new one (21), until it pulls from there.
"""

from collections.abc import Callable

from gantry_protocol.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from gantry_protocol.bodies.route import PERM_READ
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import BodyError
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import subscription as subscriptions
from gantry_broker.clients import topic_rules
from gantry_broker.clients.parking import Parking
from gantry_broker.clients.pull_reads import HasRead, PullReader, positions
from gantry_broker.clients.pulled import PulledOffsets
from gantry_broker.clients.sessions import ConsumerGroup, Sessions
from gantry_broker.clients.suggestions import Replicas, Suggestions
from gantry_broker.clients.topic_rules import unknown_topic
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueOffsets, QueueQuestion, Refusal
from gantry_broker.store.tables.resets import due_reset

Commit = Callable[[str, str, int, int], bool]
RefuseNew = Callable[[Connection, str, str, int], Refusal | None]

COMMIT_OFFSET = 1
_HAS_SUBSCRIPTION = 4
_TOPIC_FORBIDDEN = "2"  # ForbiddenType.TOPIC_FORBIDDEN


class Puller:
    """Serves pulls on one group.

    Args:
        view: the group.
        sessions: who subscribed to what.
        commit: remembers a group's position: group, topic, queue id, offset.
        traffic: counts what goes out.
        refuse_new: whether a group that nobody knows may not commit now.
        has_read: is told what pulls return; None where nobody wants to know.
        replicas: who may serve reads besides the master.

    Attributes:
        suggestions: which member consumers are to ask next.
    """

    def __init__(
        self,
        view: GroupView,
        sessions: Sessions,
        commit: Commit,
        traffic: Traffic,
        refuse_new: RefuseNew,
        has_read: HasRead | None = None,
        replicas: Replicas = tuple,
    ) -> None:
        self.suggestions = Suggestions(view, sessions, replicas)
        self._view = view
        self._store = view.store
        self._commit = commit
        self._refuse_new = refuse_new
        self._sessions = sessions
        self._reader = PullReader(view.store, traffic, has_read, self.suggestions.suggest)

    @property
    def pulled(self) -> PulledOffsets:
        """The positions that groups have pulled to."""
        return self._reader.pulled

    @property
    def read_bytes(self) -> int:
        """Bytes of records that went out, ever."""
        return self._reader.read_bytes

    @property
    def parking(self) -> Parking:
        """Pulls that wait for a record."""
        return self._reader.parking

    def close(self) -> None:
        """Send parked pulls back to ask again, and listen no more."""
        self._reader.close()

    def pull(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve a pull."""
        header = from_ext(PullMessageRequestHeader, request.ext)
        topic = self._store.topics.lookup(header.topic)
        refusal = check_topic(header, topic)
        if refusal is not None:
            return _refuse(request, refusal, topic)
        config = self._view.consumers.config(header.consumer_group)
        if not config.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            return _refuse(request, Refusal(ResponseCode.NO_PERMISSION, remark), None)
        found = subscription_of(header, self._sessions.group(header.consumer_group), config)
        if isinstance(found, Refusal):
            return _refuse(request, found, None)
        place = (header.consumer_group, header.topic, header.queue_id)
        due = due_reset(self._store.committed, *place)
        if due is not None and due != header.queue_offset:
            self._answer_reset(conn, request, due)
            return None
        if due is not None:
            self._commit(*place, due)  # the consumer has followed
        elif (
            header.sys_flag & COMMIT_OFFSET
            and header.commit_offset >= 0
            and self._refuse_new(conn, *place) is None
        ):
            self._commit(*place, header.commit_offset)
        self._reader.begin(conn, request, header, found)
        return None

    def queues_changed(self, topics: set[str]) -> None:
        """The maps of these topics changed: who waits at the end of a segment asks again."""
        for pull in self.parking.all() if topics else ():
            if pull.wanted.topic in topics:
                self.parking.release_one(pull)

    def moved(self, group: str, topic: str, queue_id: int) -> None:
        """The offset of ``group`` was reset: who waits elsewhere is told now."""
        self.pulled.forget(group, topic, queue_id)
        due = due_reset(self._store.committed, group, topic, queue_id)
        if due is None:
            return
        for pull in self.parking.of_queue((topic, queue_id)):
            if (pull.request.ext or {}).get("consumerGroup") == group:
                self.parking.forget(pull)
                self._answer_reset(pull.connection, pull.request, due)

    def _answer_reset(self, conn: Connection, request: RemotingCommand, due: int) -> None:
        header = from_ext(PullMessageRequestHeader, request.ext)

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                conn.reply(request, reply(request, *answers))
                return
            ext = positions(due, answers[0].min_offset, answers[0].max_offset)
            conn.reply(request, reply(request, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", ext))

        self._store.offsets([QueueQuestion(header.topic, header.queue_id)], learned)


def subscription_of(
    header: PullMessageRequestHeader, group: ConsumerGroup | None, config: SubscriptionGroupConfig
) -> SubscriptionData | Refusal:
    """The subscription of a consumer, by its own words or by its group's heartbeats.

    Args:
        header: of the pull.
        group: the consumer group, as far as it has members; None without any.
        config: its settings.
    """
    if header.sys_flag & _HAS_SUBSCRIPTION:
        if not subscriptions.is_known(header.expression_type):
            return _no_such_filter(header.expression_type)
        try:
            return subscriptions.parse(header.topic, header.subscription, header.expression_type)
        except BodyError as error:
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
    if group is None:
        remark = "the consumer's group info not exist"
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
    if group.is_broadcasting and not config.consume_broadcast_enable:
        remark = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
        return Refusal(ResponseCode.NO_PERMISSION, remark)
    found = group.topics.get(header.topic)
    if found is None:
        remark = "the consumer's subscription not exist"
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
    if found.sub_version < header.sub_version:
        remark = "the consumer's subscription not latest"
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
    if not subscriptions.is_known(found.expression_type):
        return _no_such_filter(found.expression_type)
    try:
        subscriptions.check_sql(found)
    except BodyError as error:
        return Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, str(error))
    return found


def check_topic(header: PullMessageRequestHeader, topic: TopicConfig | None) -> Refusal | None:
    """The reason why the queue of a pull cannot be read by anybody."""
    if topic is None:
        return unknown_topic(header.topic)
    if not topic.perm & PERM_READ:
        remark = f"the topic[{header.topic}] pulling message is forbidden"
        return Refusal(ResponseCode.NO_PERMISSION, remark)
    if not topic_rules.has_queue(topic, header.queue_id, topic.read_queue_nums):
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
            f" topicConfig.readQueueNums:[{topic.read_queue_nums}]",
        )
    return None


def _no_such_filter(expression_type: str | None) -> Refusal:
    return Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {expression_type}",
    )


def _refuse(
    request: RemotingCommand, refusal: Refusal, topic: TopicConfig | None
) -> RemotingCommand:
    forbidden = topic is not None and refusal.code is ResponseCode.NO_PERMISSION
    ext = {"forbiddenType": _TOPIC_FORBIDDEN} if forbidden else None
    return reply(request, refusal.code, refusal.remark, ext)
