"""Pulling: 11 and 361.

Checks, codes and positions are upstream's (``PullMessageProcessor``, ``DefaultMessageStore``), with
one difference: an offset between the confirmed end and the end of a queue is waited for. Upstream's
answer (21, "offset illegal") would make a consumer that has just moved to a new master go back.
"""

from collections.abc import Callable

from gantry_protocol.bodies import SubscriptionData, TopicConfig
from gantry_protocol.bodies.route import PERM_READ
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import BodyError, GantryError
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import subscription as subscriptions
from gantry_broker.clients.parking import ParkedPull, Parking
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.tier_pulls import TierPulls, TierReads
from gantry_broker.clients.topic_rules import unknown_topic
from gantry_broker.clients.view import GroupView, Refusal
from gantry_broker.queues import GetResult, GetStatus, Limits

Commit = Callable[[str, str, int, int], None]

_COMMIT_OFFSET = 1
_MAY_SUSPEND = 2
_HAS_SUBSCRIPTION = 4
_MAX_COUNT = 32  # upstream's limits while data is in memory
_MAX_BYTES = 256 * 1024
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
        tier: has what the local log no longer has; None without one.
    """

    def __init__(
        self, view: GroupView, sessions: Sessions, commit: Commit, tier: TierReads | None = None
    ) -> None:
        self._view = view
        self._commit = commit
        self._sessions = sessions
        self.parking = Parking(self._serve_parked)
        self.tier_pulls = TierPulls(tier, view.store, _answer)
        view.store.add_listener(self.parking.arrived)

    def close(self) -> None:
        """Send parked pulls back to ask again, and listen no more."""
        self._view.store.remove_listener(self.parking.arrived)
        self.parking.release()
        self.tier_pulls.release()
        self.parking.close()

    def pull(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve 11 or 361."""
        header = from_ext(PullMessageRequestHeader, request.ext)
        topic = self._view.store.topics.lookup(header.topic)
        refusal = _check_topic(header, topic)
        if refusal is not None:
            return _refuse(request, refusal, topic)
        if not self._view.consumers.config(header.consumer_group).consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            return _refuse(request, Refusal(ResponseCode.NO_PERMISSION, remark), None)
        found = self._subscription(header)
        if isinstance(found, Refusal):
            return _refuse(request, found, None)
        if header.sys_flag & _COMMIT_OFFSET and header.commit_offset >= 0:
            self._commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        pull = ParkedPull(
            connection=conn,
            request=request,
            key=(header.topic, header.queue_id),
            offset=header.queue_offset,
            asked_offset=header.queue_offset,
            max_count=min(max(header.max_msg_nums, 1), _MAX_COUNT),
            codes=subscriptions.wanted_codes(found),
        )
        result = self._get(pull)
        if result.status is GetStatus.OFFSET_IN_TIER:
            return self.tier_pulls.ask(pull, result, _MAX_BYTES)
        wait_s = header.suspend_timeout_ms / 1000
        may_wait = header.sys_flag & _MAY_SUSPEND and wait_s > 0 and not self.parking.is_full
        if _is_nothing_yet(pull, result) and may_wait and not request.is_oneway:
            self.parking.park(pull, wait_s)
            return None
        return _answer(pull, result)

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

    def _get(self, pull: ParkedPull) -> GetResult:
        topic, queue_id = pull.key
        store = self._view.store
        result = store.get(
            topic, queue_id, pull.offset, Limits(pull.max_count, _MAX_BYTES), pull.codes
        )
        beyond = pull.offset > result.max_offset
        if beyond and pull.offset <= store.next_offset(topic, queue_id):
            return GetResult(
                GetStatus.OFFSET_OVERFLOW_ONE, pull.offset, result.min_offset, result.max_offset
            )
        return result

    def _serve_parked(self, pull: ParkedPull, is_over: bool) -> bool:
        """Try a parked pull again; when its time is over it is answered whatever comes."""
        if pull.connection.closed:
            return True
        try:
            result = self._get(pull)
        except GantryError as error:  # this reader's trouble must not stop the dispatch it is in
            answer = reply(pull.request, ResponseCode.SYSTEM_ERROR, str(error))
            pull.connection.reply(pull.request, answer)
            return True
        if result.status is GetStatus.NO_MATCHED_MESSAGE:
            pull.offset = result.next_offset  # examined once is enough
        if result.status is GetStatus.FOUND or is_over:
            if pull.offset > pull.asked_offset and _is_nothing_yet(pull, result):
                result = GetResult(
                    GetStatus.NO_MATCHED_MESSAGE,
                    pull.offset,
                    result.min_offset,
                    result.max_offset,
                )
            pull.connection.reply(pull.request, _answer(pull, result))
            return True
        return False


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
        return pull.offset == 0
    return result.status is GetStatus.OFFSET_OVERFLOW_ONE


def _refuse(
    request: RemotingCommand, refusal: Refusal, topic: TopicConfig | None
) -> RemotingCommand:
    forbidden = topic is not None and refusal.code is ResponseCode.NO_PERMISSION
    ext = {"forbiddenType": _TOPIC_FORBIDDEN} if forbidden else None
    return reply(request, refusal.code, refusal.remark, ext)


def _answer(
    pull: ParkedPull,
    result: GetResult,
    code: ResponseCode | None = None,
    remark: str | None = None,
) -> RemotingCommand:
    """All four numbers on every answer: Java unboxes them."""
    ext = {
        "nextBeginOffset": str(result.next_offset),
        "minOffset": str(result.min_offset),
        "maxOffset": str(result.max_offset),
        "suggestWhichBrokerId": "0",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    if code is None:
        code = _CODES[result.status]
        if _is_nothing_yet(pull, result):
            code = ResponseCode.PULL_NOT_FOUND
    return reply(pull.request, code, remark or result.status.name, ext, result.body)
