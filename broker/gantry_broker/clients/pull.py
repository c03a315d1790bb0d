"""Pulls: PullMessage (11) and LitePullMessage (361).

Checks, codes and positions are upstream's (``PullMessageProcessor``, ``DefaultMessageStore``), with
one difference: an offset between the confirmed end and the end of a queue is waited for. Upstream's
answer (21, "offset illegal") would make a consumer that has just moved to a new master go back.

A group whose offset was reset is answered with the new one (21), until it pulls from there.

A pull that finds nothing is parked in the very turn in which the store says so. A store tells of
records after it answered reads that they missed, so none is waited for that has come already. One
that finds no room to wait hears 2 (system busy), as any request that is too many: clients ask again
after a while (Java after 1 s or 3 s); after 19, "nothing yet", they would ask at once, for ever.
"""

from collections.abc import Callable
from functools import partial

from gantry_protocol.bodies import SubscriptionData, TopicConfig
from gantry_protocol.bodies.route import PERM_READ
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import BodyError
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection
from msgspec.structs import replace

from gantry_broker.clients import subscription as subscriptions
from gantry_broker.clients.parking import ParkedPull, Parking
from gantry_broker.clients.pulled import PulledOffsets
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.topic_rules import unknown_topic
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import (
    GetResult,
    GetStatus,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    ReadLimits,
    Refusal,
)
from gantry_broker.store.tables.resets import due_reset

Commit = Callable[[str, str, int, int], bool]
RefuseNew = Callable[[Connection, str, str, int], Refusal | None]
HasRead = Callable[[str, int], None]  # a topic, bytes of its records

_COMMIT_OFFSET = 1
_MAY_SUSPEND = 2
_HAS_SUBSCRIPTION = 4
_MAX_COUNT = 32  # upstream's limits while data is in memory
_MAX_BYTES = 256 * 1024
_NO_ROOM = Refusal(
    ResponseCode.SYSTEM_BUSY,
    "[OVERLOAD]too many pulls wait for messages, start flow control for a while",
)
_TOPIC_FORBIDDEN = "2"  # ForbiddenType.TOPIC_FORBIDDEN

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_IN_TIER: ResponseCode.PULL_RETRY_IMMEDIATELY,
}


class Puller:
    """Serves pulls on one group.

    Args:
        view: the group.
        sessions: who subscribed to what.
        commit: remembers a group's position: group, topic, queue id, offset.
        traffic: counts what goes out.
        refuse_new: whether a group that nobody knows may not commit now.
        has_read: is told what pulls return; None where nobody wants to know.

    Attributes:
        pulled: how far groups have pulled.
    """

    def __init__(
        self,
        view: GroupView,
        sessions: Sessions,
        commit: Commit,
        traffic: Traffic,
        refuse_new: RefuseNew,
        has_read: HasRead | None = None,
    ) -> None:
        self._has_read = has_read
        self._view = view
        self._store = view.store
        self._commit = commit
        self._refuse_new = refuse_new
        self._sessions = sessions
        self._traffic = traffic
        self.pulled = PulledOffsets()
        self.parking = Parking(self._read_again, _give_up)
        self._unsubscribe = self._store.subscribe(self.parking.arrived)

    def close(self) -> None:
        """Send parked pulls back to ask again, and listen no more."""
        self._unsubscribe()
        self.parking.release()
        self.parking.close()

    def pull(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve a pull."""
        header = from_ext(PullMessageRequestHeader, request.ext)
        topic = self._store.topics.lookup(header.topic)
        refusal = _check_topic(header, topic)
        if refusal is not None:
            return _refuse(request, refusal, topic)
        if not self._view.consumers.config(header.consumer_group).consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            return _refuse(request, Refusal(ResponseCode.NO_PERMISSION, remark), None)
        found = self._subscription(header)
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
            header.sys_flag & _COMMIT_OFFSET
            and header.commit_offset >= 0
            and self._refuse_new(conn, *place) is None
        ):
            self._commit(*place, header.commit_offset)
        pull = ParkedPull(
            connection=conn,
            request=request,
            wanted=QueueRead(
                header.topic,
                header.queue_id,
                header.queue_offset,
                ReadLimits(min(max(header.max_msg_nums, 1), _MAX_COUNT), _MAX_BYTES),
                subscriptions.wanted_codes(found),
            ),
            asked_offset=header.queue_offset,
        )
        may_wait = header.sys_flag & _MAY_SUSPEND and not request.is_oneway
        wait_s = header.suspend_timeout_ms / 1000 if may_wait else 0.0
        self._store.read(pull.wanted, partial(self._was_read, pull, wait_s))
        return None

    def _was_read(self, pull: ParkedPull, wait_s: float, result: GetResult | Refusal) -> None:
        """Answer a pull, or let it wait where there may be something later."""
        if (
            isinstance(result, GetResult)
            and wait_s > 0
            and _is_nothing_yet(pull, result)
            and not pull.connection.closed
        ):
            pull.last = result
            if not self.parking.park(pull, wait_s):
                self._send(pull, _NO_ROOM)
        else:
            self._send(pull, result)

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
            ext = _positions(due, answers[0].min_offset, answers[0].max_offset)
            conn.reply(request, reply(request, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", ext))

        self._store.offsets([QueueQuestion(header.topic, header.queue_id)], learned)

    def _send(self, pull: ParkedPull, result: GetResult | Refusal) -> None:
        if isinstance(result, GetResult) and result.count:
            group = (pull.request.ext or {})["consumerGroup"]
            self.pulled.note(group, *pull.key, result.next_offset)
            self._traffic.got(group, pull.wanted.topic, result.count)
            if self._has_read is not None:
                self._has_read(pull.wanted.topic, len(result.body))
        _send(pull, result)

    def _subscription(self, header: PullMessageRequestHeader) -> SubscriptionData | Refusal:
        """What the consumer wants, by its own words or by its group's heartbeats."""
        found: SubscriptionData | None
        if header.sys_flag & _HAS_SUBSCRIPTION:
            if not subscriptions.is_tag(header.expression_type):
                return _no_such_filter(header.expression_type)
            try:
                return subscriptions.parse(header.topic, header.subscription)
            except BodyError as error:
                return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        group = self._sessions.group(header.consumer_group)
        if group is None:
            remark = "the consumer's group info not exist"
            return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        config = self._view.consumers.config(header.consumer_group)
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
        if not subscriptions.is_tag(found.expression_type):
            return _no_such_filter(found.expression_type)
        return found

    def _read_again(self, pull: ParkedPull) -> None:
        """Records came to the queue of a parked pull."""
        pull.is_reading = True
        self._store.read(pull.wanted, partial(self._was_read_again, pull))

    def _was_read_again(self, pull: ParkedPull, result: GetResult | Refusal) -> None:
        pull.is_reading = False
        if not pull.number:
            return  # it was answered or dropped meanwhile
        if pull.connection.closed:
            self.parking.forget(pull)
        elif isinstance(result, Refusal) or result.status is GetStatus.FOUND:
            self.parking.forget(pull)
            self._send(pull, result)
        else:
            pull.last = result
            if result.status is GetStatus.NO_MATCHED_MESSAGE:
                pull.wanted.offset = result.next_offset  # examined once is enough
            if pull.has_news:
                pull.has_news = False
                self._read_again(pull)


def _check_topic(header: PullMessageRequestHeader, topic: TopicConfig | None) -> Refusal | None:
    if topic is None:
        return unknown_topic(header.topic)
    if not topic.perm & PERM_READ:
        remark = f"the topic[{header.topic}] pulling message is forbidden"
        return Refusal(ResponseCode.NO_PERMISSION, remark)
    if not 0 <= header.queue_id < topic.read_queue_nums:
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


def _is_nothing_yet(pull: ParkedPull, result: GetResult) -> bool:
    """19: there may be something later."""
    if result.status is GetStatus.NO_MESSAGE_IN_QUEUE:
        return pull.wanted.offset == 0
    return result.status is GetStatus.OFFSET_OVERFLOW_ONE


def _refuse(
    request: RemotingCommand, refusal: Refusal, topic: TopicConfig | None
) -> RemotingCommand:
    forbidden = topic is not None and refusal.code is ResponseCode.NO_PERMISSION
    ext = {"forbiddenType": _TOPIC_FORBIDDEN} if forbidden else None
    return reply(request, refusal.code, refusal.remark, ext)


def _give_up(pull: ParkedPull) -> None:
    """Answer a pull whose time is over: nothing came, or nothing that it wants."""
    assert pull.last is not None, "a pull is parked when the store has said something"
    result = pull.last
    if pull.wanted.offset > pull.asked_offset:
        result = replace(
            result, status=GetStatus.NO_MATCHED_MESSAGE, next_offset=pull.wanted.offset
        )
    _send(pull, result)


def _send(pull: ParkedPull, result: GetResult | Refusal) -> None:
    if not pull.connection.closed:
        pull.connection.reply(pull.request, _answer(pull, result))


def _answer(pull: ParkedPull, result: GetResult | Refusal) -> RemotingCommand:
    """All four numbers on every answer that is not a refusal: Java unboxes them."""
    if isinstance(result, Refusal):
        return reply(pull.request, *result)
    ext = _positions(result.next_offset, result.min_offset, result.max_offset)
    code = _CODES[result.status]
    if _is_nothing_yet(pull, result):
        code = ResponseCode.PULL_NOT_FOUND
    return reply(pull.request, code, result.remark or result.status.name, ext, result.body)


def _positions(next_offset: int, min_offset: int, max_offset: int) -> dict[str, str]:
    return {
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
        "suggestWhichBrokerId": "0",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
