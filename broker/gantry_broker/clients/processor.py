"""All client requests of one mastership: a code, a function.

A processor is made when its group becomes master and closed when that ends; sessions, locks and
parked pulls do not outlive it. It is a plain synchronous handler for ``RemotingServer``; it answers
at once, or later through the connection.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import NameRefused
from gantry_protocol.process import log
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import Handler, not_supported
from gantry_protocol.settings.defaults import DELAY_LEVELS
from gantry_protocol.settings.quotas import Quotas

from gantry_broker.clients import topic_rules
from gantry_broker.clients.access import USER_CODES, ClusterUsers
from gantry_broker.clients.broker_info import BrokerInfo
from gantry_broker.clients.cloning import Cloning
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.delay.retries import RETRY_PREFIX
from gantry_broker.clients.core.placing import Placing
from gantry_broker.clients.core.transactions import Policy
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.delivery import Delivery
from gantry_broker.clients.drain import GRACE_S, GroupDrain, Leaving, Staying
from gantry_broker.clients.inspection import Inspection
from gantry_broker.clients.lag import ConsumerLag
from gantry_broker.clients.listings import Listings
from gantry_broker.clients.lite.requests import LiteRequests
from gantry_broker.clients.mapped.committed_later import CommittedLater
from gantry_broker.clients.mapped.handing_over import HandingOver
from gantry_broker.clients.mapped.places import AS_POPPED, PHYSICAL
from gantry_broker.clients.mapped.requests import QUEUE_REQUESTS, MappedRequests
from gantry_broker.clients.mapped.resets import MappedResets
from gantry_broker.clients.mapped.static_topics import StaticTopics
from gantry_broker.clients.membership import Membership
from gantry_broker.clients.newcomers import GROUPS, TOPICS, Newcomers
from gantry_broker.clients.offset_age import KEPT_HOURS, OffsetAge
from gantry_broker.clients.offsets import OffsetWriter, Positions
from gantry_broker.clients.passing import Passing
from gantry_broker.clients.plain_sends import MAX_BATCH_MESSAGES
from gantry_broker.clients.pop.modes import RequestModeRequests
from gantry_broker.clients.pop.requests import PopRequests
from gantry_broker.clients.progress import GroupProgress
from gantry_broker.clients.pull import Puller
from gantry_broker.clients.pulled import PulledOffsets
from gantry_broker.clients.queries import Queries
from gantry_broker.clients.questions import question_numbers
from gantry_broker.clients.recall import Recalls
from gantry_broker.clients.replies import Replies
from gantry_broker.clients.resent import RESENT, ResentSends
from gantry_broker.clients.resets import OffsetResets
from gantry_broker.clients.send import Sender
from gantry_broker.clients.send_back import SendBack
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.statistics import Statistics
from gantry_broker.clients.subscription_groups import SubscriptionGroups
from gantry_broker.clients.suggestions import Replicas
from gantry_broker.clients.throttle import SENDS, Throttle
from gantry_broker.clients.traced_sends import OpenSends, TracedSender
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.transaction_rounds import Rounds
from gantry_broker.clients.transactions import Transactions
from gantry_broker.clients.users import UserRequests
from gantry_broker.clients.view import GroupView
from gantry_broker.clients.waiting_room import WaitingRoom
from gantry_broker.store.contract import Refusal
from gantry_broker.store.tables.offsets import ConsumerOffsets

EXPIRY_SCAN_S = 10.0  # upstream's
_NO_ROOM = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. the disk of this broker is nearly full",
)
_DEFAULT_LEVELS = DelayLevels.parse(DELAY_LEVELS)

_log = log.get("clients")


class Disk(Protocol):
    """A disk that messages are stored on."""

    @property
    def refusing(self) -> bool:
        """Whether messages are refused for want of room."""


def _anybody(conn: Connection, topic: str) -> bool:
    return True


class _Roomy:
    refusing = False


_ROOMY = _Roomy()
_STAYING = Staying()


class Tuning(NamedTuple):
    """Settings that may change during a mastership; as the arguments of a ``ClientProcessor``."""

    policy: Policy
    quotas: Quotas | None
    offsets_kept_hours: int
    max_batch_messages: int
    drain_grace_s: float


class ClientProcessor:
    """Serves clients on one group.

    Args:
        view: the group; it is the master, and its store has taken mastership.
        clock: seconds since 1970.
        levels: how long messages of each delay level wait.
        policy: when producers are asked how their transactions end.
        throttle: holds what is beyond a tenant's quota; None where nobody has one.
        disk: where messages are stored; without it there is always room.
        offsets_kept_hours: how long the offsets of groups that nobody uses are kept.
        max_batch_messages: how many messages one batch may hold.
        replicas: broker ids of replicas that may serve reads.
        leaving: whether the group is drained.
        drain_grace_s: in which every client asks for routes.
        access: users of the cluster; without them no request about users is served.
        traced: sends that are traced; None traces none.

    Attributes:
        drain: of the group, if it is drained.
        age: forgets the offsets that nobody uses.
        lag: how far consumer groups are behind.
        delivery: brings parked messages to their queues.
        lite: lite topics.
        mapped: requests about mapped topics.
        pops: consumption by POP.
        replies: answers to the producers that wait for them.
        transactions: those that are open, and what became of the others.
        resent: sends that an earlier master may have stored.
    """

    def __init__(
        self,
        view: GroupView,
        clock: Callable[[], float] = time.time,
        levels: DelayLevels = _DEFAULT_LEVELS,
        policy: Policy | None = None,
        throttle: Throttle | None = None,
        disk: Disk = _ROOMY,
        offsets_kept_hours: int = KEPT_HOURS,
        max_batch_messages: int = MAX_BATCH_MESSAGES,
        replicas: Replicas = tuple,
        leaving: Leaving = _STAYING,
        drain_grace_s: float = GRACE_S,
        access: ClusterUsers | None = None,
        traced: OpenSends | None = None,
    ) -> None:
        self._view = view
        self.throttle = throttle
        self._disk = disk
        self.new_topics = Newcomers("topics", *TOPICS)
        self.new_groups = Newcomers("groups", *GROUPS)
        self._creation = TopicCreation(view, self.new_topics)
        self._sessions = Sessions(self._group_appeared, view.consumers)
        view.consumers.serve(self._sessions)
        self._writer = OffsetWriter(view)
        self.traffic = Traffic(time.monotonic())
        positions = Positions(
            view,
            self._writer,
            self.new_groups,
            lambda name: self._sessions.group(name) is not None,
        )
        self._positions = positions
        self._puller = Puller(
            view,
            self._sessions,
            positions.commit,
            self.traffic,
            positions.refuse_new,
            self._has_read,
            replicas,
        )
        policy = policy or Policy()
        self.transactions = Transactions(view, policy, lambda: int(clock() * 1000), levels)
        self._rounds = Rounds(
            self.transactions,
            producers=self._sessions.producers,
            commit=positions.commit,
            creation=self._creation,
            may_be_asked=_anybody if access is None else access.may_be_asked,
        )
        pulled = self._puller.pulled
        progress = GroupProgress(view, self._sessions, pulled, self.traffic)
        elsewhere = CommittedLater(view.queues)
        self.drain = GroupDrain(
            leaving,
            self._sessions,
            progress,
            pulled,
            self.transactions,
            elsewhere,
            HandingOver(view),
            drain_grace_s,
        )
        locks = view.consumers.locks
        self.recalls = Recalls(view, clock, self._writer.soon)
        numbers = question_numbers()
        self.replies = Replies(view, self._sessions, clock, numbers)
        self._sender = (Sender if traced is None else partial(TracedSender, traced))(
            view,
            self._creation,
            locks,
            levels,
            self.transactions,
            self.traffic,
            clock,
            self.drain,
            self.replies,
            max_batch_messages,
        )
        self.resent = ResentSends(
            view,
            self._sender,
            clock,
            lambda: _NO_ROOM if disk.refusing else None,
        )
        self.pops = PopRequests(
            view,
            self._creation,
            self._writer,
            lambda: int(clock() * 1000),
            self.traffic,
            positions.refuse_new,
            self._has_read,
        )
        self.lite = LiteRequests(
            view,
            self.pops,
            self._creation,
            self._writer,
            lambda: int(clock() * 1000),
            self.traffic,
        )
        progress.is_popped = elsewhere.is_popped = self.pops.book.may_have
        modes = RequestModeRequests(view, self.pops.book, self._sessions)
        returns = SendBack(view, self._creation, levels)
        members = Membership(view, self._sessions, locks, self.new_groups)
        static = StaticTopics(view)
        statistics = Statistics(view, self._sessions, self._creation, self.traffic, static)
        settings = SubscriptionGroups(view, self._writer)
        self.mapped = MappedRequests(view, view.queues.maps, view.queues.masters, positions.commit)
        lookups: dict[int, Handler] = {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: positions.search,
            RequestCode.GET_MIN_OFFSET: positions.minimum,
            RequestCode.QUERY_CONSUMER_OFFSET: positions.query,
        }
        mapped_resets = MappedResets(view, self.mapped, lookups)
        self.resets = OffsetResets(
            view,
            self._sessions,
            self._writer,
            self._puller,
            mapped_resets,
            self.pops.parts,
            self.pops.book,
        )
        listings = Listings(view, self._sessions)
        info = BrokerInfo(view, self.traffic, clock)
        self.passing = Passing(view, self._sessions, numbers)
        inspection = Inspection(view, self._sessions, progress, self.traffic, clock)
        cloning = Cloning(view, self._sessions, self._writer)
        self._handlers: dict[int, Handler] = {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.SEND_REPLY_MESSAGE: self.replies.push,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.replies.push,
            RequestCode.CONSUMER_SEND_MSG_BACK: returns.send_back,
            RequestCode.END_TRANSACTION: self.transactions.end,
            RequestCode.PULL_MESSAGE: self._puller.pull,
            RequestCode.LITE_PULL_MESSAGE: self._puller.pull,
            RequestCode.QUERY_CONSUMER_OFFSET: self._position,
            RequestCode.UPDATE_CONSUMER_OFFSET: positions.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: positions.search,
            RequestCode.GET_MAX_OFFSET: positions.maximum,
            RequestCode.GET_MIN_OFFSET: positions.minimum,
            RequestCode.GET_EARLIEST_MSG_STORETIME: positions.earliest,
            RequestCode.QUERY_MESSAGE: Queries(view).by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: positions.view,
            RequestCode.POP_MESSAGE: self.pops.pop,
            RequestCode.ACK_MESSAGE: self.pops.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.pops.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.pops.change,
            RequestCode.NOTIFICATION: self.pops.notification,
            RequestCode.POLLING_INFO: self.pops.polling_info,
            RequestCode.HEART_BEAT: members.heartbeat,
            RequestCode.UNREGISTER_CLIENT: members.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: members.consumer_ids,
            RequestCode.CHECK_CLIENT_CONFIG: members.check_client,
            RequestCode.LOCK_BATCH_MQ: members.lock,
            RequestCode.UNLOCK_BATCH_MQ: members.unlock,
            RequestCode.UPDATE_AND_CREATE_TOPIC: statistics.create_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: statistics.create_topics,
            RequestCode.GET_TOPIC_CONFIG: statistics.topic_config,
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: static.change,
            RequestCode.GET_TOPIC_STATS_INFO: statistics.topic_stats,
            RequestCode.GET_CONSUME_STATS: progress.consume_stats,
            RequestCode.GET_ALL_CONSUMER_OFFSET: progress.all_offsets,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: progress.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: progress.topics_of_group,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: partial(
                self.pops.once_read, serve=self.resets.reset
            ),
            RequestCode.GET_ALL_TOPIC_CONFIG: listings.topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: listings.delete_topic,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: listings.producers,
            RequestCode.GET_BROKER_RUNTIME_INFO: info.runtime,
            RequestCode.GET_BROKER_CONFIG: info.settings,
            RequestCode.UPDATE_BROKER_CONFIG: info.change_settings,
            RequestCode.TRIGGER_DELETE_FILES: info.clean,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: info.clean,
            RequestCode.CLEAN_UNUSED_TOPIC: info.clean,
            RequestCode.DELETE_EXPIRED_COMMITLOG: info.clean,
            RequestCode.SET_MESSAGE_REQUEST_MODE: modes.change,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: modes.all,
            RequestCode.QUERY_ASSIGNMENT: modes.assignment,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: info.system_topics,
            RequestCode.GET_ALL_DELAY_OFFSET: info.delay_offsets,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: info.forbidden,
            RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: info.check_queues,
            RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: info.export,
            RequestCode.GET_BROKER_CONSUME_STATS: inspection.all_consume_stats,
            RequestCode.RECALL_MESSAGE: self.recalls.recall,
            RequestCode.QUERY_CONSUME_TIME_SPAN: inspection.time_span,
            RequestCode.QUERY_CONSUME_QUEUE: inspection.queue,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: inspection.subscription,
            RequestCode.GET_ALL_PRODUCER_INFO: inspection.producers,
            RequestCode.VIEW_BROKER_STATS_DATA: inspection.stats,
            RequestCode.CLONE_GROUP_OFFSET: cloning.clone,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.passing.positions,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.passing.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.passing.consume_directly,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: statistics.consumer_connections,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: settings.change,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: settings.change_all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: settings.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: settings.listing,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: settings.one,
        }
        self._handlers.update(self.lite.handlers())
        if access is not None:
            users = UserRequests(access)
            self._handlers.update(dict.fromkeys(map(RequestCode, USER_CODES), users.pass_on))
        view.queues.serve(self._queues_changed, positions.commit)
        self.age = OffsetAge(
            view.store.committed,
            lambda group: bool(self._sessions.client_ids(group)),
            self._writer.soon,
            offsets_kept_hours,
            lambda: self.pops.taking.take_groups() | self.lite.popping.taking.take_groups(),
        )
        self.lag = ConsumerLag(view.store, view.store.committed, self._sessions)
        self.delivery = self.drain.delivery = Delivery(view, levels, clock, self.recalls)
        self.drain.learned()
        self._expiry = asyncio.get_running_loop().call_later(EXPIRY_SCAN_S, self._expire)

    def __call__(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve one request; a ``Handler``."""
        handler = self._handlers.get(request.code)
        if handler is None:
            return not_supported(request)
        if (
            request.code in SENDS
            and self._disk.refusing
            and not self.resent.is_sought(conn, request)
        ):
            return reply(request, *_NO_ROOM)
        try:
            if request.code in QUEUE_REQUESTS and self._is_mapped(request):
                return self.mapped.serve(conn, request, self._throttled(handler))
            if self.throttle is not None:
                return self.throttle.serve(conn, request, handler)
            return handler(conn, request)
        except NameRefused as error:
            return reply(request, error.answer_code, str(error))

    def _is_mapped(self, request: RemotingCommand) -> bool:
        """Whether a request is about a queue of a mapped topic, or may be."""
        ext = request.ext or {}
        topic = ext.get(SENDS.get(request.code, "topic"))
        if PHYSICAL in ext or topic is None:
            return PHYSICAL in ext
        config = self._view.store.topics.lookup(topic)
        if config is None:  # the map may be here before the topic is, or neither of them yet
            return self._view.queues.may_be_mapped(topic)
        return MAPPED in config.attributes

    def _throttled(self, handler: Handler) -> Handler:
        throttle = self.throttle
        if throttle is None:
            return handler
        return lambda conn, request: throttle.serve(conn, request, handler)

    def _queues_changed(self, topics: set[str]) -> None:
        self.mapped.changed(topics)
        self.pops.queues_changed(topics)
        self._puller.queues_changed(topics)

    def _position(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """QueryConsumerOffset (14)."""
        if AS_POPPED in (request.ext or {}):
            return self.pops.parts.position(conn, request)
        return self._positions.query(conn, request)

    def _send(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        if PHYSICAL in (request.ext or {}) and self.resent.again.has(request):
            self.resent.seek(conn, request)
            return None
        if RESENT in conn.attrs:
            return self.resent.send(conn, request)
        return self._sender.send(conn, request)

    @property
    def pulled(self) -> PulledOffsets:
        """Pulled offsets of groups."""
        return self._puller.pulled

    @property
    def committed(self) -> ConsumerOffsets:
        """Committed offsets of groups."""
        return self._view.store.committed

    @property
    def commits_failed(self) -> int:
        """Writes of committed offsets that were not confirmed, and were or are tried again."""
        return self._writer.failed

    @property
    def read_bytes(self) -> int:
        """Bytes of records that pulls were answered with, ever."""
        return self._puller.read_bytes

    @property
    def placing(self) -> Placing:
        """The members at which consumers of queues with several readers read."""
        return self._puller.suggestions.placing

    @property
    def parked_pulls(self) -> int:
        """The number of pulls that wait for a record."""
        return len(self._puller.parking)

    @property
    def waiting_room(self) -> WaitingRoom:
        """The records and bytes that those pulls hold."""
        return self._puller.parking.room

    def answered(self, conn: Connection, response: RemotingCommand) -> bool:
        """A client answered a question of ours; returns whether somebody waits for it."""
        return self.passing.answered(conn, response) or self.replies.answered(conn, response)

    def connection_closed(self, conn: Connection) -> None:
        """Forget a connection: its sessions, its parked pulls, what it was asked."""
        self.passing.connection_closed(conn)
        self.replies.connection_closed(conn)
        self._puller.parking.drop(conn)
        self.pops.polls.drop(conn)
        self.lite.connection_closed(conn)
        self.resent.connection_closed(conn)
        self._sessions.connection_closed(conn)

    def trace(self, traced: OpenSends) -> None:
        """Take the moments of sends that are traced, from now on."""
        if not isinstance(self._sender, TracedSender):
            self._sender = self.resent.sender = TracedSender.instead_of(self._sender, traced)

    def tune(self, tuning: Tuning) -> None:
        """Other settings from now on; what waits already waits as it was told."""
        self._sender.max_batch_messages = tuning.max_batch_messages
        self.age.kept_hours = tuning.offsets_kept_hours
        self.drain.grace_s = tuning.drain_grace_s
        self.transactions.tune(tuning.policy)
        if self.throttle is not None:
            self.throttle.change(tuning.quotas or Quotas())
        elif tuning.quotas is not None:
            self.throttle = Throttle(tuning.quotas)

    def _has_read(self, topic: str, size_bytes: int) -> None:
        if self.throttle is not None:
            self.throttle.has_read(topic, size_bytes)

    def flush_offsets(self, done: Callable[[], None]) -> None:
        """Write committed offsets to the log now, for a master that is about to leave.

        ``done`` is called once the group has answered the append, well or badly.
        """
        self._writer.now(lambda outcome: done())

    def close(self) -> None:
        """The mastership is over: answer nothing more."""
        self._expiry.cancel()
        if self.throttle is not None:
            self.throttle.close()
        self.drain.close()
        self.age.close()
        self.lag.close()
        self.delivery.close()
        self._rounds.close()
        self.transactions.close()
        self.lite.close()
        self.pops.close()
        self._writer.close()
        self._puller.close()
        self.mapped.close()
        self.resent.close()
        self.passing.close()
        self.replies.close()

    def _expire(self) -> None:
        self._sessions.expire()
        self.traffic.turn(time.monotonic())
        self._expiry = asyncio.get_running_loop().call_later(EXPIRY_SCAN_S, self._expire)

    def _group_appeared(self, name: str) -> None:
        """A consumer group needs its retry topic, or its members find no route to it."""
        queues = self._view.consumers.config(name).retry_queue_nums
        queues = min(max(queues, 1), topic_rules.MAX_QUEUES)
        topic = topic_rules.internal_topic(RETRY_PREFIX + name, queues)
        if self._view.store.topics.lookup(topic.topic_name) is not None:
            return
        refusal = self._view.accepting_writes() or topic_rules.check_creatable(topic)
        if refusal is None:
            self._creation.ensure(topic, lambda refusal: _note(topic.topic_name, refusal))


def _note(topic: str, refusal: Refusal | None) -> None:
    if refusal is not None:
        _log.warning("retry topic was not created", topic=topic, reason=refusal.remark)
